import socket
import subprocess
import sys

import pytest

import worldline
from worldline.errors import ControllerGone
from worldline.service.client import Client, _quote


def test_where_nothing_listens_the_client_says_so():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with Client(url) as client, pytest.raises(ControllerGone, match="no gateway answers"):
            client.sessions()


@pytest.mark.parametrize(
    ("name", "quoted"), [("s-1", "s-1"), ("../x", "..%2Fx"), ("a?b#c", "a%3Fb%23c"), ("ä", "%C3%A4")]
)
def test_a_name_stays_one_piece_of_the_path(name, quoted):
    assert _quote(name) == quoted


def test_the_package_gives_its_names_late():
    code = "import worldline, sys; print([m for m in ('torch', 'httpx', 'fastapi', 'asyncio') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "[]"
    assert {worldline.connect, worldline.local_fleet, worldline.Client, worldline.SessionHandle}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = worldline.nothing
