"""Each rule that a guarantee hangs on is taken out of the code, and the check that watches it turns red.

The mutations are in `sabotage/plugin.py`; each check runs in a process of its own, once with the rule and once without.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sabotage.plugin import MUTATIONS

TESTS = Path(__file__).resolve().parent.parent
FAILED = 1
WATCHED_BY = {
    "target-digest": "unit/migration/test_target.py::test_other_bytes_are_refused_as_corrupt",
    "compared-roots": "unit/migration/test_target.py::test_other_bytes_are_refused_as_corrupt",
    "installed-state": "scenarios/test_faults.py::test_an_installation_is_believed_by_the_state_read_back_alone"
    "[12-generator-consumed-planted]",
    "target-digest-and-installed-state": "scenarios/test_faults.py::"
    "test_a_transfer_that_reports_success_is_believed_by_its_bytes_alone[1-withheld-freeze-planted]",
    "read-again": "unit/runtime/test_handed_over.py::"
    "test_a_late_write_anywhere_in_what_was_read_early_ends_the_session_before_a_block_is_shown",
    "gateway-epoch": "unit/control/test_playback.py::test_a_block_beyond_the_cut_is_not_the_old_owners_to_show",
    "image-flush": "unit/verify/test_durable.py::"
    "test_an_image_is_flushed_before_it_gets_its_name_and_the_name_before_it_is_told",
    "name-flush": "unit/verify/test_durable.py::"
    "test_an_image_is_flushed_before_it_gets_its_name_and_the_name_before_it_is_told",
    "record-flush": "unit/runtime/test_store_sqlite.py::test_the_file_is_durable_by_write_ahead_log_and_full_sync",
    "receipt-check": "unit/control/test_handoff.py::test_a_receipt_that_does_not_prove_this_order_commits_nothing",
    "sealed-silence": "unit/migration/test_source.py::"
    "test_nothing_but_the_controller_or_a_refusal_moves_a_sealed_source",
    "veil": "unit/runtime/test_controller.py::"
    "test_a_target_that_ends_before_it_plays_is_never_told_of_and_the_source_plays_on",
}


def outcome(checks: set[str], mutation: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "WORLDLINE_SABOTAGE"}
    if mutation is not None:
        environment["WORLDLINE_SABOTAGE"] = mutation
    command = [sys.executable, "-m", "pytest", "-q", "-p", "sabotage.plugin", "-p", "no:cacheprovider", *sorted(checks)]
    return subprocess.run(command, cwd=TESTS, env=environment, capture_output=True, text=True, check=False, timeout=300)


def test_every_mutation_is_watched_and_with_every_rule_all_is_green() -> None:
    assert WATCHED_BY.keys() == MUTATIONS.keys()
    done = outcome(set(WATCHED_BY.values()), None)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_code_without_a_rule_turns_its_check_red(mutation: str) -> None:
    done = outcome({WATCHED_BY[mutation]}, mutation)
    assert done.returncode == FAILED, done.stdout + done.stderr
    assert " failed" in done.stdout
