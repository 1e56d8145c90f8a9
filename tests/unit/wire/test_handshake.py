import contextlib

from hypothesis import given
from hypothesis import strategies as st

from worldline.errors import Malformed, VersionUnknown
from worldline.wire.handshake import Role, build_greeting, parse_greeting, proof_holds, prove

KEY, OTHER = bytes(32), bytes([1]) * 32
A, B = b"a" * 32, b"b" * 32


def test_the_octets_of_a_greeting_never_change():
    assert build_greeting(A) == b"WLDK\x01\0\0\0" + A
    assert parse_greeting(build_greeting(A)) == A


def test_the_octets_of_a_proof_never_change():
    assert prove(KEY, Role.SOURCE, A, B).hex() == "877be1e321d64e3950557335ef5effeff9bf4bc6c746c57103879b12c511dcae"
    assert prove(KEY, Role.TARGET, A, B).hex() == "ee86265cb7a0f41c647359ca61ef346d51abe7fb1886f9321c885841acc22589"


def test_a_proof_holds_for_its_key_role_and_nonces_only():
    proof = prove(KEY, Role.SOURCE, A, B)
    assert proof_holds(proof, KEY, Role.SOURCE, A, B)
    for key, role, source_nonce, target_nonce in (
        (OTHER, Role.SOURCE, A, B),
        (KEY, Role.TARGET, A, B),
        (KEY, Role.SOURCE, B, B),
        (KEY, Role.SOURCE, A, A),
        (KEY, Role.SOURCE, B, A),
    ):
        assert not proof_holds(proof, key, role, source_nonce, target_nonce)


@given(st.binary(max_size=60) | st.binary(min_size=36, max_size=36).map(lambda tail: b"WLDK" + tail))
def test_any_bytes_are_a_greeting_or_a_typed_error(data):
    with contextlib.suppress(Malformed, VersionUnknown):
        assert build_greeting(parse_greeting(data)) == data
