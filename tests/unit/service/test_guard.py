import socket

import pytest
from starlette.datastructures import Headers

from worldline.errors import BadValue, Unauthenticated
from worldline.runtime.face import Face
from worldline.service.app import listen
from worldline.service.guard import Access, refuse


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


def test_a_gateway_of_another_name_is_reached_by_it_over_its_scheme_alone():
    access = Access(names={"localhost", "w.example"}, scheme="https")

    def asked_of_it(host, origin):
        pairs = [(b"host", host.encode()), (b"origin", origin.encode())]
        return refuse(Headers(raw=pairs), access)

    assert asked_of_it("w.example:8700", "https://w.example:8700") is None
    assert asked_of_it("localhost:8700", "https://localhost:8700") is None
    for host, origin in (
        ("w.example:8700", "http://w.example:8700"),
        ("w.example:8700", "https://localhost:8700"),
        ("x.example:8700", "https://x.example:8700"),
        ("127.0.0.1:8700", "https://127.0.0.1:8700"),
    ):
        assert isinstance(asked_of_it(host, origin), Unauthenticated)


def test_two_origins_are_not_served():
    own = ("origin", "http://localhost:8700")
    assert isinstance(asked(("host", "localhost:8700"), own, own), Unauthenticated)


def test_a_port_in_use_is_told():
    with listen(Face(), 0) as bound:
        bound.listen()
        with pytest.raises(BadValue, match="can't be used"):
            listen(Face(), bound.getsockname()[1])


def test_answers_do_not_wait_for_acknowledgements():
    with listen(Face(), 0) as bound:
        assert bound.proto == socket.IPPROTO_TCP  # what asyncio looks at before it turns Nagle's algorithm off
