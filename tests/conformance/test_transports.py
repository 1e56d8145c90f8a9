"""Every transport that ships passes the public suite, and tcp also inside TLS."""

import pytest

from worldline.clock import SystemClock
from worldline.testing.transports import TransportSuite
from worldline.transport.certificates import make_certificates
from worldline.transport.registry import SHIPPED, open_transport
from worldline.transport.tcp import TcpTransport
from worldline.transport.tls import TlsIdentity


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder, ["a"], SystemClock().wall_s())
    return folder


@pytest.fixture(params=[*sorted(SHIPPED), "tcp+tls"])
def transport(request, certificates):
    if request.param == "tcp+tls":
        return TcpTransport(TlsIdentity(certificates, "a"))
    return open_transport(request.param)


class TestTransports(TransportSuite):
    pass
