"""What others can reach is guarded, or not served."""

from pathlib import Path

import pytest

from worldline.errors import BadValue, Unauthenticated
from worldline.runtime.face import LOOPBACK, Face

TOKEN, CERT, KEY = Path("token"), Path("cert.pem"), Path("key.pem")


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.168.0.1", "127.0.0.2", "fe80::1"])
@pytest.mark.parametrize(
    "guards", [{}, {"token_file": TOKEN}, {"tls_cert": CERT, "tls_key": KEY}], ids=["none", "token", "tls"]
)
def test_an_address_that_others_can_reach_takes_a_token_and_tls(address, guards):
    with pytest.raises(Unauthenticated, match="loopback alone"):
        Face(address, ("world.example",), **guards)
    face = Face(address, ("world.example",), TOKEN, CERT, KEY)
    assert (face.scheme, face.shown_as) == ("https", "world.example")


@pytest.mark.parametrize("address", sorted(LOOPBACK))
@pytest.mark.parametrize("token", [None, TOKEN])
def test_loopback_takes_nothing_and_may_ask_for_a_token(address, token):
    face = Face(address, token_file=token)
    assert (face.scheme, face.shown_as, face.reached_as) == ("http", address, LOOPBACK)


def test_a_gateway_everywhere_has_names():
    with pytest.raises(BadValue, match="names"):
        Face("0.0.0.0", (), TOKEN, CERT, KEY)
    assert Face("0.0.0.0", ("w.example",), TOKEN, CERT, KEY).reached_as == LOOPBACK | {"w.example"}
    assert Face("10.0.0.1", (), TOKEN, CERT, KEY).reached_as == LOOPBACK | {"10.0.0.1"}


@pytest.mark.parametrize(
    "words",
    [
        {"address": "example.org"},
        {"address": ""},
        {"names": ("Upper",)},
        {"names": ("a/b",)},
        {"names": ("",)},
        {"tls_cert": CERT},
        {"tls_key": KEY},
    ],
    ids=str,
)
def test_words_without_a_meaning_are_refused(words):
    with pytest.raises(BadValue):
        Face(**words)


def test_a_certificate_that_is_none_is_told(tmp_path):
    (tmp_path / "cert.pem").write_text("nonsense")
    face = Face(tls_cert=tmp_path / "cert.pem", tls_key=tmp_path / "key.pem")
    with pytest.raises(BadValue, match="TLS with"):
        face.check_tls()


def test_no_token_is_on_a_command_line(tmp_path):
    (tmp_path / "token").write_text("correct-horse-battery")
    words = Face("10.0.0.1", ("w.example",), tmp_path / "token", CERT, KEY).arguments()
    assert "correct-horse-battery" not in " ".join(words)
    assert words[:4] == ["--address", "10.0.0.1", "--name", "w.example"]
