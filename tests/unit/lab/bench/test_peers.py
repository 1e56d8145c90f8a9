"""A bench against peers, with little to move: what it reports, not how fast it is."""

import pytest

from worldline.errors import BadValue, MissingExtra
from worldline.lab.bench.frame import Run, measure
from worldline.lab.bench.peers import peers


def test_a_peer_is_listed_with_its_ratio_or_named_with_what_to_install(tmp_path):
    options = {"bytes": "4MB", "against": "zeromq", "port": "none"}
    try:
        result = measure("peers", peers, options, Run(tmp_path, tmp_path / "record.jsonl"))
    except MissingExtra as error:
        assert "pip install" in error.sentence
        return
    assert [peer.name for peer in result.peers] == [row["peer"] for row in result.rows] == ["zeromq"]
    assert result.ratio == result.peers[0].ratio


def test_a_peer_that_nobody_knows_is_refused(tmp_path):
    with pytest.raises(BadValue, match="nixl, mooncake, gloo, zeromq"):
        measure("peers", peers, {"against": "pigeon"}, Run(tmp_path, tmp_path / "record.jsonl"))
