"""Which build of torch the set-up takes, from the plans that pip would follow."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "install_torch.py"
_spec = importlib.util.spec_from_file_location("install_torch", SCRIPT)
assert _spec is not None and _spec.loader is not None
it = importlib.util.module_from_spec(_spec)
sys.modules["install_torch"] = it
_spec.loader.exec_module(it)

CPU = (it.Package("torch", "2.13.0+cpu"), it.Package("sympy", "1.14.0"))
PLAIN_CPU = (it.Package("torch", "2.9.1"), it.Package("sympy", "1.14.0"))
CUDA = (it.Package("torch", "2.13.0"), it.Package("nvidia-cublas", "13.1"), it.Package("triton", "3.6.0"))


class Index:
    """An index that answers with the given plans and remembers what it was asked."""

    def __init__(self, plans):
        self.plans = plans
        self.asked = []

    def __call__(self, requirement):
        self.asked.append(requirement)
        return self.plans.get(requirement)


def test_a_cpu_build_of_the_preferred_release_is_taken_and_nothing_else_is_asked():
    index = Index({"torch==2.13.0": CPU})
    assert it.decide(index, cuda_welcome=False) == it.Install("torch==2.13.0+cpu")
    assert index.asked == ["torch==2.13.0"]


def test_an_older_release_is_taken_when_only_it_has_a_cpu_build():
    index = Index({"torch==2.13.0": CUDA, "torch==2.12.*": CUDA, "torch==2.9.*": PLAIN_CPU})
    assert it.decide(index, cuda_welcome=False) == it.Install("torch==2.9.1")


def test_cuda_alone_is_refused_and_every_candidate_is_explained():
    index = Index(dict.fromkeys(it.CANDIDATES[:2], CUDA))
    verdict = it.decide(index, cuda_welcome=False)
    assert isinstance(verdict, it.Refuse)
    assert len(verdict.reasons) == len(it.CANDIDATES)
    assert "nvidia-cublas" in verdict.reasons[0]
    assert verdict.reasons[-1].endswith("not offered, or at odds with the pins")
    assert "WORLDLINE_ALLOW_CUDA=1" in it.refusal(verdict)
    assert "PIP_EXTRA_INDEX_URL" in it.refusal(verdict)


def test_cuda_is_taken_where_it_is_welcome():
    assert it.decide(Index({"torch==2.13.0": CUDA}), cuda_welcome=True) == it.Install("torch==2.13.0")


@pytest.mark.parametrize(
    ("name", "version", "is_cuda"),
    [
        ("nvidia-cudnn-cu12", "9.10", True),
        ("nvidia_nccl_cu13", "2.27", True),
        ("cuda-bindings", "13.0", True),
        ("triton", "3.6.0", True),
        ("torch", "2.13.0+cu130", True),
        ("torch", "2.13.0+cpu", False),
        ("torch", "2.13.0", False),
        ("tritonclient", "2.0", False),
    ],
)
def test_cuda_packages_are_known_by_name(name, version, is_cuda):
    assert it.Package(name, version).is_cuda is is_cuda


@pytest.mark.parametrize(
    ("version", "allowed"),
    [("2.13.0+cpu", True), ("2.6.0", True), ("2.5.1", False), ("2.14.0", False), ("2.60.0", False), ("3.0", False)],
)
def test_the_range_is_that_of_the_extra(version, allowed):
    assert it.in_range(version) is allowed


def test_a_plan_is_read_from_pips_report():
    report = json.dumps({"install": [{"metadata": {"name": "torch", "version": "2.13.0+cpu"}}]})
    assert it.plan_of_report(report) == (it.Package("torch", "2.13.0+cpu"),)
