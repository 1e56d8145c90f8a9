import sys
from types import ModuleType

import pytest

from worldline.errors import BadValue, MissingExtra
from worldline.transport.registry import GROUP, open_transport, transport_names
from worldline.transport.tcp import TcpTransport


def offer(tmp_path, monkeypatch, target):
    """A package beside us that offers a transport called `pigeon`."""
    info = tmp_path / "pigeon_post-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeon-post\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\npigeon = {target}\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def test_the_transports_that_ship_are_found_by_name():
    assert {"memory", "shm", "tcp"} <= set(transport_names())
    assert isinstance(open_transport("tcp"), TcpTransport)
    for name in ("memory", "shm", "tcp"):
        assert open_transport(name).name == name


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(BadValue, match="memory, nixl, shm, tcp"):
        open_transport("carrier-pigeon")


def test_another_package_can_offer_a_transport(tmp_path, monkeypatch):
    module = ModuleType("pigeon_post")
    module.Pigeon = TcpTransport
    monkeypatch.setitem(sys.modules, "pigeon_post", module)
    offer(tmp_path, monkeypatch, "pigeon_post:Pigeon")
    assert "pigeon" in transport_names()
    assert isinstance(open_transport("pigeon"), TcpTransport)


def test_a_transport_whose_package_lacks_something_says_what_to_install(tmp_path, monkeypatch):
    offer(tmp_path, monkeypatch, "pigeon_post_that_is_not_there:Pigeon")
    with pytest.raises(MissingExtra, match="pip install pigeon_post_that_is_not_there"):
        open_transport("pigeon")
