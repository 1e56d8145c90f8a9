"""Every transport that ships passes the public suite."""

import pytest

from worldline.testing.transports import TransportSuite
from worldline.transport.registry import SHIPPED, open_transport


@pytest.fixture(params=sorted(SHIPPED))
def transport(request):
    return open_transport(request.param)


class TestTransports(TransportSuite):
    pass
