"""`worldline worlds`: what can be opened here, and whether a world of one's own can be moved."""

from __future__ import annotations

import textwrap
from typing import Annotated

import msgspec
from cyclopts import Parameter

from worldline.cli.output import WIDTH, patience, print_json, progress, show, table
from worldline.worlds.options import options_of
from worldline.worlds.registry import build_world, describe_worlds

DOES_NOT_CONFORM = 1


def list_worlds(*, json: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Lists the worlds: those that ship, and those that other packages bring. What each is, and what it lacks here.

    A world of your own is opened as module:factory; see docs/worlds.md.

    Parameters
    ----------
    json: bool
        Print one JSON object.
    """
    found = describe_worlds()
    rows = [(world.name, "ready" if world.missing is None else "lacks a part", world.about) for world in found]
    needs = [f"{world.name} needs: {world.missing}" for world in found if world.missing is not None]
    value = {"worlds": [world.name for world in found], "descriptions": found}
    return show(value, "\n".join([table(("world", "here", "what it is"), rows), *needs]), json)


class Problem(msgspec.Struct, frozen=True):
    """One finding. `cause` is the kind of failure in a few words, `explanation` what it means."""

    check: str
    cause: str
    sentence: str
    explanation: str
    remedy: str


class Verdict(msgspec.Struct, frozen=True):
    """`problems` begin with what brings others about."""

    world: str
    conforms: bool
    checks: list[str]
    blocks: int
    problems: list[Problem]


def check(
    world: str,
    *,
    option: Annotated[tuple[str, ...], Parameter(name=["--option", "-o"], negative="")] = (),
    blocks: int = 6,
    only: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    json: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Runs the conformance suite against a world, and explains each failure. Exit code 0 means that it can be moved.

    Real sessions are opened in real arenas, stepped, copied and looked at. Choose options that make a block cheap.

    Parameters
    ----------
    world: str
        module:factory of your own, or a name that `worldline worlds` lists.
    option: str
        An option of the world, as name=value; may be repeated.
    blocks: int
        How many blocks a session plays: enough for its windows to fill and roll.
    only: str
        One check alone, by its name; may be repeated.
    json: bool
        Print one JSON object.
    """
    from worldline.errors import BadValue
    from worldline.testing.causes import EXPLANATIONS, rank
    from worldline.testing.worlds import WORLD_CHECKS, check_world

    unknown = [name for name in only if name not in WORLD_CHECKS]
    if unknown or blocks < 2:
        raise BadValue(
            f"there is no check {unknown[0]!r}; there are {', '.join(WORLD_CHECKS)}"
            if unknown
            else f"a session must play 2 blocks at least, not {blocks}"
        )
    with patience(f"building {world}"):
        built = build_world(world, options_of(option))
    found = []
    chosen = list(only) or list(WORLD_CHECKS)
    for name in chosen:
        findings = check_world(built, blocks=blocks, checks=[name])
        progress(f"{name}: {'holds' if not findings else 'does not hold'}")
        found += findings
    found.sort(key=lambda finding: rank(finding.cause))
    problems = [Problem(f.check, f.cause, f.sentence, EXPLANATIONS[f.cause], f.remedy) for f in found]
    verdict = Verdict(world, not problems, chosen, blocks, problems)
    if json:
        print_json(verdict)
    else:
        print(_text(verdict))
    return 0 if verdict.conforms else DOES_NOT_CONFORM


def _text(verdict: Verdict) -> str:
    if verdict.conforms:
        return f"{verdict.world} conforms: all of {len(verdict.checks)} checks hold over {verdict.blocks} blocks"
    lines = [f"{verdict.world} does not conform. What brings others about is told first."]
    told: set[str] = set()
    for problem in verdict.problems:
        if problem.cause not in told:
            told.add(problem.cause)
            lines += ["", f"{problem.cause.upper()}", *textwrap.wrap(problem.explanation, WIDTH)]
        lines += textwrap.wrap(
            f"{problem.check}: {problem.sentence}", WIDTH, initial_indent="  - ", subsequent_indent="    "
        )
        lines += textwrap.wrap(f"To mend it: {problem.remedy}", WIDTH, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines)
