"""Every transport that ships passes the public suite, and tcp also inside TLS."""

import pytest

from worldline.clock import SystemClock
from worldline.errors import MissingExtra
from worldline.testing.transports import TransportSuite
from worldline.transport.certificates import make_certificates
from worldline.transport.registry import SHIPPED, open_transport
from worldline.transport.spread_source import Spreading
from worldline.transport.tcp import TcpTransport
from worldline.transport.tls import TlsIdentity


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder, ["a"], SystemClock().wall_s())
    return folder


MANY = Spreading(streams=3, open_bytes=1, extent_bytes_min=64 * 1024, piece_bytes=48 * 1024)
"""Streams at every turn, however little there is to send."""


@pytest.fixture(params=[*sorted(set(SHIPPED) - {"nixl"}), "tcp+streams", "tcp+tls", "tcp+tls+streams", "tcp+window"])
def transport(request, certificates):
    if request.param.startswith("tcp+"):
        identity = TlsIdentity(certificates, "a") if "tls" in request.param else None
        spreading = MANY if "streams" in request.param else Spreading()
        return TcpTransport(identity, spreading=spreading, codec="window" if "window" in request.param else "auto")
    return open_transport(request.param)


class TestTransports(TransportSuite):
    pass


class TestNixl(TransportSuite):
    links = 4

    @pytest.fixture
    def transport(self):
        try:
            return open_transport("nixl")
        except MissingExtra as error:
            pytest.skip(error.sentence)
