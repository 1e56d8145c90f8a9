"""Weights that options name: a client's words are never a path."""

from pathlib import Path

import pytest

from worldline.errors import BadValue
from worldline.worlds.weights import FOLDER, find_weights


def test_a_name_is_found_in_the_hosts_folder(weights_folder: Path) -> None:
    (weights_folder / "own.safetensors").write_bytes(b"")
    assert find_weights("own.safetensors") == (weights_folder / "own.safetensors").resolve()


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../outside", "/etc/passwd", "sub/own", "a\0b", "-x", "nowhere", "link"]
)
def test_nothing_else_is_reached(weights_folder: Path, name: str) -> None:
    (weights_folder.parent / "outside").write_bytes(b"")
    (weights_folder / "sub").mkdir()
    (weights_folder / "sub" / "own").write_bytes(b"")
    (weights_folder / "link").symlink_to(weights_folder.parent / "outside")
    with pytest.raises(BadValue):
        find_weights(name)


def test_a_host_without_a_folder_offers_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER, raising=False)
    with pytest.raises(BadValue, match=FOLDER):
        find_weights("own.safetensors")
