"""A receipt that was changed, cut or given other rules to break is refused, with what is wrong in words."""

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from unit.verify.kit import IDENTITY, a_receipt, state
from worldline.errors import (
    Corrupt,
    Malformed,
    PlanMismatch,
    Refused,
    Unauthenticated,
    VersionUnknown,
    WrongSession,
)
from worldline.schema.contract import Tier
from worldline.verify.digests import digest_state
from worldline.verify.image import write_image
from worldline.verify.reader import verify_receipt
from worldline.verify.receipts import encode_receipt, load_receipt, make_receipt, write_receipt
from worldline.verify.signing import SigningKey

KEY = SigningKey(bytes(range(32)))
OTHER_KEY = SigningKey(bytes(32))
RECEIPT = make_receipt(a_receipt(), KEY)


@pytest.fixture
def path(tmp_path):
    write_receipt(tmp_path / "r.json", RECEIPT)
    return tmp_path / "r.json"


@pytest.fixture
def image(tmp_path):
    memory, manifest = state()
    write_image(tmp_path / "walk-1.image", IDENTITY, digest_state(memory, manifest), memory)
    return tmp_path / "walk-1.image"


def sealed(path, **changes):
    """A receipt with other fields, and the id and the signature that are right for them."""
    write_receipt(path, make_receipt(replace(a_receipt(), **changes), KEY))
    return path


def test_a_receipt_comes_back_as_what_it_was(path):
    assert load_receipt(path) == RECEIPT
    assert [entry.name for entry in path.parent.iterdir()] == ["r.json"]


def test_a_receipt_that_holds_says_what_was_checked(path, image):
    report = verify_receipt(path, image)
    assert (report.id, report.session, report.block) == (RECEIPT.id, "walk-1", 3)
    assert report.root == RECEIPT.target_root == report.image.root
    assert (report.made_by, report.signer) == (RECEIPT.made_by, KEY.public)
    assert len(report.checks) == 5
    assert verify_receipt(path).image is None


def test_the_id_follows_from_the_other_fields_alone():
    assert make_receipt(replace(RECEIPT, id="other", signature="x", signer="y"), KEY) == RECEIPT
    assert make_receipt(replace(RECEIPT, rounds=2), KEY).id != RECEIPT.id
    assert make_receipt(RECEIPT, OTHER_KEY).id != RECEIPT.id


def test_whole_seconds_read_the_same_however_they_are_written(path):
    receipt = make_receipt(replace(a_receipt(), pause_s=1, duration_s=2), KEY)
    write_receipt(path, receipt)
    assert verify_receipt(path).id == receipt.id == load_receipt(path).id
    path.write_bytes(path.read_bytes().replace(b"1.0", b"1").replace(b"2.0", b"2"))
    assert verify_receipt(path).id == receipt.id == load_receipt(path).id


def test_a_receipt_from_the_api_needs_no_format_and_no_layout(path):
    path.write_text(json.dumps(asdict(RECEIPT), separators=(",", ":")))
    assert verify_receipt(path).id == RECEIPT.id
    assert load_receipt(path) == RECEIPT


@settings(max_examples=300, deadline=None)
@given(at=st.integers(0, len(encode_receipt(RECEIPT)) - 1), octet=st.integers(0, 255))
def test_any_changed_octet_of_a_file_is_refused(at, octet, tmp_path_factory):
    octets = bytearray(encode_receipt(RECEIPT))
    assume(octets[at] != octet)
    octets[at] = octet
    path = tmp_path_factory.getbasetemp() / "flipped.json"
    path.write_bytes(octets)
    with pytest.raises(Refused):
        verify_receipt(path)


def test_each_octet_of_a_file_counts(path):
    octets = path.read_bytes()
    for at, octet in enumerate(octets):
        for other in {octet ^ 1} | ({0x20, 0x0A, 0x09} - {octet} if octet in b" \n" else set()):
            path.write_bytes(octets[:at] + bytes([other]) + octets[at + 1 :])
            with pytest.raises(Refused):
                verify_receipt(path)


@pytest.mark.parametrize("reader", [verify_receipt, load_receipt])
def test_a_receipt_cut_anywhere_is_malformed(reader, path):
    octets = encode_receipt(RECEIPT)
    for nbytes in range(len(octets) - 1):  # without its last octet, a line end, it is still whole
        path.write_bytes(octets[:nbytes])
        with pytest.raises(Malformed):
            reader(path)


@pytest.mark.parametrize("reader", [verify_receipt, load_receipt])
@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{}", b"null", b"\xff", b"[" * 100_000, b" " * (1 << 21)],
    ids=["empty", "list", "object", "null", "bytes", "deep", "long"],
)
def test_what_is_no_receipt_is_malformed(reader, path, text):
    path.write_bytes(text)
    with pytest.raises(Malformed):
        reader(path)


def test_trailing_bytes_a_second_key_and_an_unknown_one_are_malformed(path):
    octets = path.read_bytes()
    for wrong in (
        octets + b"{}",
        octets.replace(b'"rounds": 1,', b'"rounds": 1, "rounds": 1,'),
        octets.replace(b'"rounds": 1,', b'"rounds": 1, "grounds": 1,'),
        octets.replace(b'"rounds": 1,', b""),
        octets.replace(b'"rounds": 1,', b'"rounds": true,'),
        octets.replace(b'"pause_s": 0.25', b'"pause_s": NaN'),
    ):
        path.write_bytes(wrong)
        with pytest.raises(Malformed):
            verify_receipt(path)


@pytest.mark.parametrize("reader", [verify_receipt, load_receipt])
def test_a_newer_version_is_told_as_such(reader, path):
    path.write_bytes(path.read_bytes().replace(b"worldline receipt 2", b"worldline receipt 3"))
    with pytest.raises(VersionUnknown):
        reader(path)


def test_a_format_of_something_else_is_malformed(path):
    path.write_bytes(path.read_bytes().replace(b"worldline receipt 2", b"worldline image 2"))
    with pytest.raises(Malformed):
        verify_receipt(path)


def test_two_roots_that_differ_are_corrupt(path):
    with pytest.raises(Corrupt, match="roots differ"):
        verify_receipt(sealed(path, source_root="00" * 32))


def test_a_changed_field_under_the_old_id_is_corrupt(path):
    path.write_bytes(path.read_bytes().replace(b'"rounds": 1', b'"rounds": 9'))
    with pytest.raises(Corrupt, match="id"):
        verify_receipt(path)


def test_t0_needs_equal_plans_and_no_qualification(path):
    for wrong in ({"target_plan": "cd" * 32}, {"qualification": "q-1"}):
        with pytest.raises(PlanMismatch):
            verify_receipt(sealed(path, **wrong))


def test_t1_with_other_plans_needs_a_qualification(path):
    with pytest.raises(PlanMismatch):
        verify_receipt(sealed(path, tier=Tier.T1, target_plan="cd" * 32))
    report = verify_receipt(sealed(path, tier=Tier.T1, target_plan="cd" * 32, qualification="q-1"))
    assert any("q-1" in check for check in report.checks)
    assert verify_receipt(sealed(path, tier=Tier.T1)).tier == "T1"


@pytest.mark.parametrize(
    "changes",
    [
        {"epoch": 0},
        {"block": -1},
        {"pause_s": -0.5},
        {"leaf_count": 0},
        {"leaf_count": 10**9},
        {"state_bytes": 1 << 40},
        {"layout": "ab"},
        {"source_root": "AB" * 32, "target_root": "AB" * 32},
        {"session": "../x"},
        {"move": ""},
        {"target": ""},
        {"transport": "x" * 300},
    ],
    ids=str,
)
def test_values_that_can_not_be_are_malformed(path, changes):
    with pytest.raises(Malformed):
        verify_receipt(sealed(path, **changes))


@pytest.mark.parametrize("word", ["mode", "tier"])
def test_an_unknown_mode_or_tier_is_malformed(path, word):
    receipt = asdict(a_receipt()) | {word: "other"}
    path.write_text(json.dumps(receipt))
    with pytest.raises(Malformed):
        verify_receipt(path)


def test_an_image_of_another_session_is_the_wrong_one(path, image):
    with pytest.raises(WrongSession):
        verify_receipt(sealed(path, session="walk-2"), image)


@pytest.mark.parametrize(
    "changes",
    [
        {"block": 4},
        {"layout": "00" * 32},
        {"source_root": "00" * 32, "target_root": "00" * 32},
        {"leaf_count": 5},
        {"state_bytes": 70_000},
    ],
    ids=str,
)
def test_an_image_that_is_not_what_the_receipt_says_is_corrupt(path, image, changes):
    with pytest.raises(Corrupt, match="the image's"):
        verify_receipt(sealed(path, **changes), image)


def test_a_changed_image_makes_no_receipt_hold(path, image):
    octets = bytearray(image.read_bytes())
    octets[-4096] ^= 1
    image.write_bytes(octets)
    with pytest.raises(Corrupt):
        verify_receipt(path, image)


# ---- who signed


def changed(path, before, after):
    octets = path.read_bytes()
    assert before.encode() in octets
    path.write_bytes(octets.replace(before.encode(), after.encode()))


def test_a_receipt_that_is_not_signed_convinces_nobody(path):
    write_receipt(path, make_receipt(a_receipt()))
    with pytest.raises(Unauthenticated, match="not signed"):
        verify_receipt(path)


def test_what_was_changed_is_named(path):
    changed(path, '"rounds": 1', '"rounds": 9')
    with pytest.raises(Corrupt, match="a field was changed"):
        verify_receipt(path)
    write_receipt(path, RECEIPT)
    changed(path, f'"id": "{RECEIPT.id}"', '"id": "' + "0" * 32 + '"')
    with pytest.raises(Corrupt, match="its id was changed"):
        verify_receipt(path)
    write_receipt(path, RECEIPT)
    changed(path, RECEIPT.signature, "0" * 128)
    with pytest.raises(Unauthenticated, match="signature is not its signer's"):
        verify_receipt(path)


def test_a_receipt_made_again_by_another_is_that_others(path):
    write_receipt(path, make_receipt(replace(RECEIPT, rounds=9), OTHER_KEY))
    assert verify_receipt(path).signer == OTHER_KEY.public
    with pytest.raises(Unauthenticated, match="not one of those expected"):
        verify_receipt(path, signers={KEY.public})
    assert verify_receipt(path, signers={KEY.public, OTHER_KEY.public}).signer == OTHER_KEY.public


def test_another_keys_signature_under_the_old_signer_is_refused(path):
    forged = replace(RECEIPT, signature=make_receipt(RECEIPT, OTHER_KEY).signature)
    write_receipt(path, forged)
    with pytest.raises(Unauthenticated):
        verify_receipt(path)


@pytest.mark.parametrize("name", ["signature", "signer"])
def test_half_a_signature_is_malformed(path, name):
    path.write_text(json.dumps(asdict(RECEIPT) | {name: None}))
    with pytest.raises(Malformed):
        verify_receipt(path)


@pytest.mark.parametrize("name", ["pause_s", "rounds"])
def test_a_number_past_64_bits_is_malformed(path, name):
    path.write_text(json.dumps(asdict(RECEIPT) | {name: 10**400}))
    with pytest.raises(Malformed):
        verify_receipt(path)
