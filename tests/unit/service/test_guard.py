import socket

import pytest
from starlette.datastructures import Headers

from worldline.errors import BadValue, Unauthenticated
from worldline.service.app import listen
from worldline.service.guard import refuse


def asked(*pairs):
    return refuse(Headers(raw=[(name.encode(), value.encode()) for name, value in pairs]))


@pytest.mark.parametrize("host", ["127.0.0.1:8700", "localhost", "LOCALHOST:1", "[::1]:8700", "127.0.0.1"])
def test_loopback_names_are_served(host):
    assert asked(("host", host)) is None
    assert asked(("host", host), ("origin", f"http://{host}")) is None


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "127.0.0.1.evil.example", "127.0.0.2", "0.0.0.0", "[::ffff:127.0.0.1]", "a@b:c:d", "[::1"],
)
def test_other_names_are_not(host):
    assert isinstance(asked(("host", host)), Unauthenticated)


def test_no_host_or_two_are_not_served():
    assert isinstance(asked(), Unauthenticated)
    assert isinstance(asked(("host", "localhost"), ("host", "localhost")), Unauthenticated)


@pytest.mark.parametrize(
    "origin", ["null", "", "http://localhost", "https://localhost:8700", "http://localhost:8701", "file://"]
)
def test_an_origin_that_is_not_the_gateways_own_is_not_served(origin):
    assert isinstance(asked(("host", "localhost:8700"), ("origin", origin)), Unauthenticated)


def test_two_origins_are_not_served():
    own = ("origin", "http://localhost:8700")
    assert isinstance(asked(("host", "localhost:8700"), own, own), Unauthenticated)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.168.0.1", "example.org"])
def test_an_address_that_others_can_reach_is_refused(address):
    with pytest.raises(Unauthenticated, match="loopback"):
        listen(address, 0)


def test_a_port_in_use_is_told():
    with listen("127.0.0.1", 0) as bound:
        bound.listen()
        with pytest.raises(BadValue, match="can't be used"):
            listen("127.0.0.1", bound.getsockname()[1])


def test_answers_do_not_wait_for_acknowledgements():
    with listen("127.0.0.1", 0) as bound:
        assert bound.proto == socket.IPPROTO_TCP  # what asyncio looks at before it turns Nagle's algorithm off
