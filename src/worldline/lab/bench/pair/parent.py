"""The two processes, as the bench that started them sees them."""

from __future__ import annotations

import importlib.util
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

from worldline.errors import Internal, MissingExtra, TimedOut
from worldline.lab.bench.pair.engine import ENGINES, WAIT_S, Where
from worldline.lab.fabric import Fabric

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Transfer:
    """One transfer: wall time at the source, processor time of each process."""

    seconds: float
    source_cpu_s: float
    target_cpu_s: float

    @property
    def cpu_s(self) -> float:
        """Of both processes."""
        return self.source_cpu_s + self.target_cpu_s


def check_installed(name: str) -> None:
    """Raises `MissingExtra`, which says what to install."""
    for module in ENGINES[name].needs:
        try:
            found = importlib.util.find_spec(module) is not None
        except ImportError:
            found = False
        if not found:
            raise MissingExtra(f"{name} is not here: {ENGINES[name].install}", peer=name)


class Pair:
    """A target and a source, each a process; on a fabric in its hosts a and b. Use `start`."""

    def __init__(self, target: subprocess.Popen[bytes], source: subprocess.Popen[bytes]) -> None:
        self._target, self._source = _Child(target), _Child(source)
        self.nbytes = 0

    @classmethod
    @contextmanager
    def start(cls, nbytes: int, fabric: Fabric | None = None) -> Iterator[Pair]:
        """Both processes end with the block."""
        target = _spawn("target", nbytes, fabric, "b")
        source = _spawn("source", nbytes, fabric, "a")
        pair = cls(target, source)
        pair.nbytes = nbytes
        try:
            yield pair
        finally:
            for child in (source, target):
                child.kill()
                child.wait()
                for stream in (child.stdin, child.stdout):
                    if stream is not None:
                        stream.close()

    def open(self, name: str) -> None:
        """Makes the engine's halves. Raises `MissingExtra` where they can't be made for want of a package."""
        check_installed(name)
        try:
            address = self._target.ask({"do": "open", "engine": name})["address"]
            self._source.ask({"do": "open", "engine": name, "address": address})
        except Internal as error:
            if "ImportError" in error.sentence:
                raise MissingExtra(f"{name} does not load ({error.sentence}): {ENGINES[name].install}") from error
            raise

    def transfer(self, name: str) -> Transfer:
        words = {"do": "transfer", "engine": name}
        for child in (self._target, self._source):
            child.tell(words)
        waiting = {child.output: child for child in (self._target, self._source)}
        answers: dict[_Child, dict[str, Any]] = {}
        while waiting:  # in the order in which they come: where one has failed the other may wait for long
            ready, _, _ = select.select(list(waiting), [], [], WAIT_S)
            if not ready:
                raise TimedOut(f"engine {name} did not end a transfer within {WAIT_S:g} s")
            for output in ready:
                child = waiting.pop(output)
                answers[child] = child.answer()
        source, target = answers[self._source], answers[self._target]
        return Transfer(source["seconds"], source["cpu_s"], target["cpu_s"])

    def close(self, name: str) -> None:
        for child in (self._source, self._target):
            child.ask({"do": "close", "engine": name})


class _Child:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None, "it was piped"
        self._process = process
        self.output: IO[bytes] = process.stdout

    def ask(self, words: Mapping[str, object]) -> dict[str, Any]:
        self.tell(words)
        return self.answer()

    def tell(self, words: Mapping[str, object]) -> None:
        assert self._process.stdin is not None, "it was piped"
        self._process.stdin.write(json.dumps(words).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        if not select.select([self.output], [], [], WAIT_S)[0]:
            raise TimedOut(f"an engine did not answer within {WAIT_S:g} s")
        line = self.output.readline()
        if not line:
            raise Internal("a process of the bench has ended")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Internal(str(answer["error"]))
        return answer


def _spawn(role: str, nbytes: int, fabric: Fabric | None, host: str) -> subprocess.Popen[bytes]:
    where = Where(LOOPBACK if fabric is None else fabric.address(host), nbytes, fabric is not None)
    private = "private" if where.private else "loopback"
    module = "worldline.lab.bench.pair.child"
    argv = [sys.executable, "-m", module, role, where.ip, str(nbytes), private]
    environment = dict(_settings(ENGINES.values()))
    if fabric is not None:
        return fabric.popen(host, argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **environment})


def _settings(entries: Iterable[Any]) -> Iterator[tuple[str, str]]:
    for entry in entries:
        yield from entry.environment
