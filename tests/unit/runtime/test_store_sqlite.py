import asyncio
import sqlite3
import subprocess
import sys

import pytest

from worldline.errors import Malformed, VersionUnknown
from worldline.runtime.store import Change, Claim, Incarnation, Owner
from worldline.runtime.store_sqlite import SqliteStore
from worldline.testing.stores import a_move, a_qualification, a_receipt, a_session


def test_everything_outlives_the_process(tmp_path):
    path = tmp_path / "record.sqlite"
    code = f"""
import asyncio, os, pathlib
from worldline.runtime.store import *
from worldline.runtime.store_sqlite import SqliteStore
from worldline.testing.stores import *
async def main():
    store = await SqliteStore.open(pathlib.Path({str(path)!r}))
    await store.commit(Change(a_session(), None))
    await store.journal(a_move())
    committed = a_move(phase="COMMITTED")
    await store.commit(Change(a_session(host="b", epoch=2), Owner("a", 1), committed, None, a_receipt()))
    await store.claim(Claim("k", b"verb", "m1", None))
    await store.qualify(a_qualification())
    await store.remember(Incarnation("a", "g", 1, 2))
    os._exit(9)
asyncio.run(main())
"""
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 9
    asyncio.run(read_back(path))


async def read_back(path):
    store = await SqliteStore.open(path)
    assert await store.session("s1") == a_session(host="b", epoch=2)
    assert (await store.move("m1")).phase == "COMMITTED"
    assert await store.receipt("r1") == a_receipt()
    assert await store.claim(Claim("k", b"verb", "m9", None)) == Claim("k", b"verb", "m1", None)
    assert await store.qualification("p1", "p2") == a_qualification()
    assert await store.incarnations() == [Incarnation("a", "g", 1, 2)]
    await store.close()


async def test_a_record_of_a_newer_schema_is_refused(tmp_path):
    path = tmp_path / "record.sqlite"
    await (await SqliteStore.open(path)).close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET value = 99")
    db.close()
    with pytest.raises(VersionUnknown, match="99"):
        await SqliteStore.open(path)


async def test_a_file_that_is_no_record_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "record.sqlite"
    path.write_bytes(b"not a database, but long enough to look like a page" * 40)
    before = path.read_bytes()
    with pytest.raises(Malformed):
        await SqliteStore.open(path)
    assert path.read_bytes() == before


async def test_a_write_that_fails_leaves_nothing_behind(tmp_path):
    store = await SqliteStore.open(tmp_path / "record.sqlite")
    await store.commit(Change(a_session(), None))
    await store.commit(Change(a_session(host="b", epoch=2), Owner("a", 1), a_move(), None, a_receipt()))
    with pytest.raises(sqlite3.IntegrityError):  # a receipt's id is used once
        await store.commit(Change(a_session(host="c", epoch=3), Owner("b", 2), a_move("m2"), None, a_receipt()))
    assert await store.session("s1") == a_session(host="b", epoch=2)
    assert await store.move("m2") is None
    await store.close()


async def test_the_file_is_durable_by_write_ahead_log_and_full_sync(tmp_path):
    store = await SqliteStore.open(tmp_path / "record.sqlite")
    read = store._read
    assert await read("PRAGMA journal_mode") == [("wal",)]
    assert await read("PRAGMA synchronous") == [(2,)]
    await store.close()
