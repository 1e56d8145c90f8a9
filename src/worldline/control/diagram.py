"""The protocol's diagrams and tables in docs/protocol.md, written from the tables that the machines run on.

`python -m worldline.control.diagram docs/protocol.md` rewrites what is between the markers; a test holds both equal.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from worldline.control import handoff_table, lifecycle
from worldline.migration import source_words, target_words
from worldline.migration.story import Table

_MARKED = re.compile(r"(<!-- generated: ([a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def diagram(table: Table[Any], first: StrEnum) -> str:
    """A Mermaid state diagram: an arrow for each change of phase, with the events that cause it."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for phase, events in table.items():
        for event, leads_to in events.items():
            for after in leads_to:
                if after is not phase:
                    arrows.setdefault((_state(phase), _state(after)), []).append(event.__name__)
    lines = [f"    [*] --> {_state(first)}"]
    lines += [f"    {before} --> {after}: {', '.join(names)}" for (before, after), names in arrows.items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```", ""])


def transitions(table: Table[Any]) -> str:
    """A Markdown table: what each event does in each phase. What is absent raises `IllegalTransition`."""
    lines = ["| phase | event | leads to |", "|---|---|---|"]
    for phase, events in table.items():
        grouped: dict[tuple[StrEnum, ...], list[str]] = {}
        for event, leads_to in events.items():
            grouped.setdefault(leads_to, []).append(event.__name__)
        for leads_to, names in grouped.items():
            after = "stays" if leads_to == (phase,) else ", ".join(other.value for other in leads_to)
            lines.append(f"| {phase.value} | {', '.join(names)} | {after} |")
    return "\n".join([*lines, ""])


def verbs() -> str:
    """A Markdown table: each verb in each status, with the status that follows or the error that answers."""
    head = ["status", *(verb.value for verb in lifecycle.Verb)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for status, answers in lifecycle.LEGAL.items():
        cells = [_answer(answers[verb]) for verb in lifecycle.Verb]
        lines.append("| " + " | ".join([status.value, *cells]) + " |")
    return "\n".join([*lines, ""])


def _state(phase: StrEnum) -> str:
    return phase.value.upper()


def _answer(answer: lifecycle.Answer) -> str:
    return answer.value if isinstance(answer, lifecycle.Status) else answer.code


PARTS: Mapping[str, Callable[[], str]] = {
    "source diagram": lambda: diagram(source_words.TRANSITIONS, source_words.Phase.CONNECTING),
    "source table": lambda: transitions(source_words.TRANSITIONS),
    "target diagram": lambda: diagram(target_words.TRANSITIONS, target_words.Phase.WAITING),
    "target table": lambda: transitions(target_words.TRANSITIONS),
    "handoff diagram": lambda: diagram(handoff_table.TRANSITIONS, handoff_table.Phase.NEW),
    "handoff table": lambda: transitions(handoff_table.TRANSITIONS),
    "verbs": verbs,
}


def parts_in(text: str) -> Iterator[str]:
    """Names of the marked parts of a document, in order."""
    return (match[2] for match in _MARKED.finditer(text))


def rewrite(text: str) -> str:
    """The document with every marked part written anew. Raises `KeyError` for a part of an unknown name."""
    return _MARKED.sub(lambda match: match[1] + "\n" + PARTS[match[2]]() + "\n" + match[3], text)


def main(arguments: list[str]) -> int:
    for name in arguments:
        path = Path(name)
        path.write_text(rewrite(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
