"""`worldline step`: blocks, one an action."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from worldline.cli.output import Shared, patience, show
from worldline.cli.values import action_of
from worldline.errors import BadValue


def step(
    session: str,
    *actions: str,
    repeat: Annotated[int, Parameter(name=["--repeat", "-n"])] = 1,
    first: int | None = None,
    frames_to: Path | None = None,
    shared: Shared | None = None,
) -> int:
    """Generates one block for each action and prints what came; of a world that tells a story, the story.

    After success every action was applied once, in order. After a failure, the answer's number of the last block says
    how many were; sending the same numbers again with `--first` applies none twice.

    Parameters
    ----------
    session: str
        Its id.
    actions: str
        Names or numbers; `worldline describe` lists the names. None: the world's first action.
    repeat: int
        How many times to send the whole list.
    first: int
        The number of the first action, for a caller that keeps its own count.
    frames_to: Path
        A folder into which each frame is written as JPEG, or as text where the world tells a story.
    """
    shared = shared or Shared()
    if repeat < 1:
        raise BadValue(f"--repeat is 1 or more, not {repeat}")
    wanted = [action_of(action) for action in actions or ("0",)] * repeat
    with shared.client() as client, patience(f"stepping {session}"):
        handle = client.session(session)
        tells = handle.describe().readout.kind == "text"
        blocks = handle.step(*wanted, first=first, frames="jpeg" if tells or frames_to else "none")
    if frames_to is not None:
        frames_to.mkdir(parents=True, exist_ok=True)
        for block in blocks:
            for index, frame in enumerate(block.frames):
                (frames_to / f"{block.frame + index:08d}.{'txt' if tells else 'jpg'}").write_bytes(frame)
    lines = [f"block {b.block}  frame {b.frame}  host {b.host}  {b.step_ms:.1f} ms  {b.digest[:16]}" for b in blocks]
    facts = [block.facts() for block in blocks]
    if tells:
        told = [b"".join(block.frames).decode(errors="replace") for block in blocks]
        facts = [fact | {"text": text} for fact, text in zip(facts, told, strict=True)]
        lines += ["", "".join(told)]
    return show({"blocks": facts}, "\n".join(lines), shared.json)
