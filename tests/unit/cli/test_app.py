"""The command line's own part: words, help, exit codes. What the verbs do is in tests/scenarios/test_cli.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from worldline.cli import main
from worldline.cli.app import COMMANDS
from worldline.cli.operate import _watch
from worldline.cli.values import contract_of
from worldline.errors import BadValue, MissingExtra
from worldline.runtime.fleet import Fleet
from worldline.runtime.fleet_plan import FleetPlan
from worldline.schema.contract import Contract, Tier
from worldline.worlds.options import options_of

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "command",
    [
        *COMMANDS,
        "receipt verify",
        "receipt show",
        "image verify",
        "capacity check",
        "bench",
        "experiment",
        "experiment composed",
        "experiment overload",
        "lab",
        "lab rewrite",
    ],
)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    assert "Usage: worldline" in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_in_the_documents(command: str) -> None:
    assert f"`{command}" in (ROOT / "docs" / "cli.md").read_text()


@pytest.mark.parametrize(
    "argv",
    [
        ["no-such-command"],
        ["open"],
        ["move", "s-1"],
        ["open", "reference", "--horizon", "400 parsecs"],
        ["open", "reference", "--horizon", "400ms", "--pause-bound", "1s"],
        ["open", "reference", "-o", "nonsense"],
        ["prove", "--moves", "0"],
        ["prove", "--mode", "teleport"],
        ["move", "s-1", "b", "--mode", "teleport"],
        ["prove", "--world", "reference", "--bytes", "1MB"],
        ["up", "--hosts", "0"],
        ["up", "--plan", "nonsense"],
        ["up", "--plan", "c=avx3"],
        ["up", "--plan", "z=default"],
        ["up", "--dir", "/dev/null/worldline"],
    ],
)
def test_wrong_words_are_exit_code_2_and_one_json_object(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*argv, "--json"]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["code"] == "BAD_VALUE"
    assert err.splitlines()[-1].startswith("worldline: BAD_VALUE: ")


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["close", "s-1", "x", "y"], "`worldline close` takes nothing more where 'x y' stands"),
        (["open"], "`worldline open` needs WORLD"),
        (["capacity", "guess"], "there is no `worldline capacity guess`; there are check"),
        (["up", "--host", "3"], "Unknown option: --host. Did you mean --hosts"),
    ],
)
def test_words_that_are_not_understood_are_told_with_where_help_is(
    argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    assert sentence in (said := capsys.readouterr().err)
    assert "--help`" in said


def test_no_line_of_the_faults_is_wider_than_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["faults"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert any(line.startswith("kill-target ") for line in lines)


def test_no_gateway_is_said_and_is_not_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--url", "http://127.0.0.1:9", "--json"]) == 6
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "CONTROLLER_GONE"


def test_a_file_that_is_no_receipt_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "receipt.json"
    path.write_text("{}")
    assert main(["receipt", "verify", str(path), "--json"]) == 5
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "MALFORMED"


@pytest.mark.parametrize("kind", ["receipt", "image"])
def test_a_file_that_is_not_there_is_wrong_words(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([kind, "verify", "no-such-file"]) == 2
    assert "no-such-file" in capsys.readouterr().err


def test_contracts_as_people_write_them() -> None:
    assert contract_of("400ms", None, None, None) == Contract.horizon(0.4)
    assert contract_of(None, "20ms", "3s", None) == Contract(pause_bound_s=0.02, completion_deadline_s=3.0)
    assert contract_of(None, None, None, None) == Contract()
    assert contract_of(None, None, None, 35.0).tier is Tier.T1


def test_options_read_as_what_they_look_like() -> None:
    pairs = ("bytes=256MB", "vae=false", "layers=3", "share=0.5", "text=a=b")
    assert options_of(pairs) == {"bytes": "256MB", "vae": False, "layers": 3, "share": 0.5, "text": "a=b"}
    with pytest.raises(BadValue):
        options_of(("=x",))


def test_who_interrupts_the_watch_of_an_operation_is_told_that_it_goes_on(capsys):
    class Interrupted:
        def operation(self, operation):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _watch(Interrupted(), "o-1", as_json=False)
    assert "o-1 goes on" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--port", "80000"], ["--port", "-1"], ["--memory", "4"], ["--memory", "10B"]], ids=" ".join
)
def test_a_fleet_that_could_not_start_is_refused_at_once(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "--json", *words]) == BadValue.exit_code
    assert json.loads(capsys.readouterr().out)["error"]["code"] == BadValue.code


@pytest.mark.parametrize("words", [["lab", "rewrite"], ["up", "--check"]], ids=" ".join)
def test_a_package_that_is_missing_is_an_extra_to_install(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacks_it(*_: object, **__: object) -> int:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr("worldline.cli.app.app", lacks_it)
    assert main(words) == MissingExtra.exit_code
    assert "pip install 'worldline[torch]'" in capsys.readouterr().err


def test_a_fleet_without_torch_is_not_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("worldline.runtime.fleet.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match="torch"), Fleet.start(FleetPlan(hosts=("a",), run_dir=tmp_path / "run")):
        pass
    assert not (tmp_path / "run").exists()
