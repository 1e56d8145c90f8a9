"""docs/faults.md has every message and every durable write of a hand-over, and each has its faults by name."""

import re
from pathlib import Path
from typing import get_args

import pytest

from worldline.control.order import Call, JournalPhase
from worldline.errors import BadValue
from worldline.runtime import controller_told, gateway, messages
from worldline.runtime.controller_hosts import Notice
from worldline.runtime.store import Store
from worldline.runtime.trouble import STEP_OF_CALL, STEP_OF_LINE
from worldline.schema.fault import FAULTS, KEYS, LINES, STEPS, FaultName, Step, Verb, faults_of, parse_fault
from worldline.transport.stream import LINKS_OWN
from worldline.transport.struck import STEP_OF_RECORD
from worldline.wire.framing import RecordType

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "faults.md").read_text()
TABLE, REST = TEXT.split("### Every message, every write\n")[1].split("\nWhat a session says")
ROWS = {
    cells[1].strip().strip("`"): re.findall(r"`([a-z-]+(?:@[a-z-]+)?)`", cells[2])
    for cells in (line.split("|") for line in TABLE.splitlines() if line.startswith("| "))
    if cells[1].strip() != "message or write"
}
UNTOLD = set(re.findall(r"`(\w+)`", REST))
"""Named with the reason why they have no fault of their own."""
BESIDE_CHUNKS = {kind.name for kind in LINKS_OWN - {RecordType.CHUNK, RecordType.SHARED}}
CALLS = {call: "".join(part.capitalize() for part in call.value.split("-")) for call in Call}
READS = {
    "session", "sessions", "cordons", "operations", "move", "moves", "open_moves", "receipt", "qualification",
    "incarnations", "signers", "spoil_next", "close",
}  # fmt: skip
AT_CALLS = [name for name in FaultName if name.endswith(("-call", "-answer"))]
AT_NOTICES = [name for name in FaultName if name.endswith("-notice")]
AT_RECORDS = [name for name in FaultName if Step.SEAL in FAULTS[name].steps]
AT_LINES = [FaultName.ENOSPC, FaultName.EIO, FaultName.SHORT_WRITE]


def texts(names: list[FaultName], step: Step) -> list[str]:
    return [f"{name}@{step}" for name in names]


def test_every_message_between_the_processes_has_a_row_or_a_reason() -> None:
    unions = (messages.ToHost, Notice, controller_told.Told, gateway.FromHost)
    spoken = {message.__name__ for union in unions for message in get_args(union)}
    assert spoken - set(ROWS) - UNTOLD == set()
    assert set(CALLS.values()) <= set(ROWS)


@pytest.mark.parametrize("call", Call)
def test_every_call_and_its_answer_can_be_lost_late_repeated_and_overtaken(call: Call) -> None:
    assert len(AT_CALLS) == 8
    assert sorted(ROWS[CALLS[call]]) == sorted(texts(AT_CALLS, STEP_OF_CALL[call]))


@pytest.mark.parametrize(("notice", "step"), [("Progress", Step.PROGRESS), ("SessionChanged", Step.OWNER)])
def test_every_notice_can_be_lost_late_repeated_and_overtaken(notice: str, step: Step) -> None:
    assert len(AT_NOTICES) == 4
    assert sorted(ROWS[notice]) == sorted(texts(AT_NOTICES, step))


@pytest.mark.parametrize("record", [record for record in RecordType if record.name not in UNTOLD | BESIDE_CHUNKS])
def test_every_record_can_be_lost_late_repeated_overtaken_cut_and_damaged(record: RecordType) -> None:
    assert len(AT_RECORDS) == 7
    bare = record in LINKS_OWN
    expected = [str(name) for name in AT_RECORDS] if bare else texts(AT_RECORDS, STEP_OF_RECORD[record])
    assert sorted(ROWS[record.name]) == sorted(expected)


def test_every_write_of_the_record_can_find_the_disk_full_failing_and_short() -> None:
    writes = {name for name in vars(Store) if not name.startswith("_")} - READS
    swaps = {JournalPhase.COMMITTED, JournalPhase.RETURNED}  # `commit` and `return` write these
    lines = {f"line {phase.name}" for phase in JournalPhase if phase not in swaps}
    assert writes - {"journal"} - set(ROWS) - UNTOLD == set()
    assert lines <= set(ROWS)
    for row, step in (
        *((f"line {phase.name}", step) for phase, step in STEP_OF_LINE.items()),
        ("commit", Step.SWAP),
        ("return", Step.RETURN),
        ("claim", Step.CLAIM),
        ("answer", Step.ANSWER),
    ):
        assert set(texts(AT_LINES, step)) <= set(ROWS[row])
        for verb in (verb for verb in Verb if step in STEPS[verb]):
            assert set(texts(AT_LINES, step)) <= {str(fault) for fault in faults_of(verb)}
    assert {*STEP_OF_LINE.values(), Step.SWAP, Step.RETURN} == set(LINES)
    assert {Step.CLAIM, Step.ANSWER} == set(KEYS)


def test_whatever_a_row_names_is_planted_by_that_name() -> None:
    for row, named in ROWS.items():
        assert named, row
        for text in named:
            assert any(_is_planted(text, verb) for verb in Verb), (row, text)


def test_every_name_and_every_step_is_told() -> None:
    told = {text for named in ROWS.values() for text in named}
    processes = {f"{what}-{who}" for what in ("kill", "stop") for who in ("source", "target", "controller", "gateway")}
    assert {text.partition("@")[0] for text in told} | processes | {"lie", "stall", "late-write"} == set(FaultName)
    assert {text.partition("@")[2] for text in told} - {""} == set(Step)


def _is_planted(text: str, verb: Verb) -> bool:
    try:
        return str(parse_fault(text, verb)).startswith(text)
    except BadValue:
        return False
