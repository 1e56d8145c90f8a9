"""Two processes of a bench of the wire, with little to move."""

import pytest

from worldline.errors import BadValue, Internal, MissingExtra, Unsupported
from worldline.lab.bench.frame import Run, measure
from worldline.lab.bench.pair.engine import ENGINES
from worldline.lab.bench.pair.parent import Pair, check_installed
from worldline.lab.bench.wire import wire
from worldline.schema.layout import LEAF_BYTES_MAX


def test_every_rate_has_a_row_and_both_arms(tmp_path):
    options = {"rate": "none,200Mbit", "bytes": "2MB"}
    try:
        result = measure("wire", wire, options, Run(tmp_path, tmp_path / "record.jsonl"))
    except (Unsupported, MissingExtra) as error:
        pytest.skip(error.sentence)
    assert [row["rate"] for row in result.rows] == ["none", "200Mbit"]
    assert len(result.samples) == 4
    assert result.ratio == min(row["verified / unverified"] for row in result.rows)
    assert result.void is None


def test_a_bench_without_a_rate_is_refused(tmp_path):
    with pytest.raises(BadValue):
        measure("wire", wire, {"rate": " , "}, Run(tmp_path, tmp_path / "record.jsonl"))


def test_an_engine_that_fails_in_one_process_ends_the_transfer_of_both():
    with Pair.start(LEAF_BYTES_MAX) as pair:
        pair.open("sockets")
        pair.close("sockets")
        with pytest.raises(Internal, match="KeyError"):
            pair.transfer("sockets")


def test_an_engine_that_is_not_installed_is_named_with_what_to_install():
    entry = ENGINES["zeromq"]
    assert entry.install
    with pytest.raises(MissingExtra, match="pip install"):
        ENGINES["absent"] = entry._replace(needs=("no_module_of_this_name",))
        try:
            check_installed("absent")
        finally:
            del ENGINES["absent"]
