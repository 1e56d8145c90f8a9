"""A skip without a reason fails, so that nothing is left out in silence."""

import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"

CASES = """
import pytest

def test_call_without():
    pytest.skip()

@pytest.mark.skip
def test_mark_without():
    pass

def test_call_with():
    pytest.skip("no such device")

@pytest.mark.skip(reason="no such device")
def test_mark_with():
    pass

@pytest.mark.xfail(reason="known")
def test_known_failure():
    raise AssertionError
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("skips")
    (folder / "conftest.py").write_text(CONFTEST.read_text())
    (folder / "test_cases.py").write_text(CASES)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "--tb=no", "-q", str(folder)]
    printed = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, timeout=60).stdout
    return printed.splitlines()[-12:]


@pytest.mark.parametrize("name", ["test_call_without", "test_mark_without"])
def test_a_skip_without_a_reason_fails(outcomes, name):
    assert any(line.startswith(("FAILED", "ERROR")) and name in line for line in outcomes), outcomes


def test_reasoned_skips_and_known_failures_stay_what_they_are(outcomes):
    assert "2 skipped, 1 xfailed" in outcomes[-1], outcomes
