"""A host's key is made once, kept to itself, and never replaced in silence."""

import stat

import pytest

from worldline.errors import BadValue
from worldline.verify.signing import SigningKey


def test_the_key_is_the_same_at_every_start(tmp_path):
    key = SigningKey.load_or_make(tmp_path, "a")
    assert SigningKey.load_or_make(tmp_path, "a").public == key.public
    assert SigningKey.load_or_make(tmp_path, "b").public != key.public


def test_only_its_owner_reads_the_secret_half(tmp_path):
    SigningKey.load_or_make(tmp_path, "a")
    assert stat.S_IMODE((tmp_path / "a.key").stat().st_mode) == 0o600
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.key", "a.pub"]


def test_the_public_half_lies_beside_it(tmp_path):
    key = SigningKey.load_or_make(tmp_path, "a")
    assert (tmp_path / "a.pub").read_text() == f"{key.public} a\n"
    assert key.public not in (tmp_path / "a.key").read_text()


def test_a_key_that_others_may_read_is_refused(tmp_path):
    SigningKey.load_or_make(tmp_path, "a")
    (tmp_path / "a.key").chmod(0o640)
    with pytest.raises(BadValue, match="0600"):
        SigningKey.load_or_make(tmp_path, "a")


@pytest.mark.parametrize("text", ["", "00", "g" * 64 + "\n", "0" * 64, "0" * 66 + "\n"])
def test_a_file_that_is_no_key_is_refused_and_kept(tmp_path, text):
    path = tmp_path / "a.key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(BadValue, match="not a signing key"):
        SigningKey.load_or_make(tmp_path, "a")
    assert path.read_text() == text


def test_signatures_are_those_of_rfc_8032():
    # Section 7.1, test 2.
    key = SigningKey(bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"))
    assert key.public == "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    assert key.sign(b"\x72") == (
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
