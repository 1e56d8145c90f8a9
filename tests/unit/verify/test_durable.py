"""What is whole or absent, whenever the machine stops: the order in which the kernel is asked."""

import os

import pytest

from unit.verify.kit import IDENTITY, state
from worldline.verify.digests import digest_state
from worldline.verify.durable import replacing
from worldline.verify.image import write_image


@pytest.fixture
def asked(monkeypatch):
    """What the kernel was asked, in order: `write`, `flush` and `name` for files, `flush names` for a directory."""
    told = []
    fsync, replace, pwrite = os.fsync, os.replace, os.pwrite

    def on_fsync(fd):
        fsync(fd)
        told.append("flush names" if os.path.isdir(f"/proc/self/fd/{fd}") else "flush")  # noqa: PTH112 - of a descriptor

    def on_replace(*words, **more):
        replace(*words, **more)
        told.append("name")

    def on_pwrite(*words):
        done = pwrite(*words)
        told.append("write")
        return done

    monkeypatch.setattr(os, "fsync", on_fsync)
    monkeypatch.setattr(os, "replace", on_replace)
    monkeypatch.setattr(os, "pwrite", on_pwrite)
    return told


def test_an_image_is_flushed_before_it_gets_its_name_and_the_name_before_it_is_told(tmp_path, asked):
    memory, manifest = state(seed=3)
    write_image(tmp_path / "a.image", IDENTITY, digest_state(memory, manifest), memory)
    assert asked[-3:] == ["flush", "name", "flush names"]
    assert set(asked[:-3]) == {"write"}


def test_a_replacement_that_fails_leaves_the_file_that_was_and_no_draft(tmp_path, asked):
    path = tmp_path / "file"
    path.write_text("before")

    def half():
        with replacing(path) as draft:
            draft.write_text("half")
            raise KeyError("half")

    with pytest.raises(KeyError):
        half()
    assert asked == []
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "before"
