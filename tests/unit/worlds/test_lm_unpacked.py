import pytest

from worldline.errors import BadValue
from worldline.worlds.lm_unpacked import CACHE, unpacked

pytest.importorskip("transformers")
pytest.importorskip("gguf")


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    return path


def test_a_file_is_unpacked_once_and_another_one_anew(file):
    asked = []

    def unpack(folder):
        asked.append(folder)
        folder.mkdir()
        (folder / "config.json").write_text("{}")

    first = unpacked(file, unpack)
    assert unpacked(file, unpack) == first
    assert (first / "config.json").read_text() == "{}"
    file.write_bytes(b"GGUG")
    assert unpacked(file, unpack) != first
    assert len(asked) == 2


def test_what_was_unpacked_half_is_not_there(file, tmp_path):
    def unpack(folder):
        folder.mkdir()
        raise BadValue("no whole model")

    with pytest.raises(BadValue, match="no whole model"):
        unpacked(file, unpack)
    assert [path.name for path in (tmp_path / "cache" / "worldline" / "weights").iterdir()] == ["lock"]


@pytest.mark.parametrize("trouble", ["no folder", "no space"])
def test_a_cache_that_cannot_be_written_is_told_with_the_way_out(file, tmp_path, trouble):
    def unpack(folder):
        raise OSError(28, "No space left on device")

    if trouble == "no folder":
        (tmp_path / "cache").write_text("a file")
    with pytest.raises(BadValue, match=CACHE):
        unpacked(file, unpack)
