"""Who has no certificate of a host of this fleet is turned away, and whoever waits goes on waiting."""

import asyncio
import socket
import ssl

import pytest

from worldline.clock import SystemClock
from worldline.errors import BadValue, LinkCut, Unauthenticated
from worldline.schema.layout import Extent
from worldline.snapshot.arena import Arena
from worldline.testing.transports import landed
from worldline.transport.certificates import HOST_DOMAIN, make_certificates
from worldline.transport.tcp import TcpTransport
from worldline.transport.tls import TlsIdentity

KEY = bytes(range(32))
MIB = 1 << 20
WAIT_S = 20.0
DAY_S = 86_400.0


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fleet")
    make_certificates(folder, ["a", "b", "c"], SystemClock().wall_s(), gateway=["w.example"])
    return folder


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    folder = tmp_path_factory.mktemp("others")
    make_certificates(folder, ["a", "b"], SystemClock().wall_s())
    return folder


@pytest.fixture(scope="module")
def expired(fleet, tmp_path_factory):
    """Certificates of the fleet's authority that held until yesterday."""
    folder = tmp_path_factory.mktemp("expired")
    for name in ("ca.pem", "ca.key"):
        (folder / name).write_bytes((fleet / name).read_bytes())
    make_certificates(folder, ["a", "b"], SystemClock().wall_s() - 2 * DAY_S, days=1)
    return folder


def of(folder, host):
    return TcpTransport(TlsIdentity(folder, host))


async def turned_away(work):
    """TLS 1.3 lets a client finish before the server has looked at its certificate, so a refusal may come as a cut."""
    with pytest.raises((Unauthenticated, LinkCut)):
        await work


async def moves_a_byte(source, listener, own):
    with Arena.create(MIB, "source") as arena:
        arena.bytes_at(Extent(0, 1))[:] = b"x"
        accepting = asyncio.create_task(listener.accept(WAIT_S))
        link = await source.connect(listener.address, KEY, arena, WAIT_S)
        target = await accepting
        await link.post([Extent(0, 1)], WAIT_S)
        assert await landed(target, 1) == [Extent(0, 1)]
        assert bytes(own.bytes_at(Extent(0, 1))) == b"x"
        await link.fence()
        await target.fence()


@pytest.mark.parametrize(
    "who", ["another authority", "expired", "plain", "the gateway", "no certificate", "rubbish", "old TLS"]
)
async def test_a_peer_that_is_no_host_of_the_fleet_does_not_disturb_the_waiting(fleet, others, expired, who, tmp_path):
    with Arena.create(MIB, "own") as own, Arena.create(MIB, "source") as arena:
        listener = await of(fleet, "b").listen(KEY, own)
        waiting = asyncio.create_task(listener.accept(WAIT_S))
        place = listener.address.partition("@")[2]
        match who:
            case "another authority":
                await turned_away(of(others, "a").connect(listener.address, KEY, arena, WAIT_S))
            case "expired":
                await turned_away(of(expired, "a").connect(listener.address, KEY, arena, WAIT_S))
            case "plain":
                await turned_away(TcpTransport().connect(place, KEY, arena, WAIT_S))
            case "the gateway":
                for end in ("pem", "key"):
                    (tmp_path / f"g.{end}").write_bytes((fleet / f"gateway.{end}").read_bytes())
                (tmp_path / "g.key").chmod(0o600)
                (tmp_path / "ca.pem").write_bytes((fleet / "ca.pem").read_bytes())
                await turned_away(of(tmp_path, "g").connect(listener.address, KEY, arena, WAIT_S))
            case "no certificate" | "old TLS" | "rubbish":
                await asyncio.to_thread(knock, place, who)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])
        await moves_a_byte(of(fleet, "a"), listener, own)


def knock(place, who):
    host, port = place.split(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as sock:
        if who == "rubbish":
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
            return
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if who == "old TLS":
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(OSError), context.wrap_socket(sock) as inner:
            inner.sendall(bytes(40))
            if not inner.recv(1):
                raise ConnectionResetError


@pytest.mark.parametrize("who", ["another host", "another authority", "expired"])
async def test_a_source_talks_to_the_host_that_it_means(fleet, others, expired, who):
    listening = {"another host": of(fleet, "c"), "another authority": of(others, "b"), "expired": of(expired, "b")}[who]
    with Arena.create(MIB, "own") as own, Arena.create(MIB, "source") as arena:
        listener = await listening.listen(KEY, own)
        waiting = asyncio.create_task(listener.accept(WAIT_S))
        with pytest.raises(Unauthenticated):
            await of(fleet, "a").connect("b@" + listener.address.partition("@")[2], KEY, arena, WAIT_S)
        waiting.cancel()
        await asyncio.wait([waiting])
        await listener.close()


async def test_the_key_is_proved_inside_as_well(fleet):
    with Arena.create(MIB, "own") as own, Arena.create(MIB, "source") as arena:
        listener = await of(fleet, "b").listen(KEY, own)
        waiting = asyncio.create_task(listener.accept(WAIT_S))
        with pytest.raises(Unauthenticated, match="key of this attempt"):
            await of(fleet, "a").connect(listener.address, bytes(32), arena, WAIT_S)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])
        await listener.close()


def test_only_a_host_with_certificates_listens_where_others_reach_it(fleet):
    with pytest.raises(Unauthenticated, match="loopback alone"):
        TcpTransport(None, "192.0.2.1")
    TcpTransport(TlsIdentity(fleet, "a"), "192.0.2.1")
    for address in ("0.0.0.0", "::", "::1", "example.org"):
        with pytest.raises(BadValue):
            TcpTransport(TlsIdentity(fleet, "a"), address)


async def test_with_tls_no_link_goes_to_a_place_without_a_host(fleet):
    with Arena.create(MIB, "source") as arena, pytest.raises(BadValue, match="HOST@ADDRESS:PORT"):
        await of(fleet, "a").connect("127.0.0.1:80", KEY, arena, WAIT_S)
    with Arena.create(MIB, "source") as arena, pytest.raises(BadValue, match=r"127\.0\.0\.1"):
        await TcpTransport().connect("b@127.0.0.1:80", KEY, arena, WAIT_S)


def test_a_folder_without_the_hosts_pair_is_refused(fleet, others, tmp_path):
    with pytest.raises(BadValue, match="TLS of host d"):
        TlsIdentity(fleet, "d")
    for name, folder in (("ca.pem", fleet), ("a.pem", fleet), ("a.key", others)):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(BadValue, match="read by others"):
        TlsIdentity(tmp_path, "a")
    (tmp_path / "a.key").chmod(0o600)
    with pytest.raises(BadValue, match="TLS of host a"):
        TlsIdentity(tmp_path, "a")


@pytest.mark.parametrize(
    "words", [{"hosts": []}, {"hosts": ["ca"]}, {"hosts": ["a", "a"]}, {"hosts": ["A"]}, {"days": 0}, {"days": 1e9},
              {"gateway": ["a" + HOST_DOMAIN]}], ids=str,
)  # fmt: skip
def test_certificates_for_what_can_not_be_are_refused(tmp_path, words):
    with pytest.raises(BadValue):
        make_certificates(tmp_path, **({"hosts": ["a"], "now_s": 1.7e9} | words))


def test_keys_are_for_their_owner_alone_and_an_authority_is_kept(fleet):
    assert {path.stat().st_mode & 0o777 for path in fleet.glob("*.key")} == {0o600}
    before = (fleet / "ca.pem").read_bytes()
    make_certificates(fleet, ["d"], SystemClock().wall_s())
    assert (fleet / "ca.pem").read_bytes() == before
    TlsIdentity(fleet, "d")
