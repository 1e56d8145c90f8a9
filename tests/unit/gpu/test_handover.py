"""What travels of a card's memory is checked before CUDA sees it."""

import msgspec
import pytest
import torch

from worldline.errors import Malformed
from worldline.gpu.handover import Offer, read_question

OFFER = Offer(0, b"h" * 64, 4096, 0, b"c" * 16, 0, b"e" * 64, True)


def question(**changes):
    return msgspec.json.encode({"offer": msgspec.to_builtins(OFFER) | changes, "leaves": [[0, 8]]})


def test_a_question_survives_its_travel():
    assert read_question(question()).offer == OFFER


@pytest.mark.parametrize("told", [b"", b"[]", b"{}", question(more=1), question(handle=7), question()[:-1]])
def test_what_is_no_question_is_refused(told):
    with pytest.raises(Malformed):
        read_question(told)


@pytest.mark.parametrize("change", [{"handle": b""}, {"handle": b"x" * 129}, {"storage_bytes": 0}])
def test_an_offer_that_can_be_none_is_refused_before_it_is_opened(change):
    with pytest.raises(Malformed):
        msgspec.structs.replace(OFFER, **change).open()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no card is here; benchmarks/gpu.py measures the hand-over")
def test_another_process_reads_the_same_bytes():
    import subprocess
    import sys

    from worldline.gpu import handover
    from worldline.gpu.digests import leaf_digests
    from worldline.schema.layout import Extent

    memory = torch.randint(0, 256, (1 << 20,), dtype=torch.uint8, device="cuda")
    leaves = [Extent(at, 65_536) for at in range(0, 1 << 20, 65_536)]
    run = [sys.executable, "-c", "from worldline.gpu.handover import answer; answer()"]
    with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        handover.ask(child.stdin, Offer.of(memory), leaves)
        assert handover.told(child.stdout, len(leaves)) == b"".join(leaf_digests(memory, leaves))
        child.stdin.close()
