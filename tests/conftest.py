"""What holds for every test: one torch thread, no stray reads of a hub, and no skip without a reason."""

import faulthandler
import os
import sys

import pytest

faulthandler.enable()
os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy or torch start their threads; child processes inherit it
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

UNREASONED = ("", "unconditional skip")


@pytest.fixture(autouse=True)
def _one_torch_thread():
    """Thread count changes bits. Tests that never import torch do not pay for it here."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)


def _skip_reason(report):
    """The reason of a skipped report; None where it was not skipped."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return None
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped").removeprefix(":").strip()


def _fail_if_unreasoned(report, name):
    if _skip_reason(report) in UNREASONED:
        report.outcome = "failed"
        report.longrepr = f"{name} was skipped without a reason: say why, or run it"
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item):
    report = yield
    return _fail_if_unreasoned(report, item.nodeid)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report(collector):
    report = yield
    return _fail_if_unreasoned(report, collector.nodeid)
