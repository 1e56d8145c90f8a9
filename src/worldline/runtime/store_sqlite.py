"""The record in one SQLite file: WAL, `synchronous=FULL`, one thread that owns the connection.

Rows hold messages as JSON; only what a query compares has a column of its own. A file of a newer schema is refused.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec

from worldline.errors import Malformed, RecordFailed, VersionUnknown
from worldline.runtime.fleet_messages import Operation
from worldline.runtime.messages import Cordon, Move, Session, Signer
from worldline.runtime.store import Change, Claim, Incarnation
from worldline.runtime.trouble_disk import empty_log, spoiling
from worldline.schema.fault import FaultName
from worldline.schema.plan import Qualification
from worldline.schema.receipt import Receipt

SCHEMA_VERSION = 1
LOCK_WAIT_S = 5.0
"""How long a second reader of the file (a person with a shell) may hold us up."""

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS sessions (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, host TEXT, epoch INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS journal (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, move TEXT NOT NULL, session TEXT NOT NULL, phase TEXT NOT NULL, outcome TEXT,
    body BLOB NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS journal_by_move ON journal (move, seq);
CREATE TABLE IF NOT EXISTS moves (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, outcome TEXT,
    line INTEGER NOT NULL REFERENCES journal (seq)
) STRICT;
CREATE INDEX IF NOT EXISTS moves_open ON moves (seq) WHERE outcome IS NULL;
CREATE TABLE IF NOT EXISTS receipts (id TEXT PRIMARY KEY, session TEXT NOT NULL, body BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS keys (
    key TEXT PRIMARY KEY, verb BLOB NOT NULL, id TEXT NOT NULL, answer BLOB
) STRICT;
CREATE TABLE IF NOT EXISTS qualifications (
    source_plan TEXT NOT NULL, target_plan TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (source_plan, target_plan)
) STRICT;
CREATE TABLE IF NOT EXISTS hosts (
    host TEXT PRIMARY KEY, generation TEXT NOT NULL, pid INTEGER NOT NULL, born INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS signers (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, host TEXT NOT NULL, key TEXT NOT NULL, first_seen_at_s REAL NOT NULL,
    UNIQUE (host, key)
) STRICT;
CREATE TABLE IF NOT EXISTS cordons (host TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS operations (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, outcome TEXT, body BLOB NOT NULL
) STRICT;
"""

_NEWEST = "SELECT journal.body FROM moves JOIN journal ON journal.seq = moves.line"

T = TypeVar("T")


class SqliteStore:
    """See `worldline.runtime.store.Store`. `open` makes one."""

    def __init__(self, connection: sqlite3.Connection, thread: ThreadPoolExecutor) -> None:
        self._connection = connection
        self._thread = thread
        self._spoiled: FaultName | None = None

    @classmethod
    async def open(cls, path: Path) -> SqliteStore:
        """Opens or makes the file. Raises `VersionUnknown` for a newer schema, `Malformed` for a file of another
        kind.
        """
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="record")
        try:
            connection = await asyncio.get_running_loop().run_in_executor(thread, _connect, path)
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return cls(connection, thread)

    async def commit(self, change: Change) -> bool:
        return await self._write(lambda db: _commit(db, change))

    async def journal(self, move: Move) -> None:
        await self._write(lambda db: _journal(db, move))

    async def session(self, session: str) -> Session | None:
        return _one(Session, await self._read("SELECT body FROM sessions WHERE id = ?", session))

    async def sessions(self) -> list[Session]:
        return _all(Session, await self._read("SELECT body FROM sessions ORDER BY seq"))

    async def move(self, move: str) -> Move | None:
        return _one(Move, await self._read(f"{_NEWEST} WHERE moves.id = ?", move))

    async def moves(self, newest: int) -> list[Move]:
        return _all(Move, await self._read(f"{_NEWEST} ORDER BY moves.seq DESC LIMIT ?", newest))[::-1]

    async def open_moves(self) -> list[Move]:
        return _all(Move, await self._read(f"{_NEWEST} WHERE moves.outcome IS NULL ORDER BY moves.seq"))

    async def receipt(self, receipt: str) -> Receipt | None:
        return _one(Receipt, await self._read("SELECT body FROM receipts WHERE id = ?", receipt))

    async def claim(self, claim: Claim) -> Claim | None:
        return await self._write(lambda db: _claim(db, claim))

    async def answer(self, key: str, answer: bytes) -> None:
        await self._write(lambda db: db.execute("UPDATE keys SET answer = ? WHERE key = ?", (answer, key)))

    async def release(self, key: str) -> None:
        await self._write(lambda db: db.execute("DELETE FROM keys WHERE key = ? AND answer IS NULL", (key,)))

    async def qualify(self, qualification: Qualification) -> None:
        row = (qualification.source_plan, qualification.target_plan, msgspec.json.encode(qualification))
        await self._write(lambda db: db.execute("INSERT OR REPLACE INTO qualifications VALUES (?, ?, ?)", row))

    async def qualification(self, source_plan: str, target_plan: str) -> Qualification | None:
        query = "SELECT body FROM qualifications WHERE source_plan = ? AND target_plan = ?"
        return _one(Qualification, await self._read(query, source_plan, target_plan))

    async def incarnations(self) -> list[Incarnation]:
        rows = await self._read("SELECT host, generation, pid, born FROM hosts ORDER BY host")
        return [Incarnation(*msgspec.convert(row, tuple[str, str, int, int])) for row in rows]

    async def remember(self, incarnation: Incarnation) -> None:
        row = (incarnation.host, incarnation.generation, incarnation.pid, incarnation.born)
        await self._write(lambda db: db.execute("INSERT OR REPLACE INTO hosts VALUES (?, ?, ?, ?)", row))

    async def signers(self) -> list[Signer]:
        rows = await self._read("SELECT host, key, first_seen_at_s FROM signers ORDER BY seq")
        return [Signer(*msgspec.convert(row, tuple[str, str, float])) for row in rows]

    async def add_signer(self, signer: Signer) -> bool:
        row = (signer.host, signer.key, signer.first_seen_at_s)
        insert = "INSERT OR IGNORE INTO signers (host, key, first_seen_at_s) VALUES (?, ?, ?)"
        return await self._write(lambda db: db.execute(insert, row).rowcount == 1)

    async def cordons(self) -> dict[str, Cordon]:
        rows = await self._read("SELECT host, body FROM cordons ORDER BY host")
        return {str(host): cordon for host, body in rows for cordon in _all(Cordon, [(body,)])}

    async def keep_cordon(self, host: str, cordon: Cordon | None) -> None:
        if cordon is None:
            await self._write(lambda db: db.execute("DELETE FROM cordons WHERE host = ?", (host,)))
        else:
            row = (host, msgspec.json.encode(cordon))
            await self._write(lambda db: db.execute("INSERT OR REPLACE INTO cordons VALUES (?, ?)", row))

    async def operations(self, newest: int) -> list[Operation]:
        query = (
            "SELECT body FROM operations WHERE outcome IS NULL OR seq IN "
            "(SELECT seq FROM operations ORDER BY seq DESC LIMIT ?) ORDER BY seq"
        )
        return _all(Operation, await self._read(query, newest))

    async def keep_operation(self, operation: Operation) -> None:
        row = (operation.id, operation.outcome, msgspec.json.encode(operation))
        upsert = (
            "INSERT INTO operations (id, outcome, body) VALUES (?, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET outcome = excluded.outcome, body = excluded.body"
        )
        await self._write(lambda db: db.execute(upsert, row))

    def spoil_next(self, how: FaultName) -> None:
        self._spoiled = how

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._connection.close)
        self._thread.shutdown()

    async def _read(self, query: str, *values: str | int) -> list[tuple[object, ...]]:
        return await self._on_thread(lambda db: db.execute(query, values).fetchall())

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        spoiled, self._spoiled = self._spoiled, None

        def transaction(db: sqlite3.Connection) -> T:
            if spoiled is FaultName.SHORT_WRITE:
                empty_log(db)
            db.execute("BEGIN IMMEDIATE")
            try:
                result = work(db)
                with spoiling(db, spoiled):
                    db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            return result

        return await self._on_thread(transaction)

    async def _on_thread(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Raises `RecordFailed` for what the disk or the file's other users do."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work, self._connection)
        except sqlite3.OperationalError as error:
            raise RecordFailed(f"the record can't be used now: {error}") from error


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=LOCK_WAIT_S, isolation_level=None, check_same_thread=True)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA foreign_keys = ON")
        _check_version(db, path)
        db.executescript(
            f"BEGIN IMMEDIATE; {_TABLES} INSERT OR IGNORE INTO meta VALUES ('schema', {SCHEMA_VERSION}); COMMIT;"
        )
    except sqlite3.DatabaseError as error:
        db.close()
        raise Malformed(f"{path.name} is not a readable record: {error}", file=path.name) from error
    except BaseException:
        db.close()
        raise
    return db


def _check_version(db: sqlite3.Connection, path: Path) -> None:
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
        return
    row = db.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()
    if row is not None and row[0] != SCHEMA_VERSION:
        raise VersionUnknown(
            f"the record {path.name} has schema {row[0]}; this program reads {SCHEMA_VERSION}",
            found=int(row[0]),
            known=SCHEMA_VERSION,
        )


def _commit(db: sqlite3.Connection, change: Change) -> bool:
    session = change.session
    if change.move is not None and change.phase_expected is not None:
        query = "SELECT phase FROM moves JOIN journal ON journal.seq = moves.line WHERE moves.id = ?"
        if db.execute(query, (change.move.id,)).fetchone() != (change.phase_expected,):
            return False
    body = msgspec.json.encode(session)
    if change.expected is None:
        written = db.execute(
            "INSERT OR IGNORE INTO sessions (id, host, epoch, body) VALUES (?, ?, ?, ?)",
            (session.id, session.host, session.epoch, body),
        )
    else:
        written = db.execute(
            "UPDATE sessions SET host = ?, epoch = ?, body = ? WHERE id = ? AND host IS ? AND epoch = ?",
            (session.host, session.epoch, body, session.id, change.expected.host, change.expected.epoch),
        )
    if written.rowcount != 1:
        return False
    if change.move is not None:
        _journal(db, change.move)
    if change.receipt is not None:
        row = (change.receipt.id, change.receipt.session, msgspec.json.encode(change.receipt))
        db.execute("INSERT INTO receipts VALUES (?, ?, ?)", row)
    return True


def _journal(db: sqlite3.Connection, move: Move) -> None:
    line = db.execute(
        "INSERT INTO journal (move, session, phase, outcome, body) VALUES (?, ?, ?, ?, ?)",
        (move.id, move.session, move.phase, move.outcome, msgspec.json.encode(move)),
    ).lastrowid
    db.execute(
        "INSERT INTO moves (id, outcome, line) VALUES (?, ?, ?) "
        "ON CONFLICT (id) DO UPDATE SET outcome = excluded.outcome, line = excluded.line",
        (move.id, move.outcome, line),
    )


def _claim(db: sqlite3.Connection, claim: Claim) -> Claim | None:
    row = (claim.key, claim.verb, claim.id, claim.answer)
    if db.execute("INSERT OR IGNORE INTO keys VALUES (?, ?, ?, ?)", row).rowcount == 1:
        return None
    row = db.execute("SELECT verb, id, answer FROM keys WHERE key = ?", (claim.key,)).fetchone()
    return Claim(claim.key, bytes(row[0]), str(row[1]), None if row[2] is None else bytes(row[2]))


def _one(kind: type[T], rows: list[tuple[object, ...]]) -> T | None:
    found = _all(kind, rows)
    return found[0] if found else None


def _all(kind: type[T], rows: list[tuple[object, ...]]) -> list[T]:
    try:
        return [msgspec.json.decode(body, type=kind) for (body,) in rows if isinstance(body, bytes)]
    except msgspec.DecodeError as error:
        raise Malformed(f"a row of the record is not a {kind.__name__}: {error}") from error
