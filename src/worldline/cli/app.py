"""The table of commands, and what becomes of errors."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import (
    App,
    Argument,
    CycloptsError,
    MissingArgumentError,
    Parameter,
    UnknownCommandError,
    UnusedCliTokensError,
)

from worldline import __version__
from worldline.cli.output import report_error
from worldline.errors import BadValue, MissingExtra, WorldlineError
from worldline.lab.bench.table import BENCHES
from worldline.lab.experiments.table import EXPERIMENTS
from worldline.lab.instruments.table import INSTRUMENTS

COMMANDS = {
    "up": "Start a fleet on this machine and serve its page.",
    "open": "Open a world.",
    "step": "Generate blocks, one an action.",
    "move": "Move a live session to another host, bit for bit.",
    "park": "Write a session to a verified image and free its host.",
    "resume": "Bring a parked session back.",
    "close": "End a session.",
    "list": "List the sessions.",
    "describe": "Show one session.",
    "hosts": "List the hosts.",
    "faults": "List the faults that can be planted in a move, a park or a resume.",
    "decide": "Decide which way of moving a session keeps its contract.",
    "prove": "Prove that moving changes nothing, against a twin that never moved.",
    "torture": "Break fleets in every known way, and count what must not happen.",
    "qualify": "Measure a pair of plans, so that contracts of tier T1 may move between them.",
}
"""Each lives in the module of its name, which is imported only when it is called."""

INTERRUPTED = 130
"""As shells have it: 128 and the number of the signal."""
FUNCTIONS = {"open": "open_session", "list": "list_sessions"}
"""Where the module's name is a builtin's."""

HELP = """Exact-state serving for interactive world models: move, park, resume and prove live sessions.

A session is moved bit for bit, or nothing is installed. Start with `worldline up`.
"""

app = App(
    name="worldline",
    help=HELP,
    version=__version__,
    result_action="return_value",
    default_parameter=Parameter(negative_iterable=()),
)
for _name, _help in COMMANDS.items():
    app.command(f"worldline.cli.{_name}:{FUNCTIONS.get(_name, _name)}", name=_name, help=_help)

OPERATIONS = {
    "drain": "Empty a host, each session under its contract.",
    "evacuate": "Empty a host soon; what can't be moved is parked.",
    "rebalance": "Even the hosts out.",
    "consolidate": "Park who is idle, pack the others, give emptied hosts back.",
    "operations": "List the operations, or show one.",
    "cancel": "End an operation before its next session.",
    "cordon": "Let a host take no more sessions.",
    "uncordon": "Let a host take sessions again.",
    "prewarm": "Keep a world's engine and arenas ready on a host.",
}
for _name, _help in OPERATIONS.items():
    app.command(f"worldline.cli.operate:{_name}", name=_name, help=_help)

worlds = App(name="worlds", help="List the worlds that can be opened, or check one of your own.")
worlds.command("worldline.cli.worlds:list_worlds", name="list", help="List the worlds that can be opened here.")
worlds.command("worldline.cli.worlds:check", name="check", help="Say whether a world can be moved, and if not, why.")


@worlds.default
def _list_worlds(*, json: Annotated[bool, Parameter(negative="")] = False) -> int:
    from worldline.cli.worlds import list_worlds

    return list_worlds(json=json)


app.command(worlds)

receipt = App(name="receipt", help="Receipts, checked offline.")
receipt.command("worldline.cli.receipt:verify", name="verify", help="Check a receipt offline, and who made it.")
receipt.command("worldline.cli.receipt:show_receipt", name="show", help="Show a receipt, or save it into a file.")
receipt.command("worldline.cli.receipt:show_keys", name="keys", help="List the public keys of the fleet's hosts.")
app.command(receipt)

fleet = App(name="fleet", help="What a fleet needs before it is started.")
fleet.command("worldline.cli.fleet:certs", name="certs", help="Make an authority and a certificate for each host.")
app.command(fleet)

image = App(name="image", help="Images of parked sessions, checked offline.")
image.command("worldline.cli.image:verify", name="verify", help="Check every byte of an image.")
app.command(image)

capacity = App(name="capacity", help="The maths behind the decisions.")
capacity.command(
    "worldline.cli.capacity:check", name="check", help="Compute a file's cases, and compare with what it expects."
)
app.command(capacity)

bench = App(name="bench", help="Measure against peers and the machine's limits, in one run.")
for _name, _entry in BENCHES.items():
    bench.command(f"worldline.cli.bench:bench_{_name}", name=_name, help=_entry.summary)
app.command(bench)

experiment = App(
    name="experiment", help="Ask a question of real or simulated fleets, and write a report of the answer."
)
for _name, _entry in EXPERIMENTS.items():
    experiment.command(f"worldline.cli.experiment:experiment_{_name}", name=_name, help=_entry.summary)
app.command(experiment)

lab = App(name="lab", help="Look into an engine's state: what of it changes, what it is, and what is lost without it.")
for _name, _entry in INSTRUMENTS.items():
    lab.command(f"worldline.cli.lab:lab_{_name}", name=_name, help=_entry.summary)
app.command(lab)


EXTRAS = {"torch": "torch", "safetensors": "torch", "matplotlib": "lab", "transformers": "lm", "diffusers": "diffusers"}
"""Packages that parts of the command line import, and the extra that each comes with."""


def run(argv: list[str]) -> int:
    """Runs the command line `argv`. An error of ours becomes its sentence and exit code; any other is a fault of
    ours.
    """
    as_json = "--json" in argv
    try:
        code = app(argv, exit_on_error=False, print_error=False)
    except WorldlineError as error:
        return report_error(error, as_json)
    except CycloptsError as error:
        return report_error(BadValue(_misread(error)), as_json)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        said = f"this needs the package {error.name}: pip install 'worldline[{extra}]'"
        return report_error(MissingExtra(said, package=error.name), as_json)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    return code if isinstance(code, int) else 0


def _misread(error: CycloptsError) -> str:
    """What of the words was not understood, and where help is."""
    words = " ".join(("worldline", *(error.command_chain or ())))
    match error:
        case UnknownCommandError(unused_tokens=[word, *_], app=App() as asked):
            said = f"there is no `{words} {word}`; there are {', '.join(name for name in asked if name[0] != '-')}"
        case UnusedCliTokensError(unused_tokens=[_, *_] as over):
            said = f"`{words}` takes nothing more where {' '.join(over)!r} stands"
        case MissingArgumentError(argument=Argument() as lacking, keyword=None) if not lacking.tokens:
            said = f"`{words}` needs {lacking.name.lstrip('-').upper()}"
        case _:
            said = " ".join(str(error).split()).rstrip(".?")
    return f"{said}; see `{words} --help`"
