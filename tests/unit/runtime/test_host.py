"""The command line of a host."""

from pathlib import Path

import pytest

from worldline.errors import BadValue
from worldline.runtime.host import main, read_arguments

GIVEN = ["--name", "a", "--dir", "/run/x"]


def test_a_name_and_a_directory_are_enough():
    read = read_arguments(GIVEN)
    assert (read.name, read.run_dir, read.allow_faults, read.cpu_capability) == ("a", Path("/run/x"), False, None)
    assert read.memory_bytes > 0


@pytest.mark.parametrize("memory", [["--memory", "4GB"], ["--memory-bytes", "4000000000"]])
def test_memory_is_told_in_either_form(memory):
    assert read_arguments(GIVEN + memory).memory_bytes == 4_000_000_000


@pytest.mark.parametrize("flag", ["--faults", "--allow-faults"])
def test_faults_are_allowed_by_either_name(flag):
    assert read_arguments([*GIVEN, flag]).allow_faults


@pytest.mark.parametrize(
    "words", [["--memory", "much"], ["--memory", "0"], ["--lanes", "0"], ["--name", "../a"], ["--memory-bytes", "-1"]]
)
def test_words_that_make_no_sense_are_refused(words):
    with pytest.raises(BadValue):
        read_arguments(GIVEN + words)


@pytest.mark.parametrize("words", [["--cpu-capability", "neon"], ["--colour", "red"]])
def test_unknown_options_end_the_process_with_status_2(words):
    with pytest.raises(SystemExit) as caught:
        read_arguments(GIVEN + words)
    assert caught.value.code == 2


def test_an_error_is_one_line_in_the_log_and_the_exit_code_of_its_class():
    assert main(["--name", "../a", "--dir", "/run/x"]) == BadValue.exit_code
