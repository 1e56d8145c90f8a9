"""One of the two processes: `python -m worldline.lab.bench.pair.child ROLE IP NBYTES PRIVATE`.

Reads one JSON command a line and answers each with one line: `open` makes an engine's half, `transfer` runs it once
and tells wall and processor time, `close` ends it. Ends with its input.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
from typing import Any

from worldline.clock import SystemClock
from worldline.lab.bench.pair.engine import ENGINES, SourceHalf, TargetHalf, Where


def main(argv: list[str]) -> None:
    role, ip, nbytes, private = argv
    where = Where(ip, int(nbytes), private == "private")
    halves: dict[str, Any] = {}
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a peer's library prints is no answer
    for line in sys.stdin:
        words = json.loads(line)
        try:
            answer = _carry_out(words, role, where, halves)
        except Exception as error:  # noqa: BLE001  the command's root: the parent is told, and decides
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")


def _carry_out(words: dict[str, str], role: str, where: Where, halves: dict[str, Any]) -> dict[str, object]:
    name = words["engine"]
    match words["do"]:
        case "open":
            module, _, kind = ENGINES[name].where.partition(":")
            engine = getattr(importlib.import_module(module), kind)
            if role == "target":
                target: TargetHalf = engine.target(where)
                halves[name] = target
                return {"address": target.address}
            halves[name] = engine.source(where, words["address"])
            return {}
        case "transfer":
            return _timed(halves[name], role)
        case _:
            halves.pop(name).close()
            return {}


def _timed(half: TargetHalf | SourceHalf, role: str) -> dict[str, object]:
    clock = SystemClock()
    began_s, cpu_s = clock.monotonic_s(), _cpu_s()
    if role == "target":
        half.serve()  # type: ignore[union-attr]
    else:
        half.send()  # type: ignore[union-attr]
    return {"seconds": clock.monotonic_s() - began_s, "cpu_s": _cpu_s() - cpu_s}


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)  # peers' threads may not want to end
