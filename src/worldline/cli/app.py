"""The table of commands, and what becomes of errors."""

from __future__ import annotations

import sys

from cyclopts import App, CycloptsError

from worldline import __version__
from worldline.cli.output import report_error
from worldline.errors import BadValue, WorldlineError

COMMANDS = {
    "up": "worldline.cli.up:up",
    "open": "worldline.cli.open:open_session",
    "step": "worldline.cli.step:step",
    "move": "worldline.cli.move:move",
    "park": "worldline.cli.park:park",
    "resume": "worldline.cli.resume:resume",
    "close": "worldline.cli.close:close",
    "list": "worldline.cli.list:list_sessions",
    "describe": "worldline.cli.describe:describe",
    "hosts": "worldline.cli.hosts:hosts",
    "worlds": "worldline.cli.worlds:worlds",
    "prove": "worldline.cli.prove:prove",
    "qualify": "worldline.cli.qualify:qualify",
}

HELP = """Exact-state serving for interactive world models: move, park, resume and prove live sessions.

A session is moved bit for bit, or nothing is installed. Start with `worldline up`.
"""

app = App(name="worldline", help=HELP, version=__version__, result_action="return_value")
for _name, _where in COMMANDS.items():
    app.command(_where, name=_name)

receipt = App(name="receipt", help="Receipts, checked offline.")
receipt.command("worldline.cli.receipt:verify", name="verify")
receipt.command("worldline.cli.receipt:show", name="show")
app.command(receipt)

image = App(name="image", help="Images of parked sessions, checked offline.")
image.command("worldline.cli.image:verify", name="verify")
app.command(image)


def run(argv: list[str]) -> int:
    """Runs the command line `argv`. An error of ours becomes its sentence and exit code; any other is a fault of ours."""
    as_json = "--json" in argv
    try:
        code = app(argv, exit_on_error=False, print_error=False)
    except WorldlineError as error:
        return report_error(error, as_json)
    except CycloptsError as error:
        return report_error(BadValue(" ".join(str(error).split())), as_json)
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    return code if isinstance(code, int) else 0
