"""The command line against a real fleet: a whole session's life, told by its own output."""

import json

import pytest

from worldline.cli import main

TINY = "worldline.testing.tiny:TinyWorld"


@pytest.fixture
def worldline(fleet, capsys, monkeypatch):
    """Runs a command with `--json` and returns its object; the exit code must be `code`."""
    monkeypatch.setenv("WORLDLINE_URL", fleet.url)

    def run(*argv, code=0):
        capsys.readouterr()
        assert main([*argv, "--json"]) == code
        return json.loads(capsys.readouterr().out)

    return run


def open_tiny(worldline, *wishes):
    return worldline("open", TINY, "--seed", "3", "--pause-bound", "20s", "--completion", "60s", *wishes)


def test_a_sessions_whole_life(client, fleet, worldline, tmp_path):
    session = open_tiny(worldline, "--host", "a")
    name = session["id"]
    assert (session["status"], session["host"], session["epoch"]) == ("running", "a", 1)
    assert [block["block"] for block in worldline("step", name, "1", "2", "-n", "2")["blocks"]] == [1, 2, 3, 4]

    move = worldline("move", name, "b", "--transport", "shm", "--mode", "freeze")
    assert (move["outcome"], move["receipt"]["target"]) == ("done", "b")
    assert move["receipt"]["source_root"] == move["receipt"]["target_root"]
    saved = tmp_path / "receipt.json"
    assert worldline("receipt", "show", move["receipt"]["id"], "--save", str(saved)) == move["receipt"]
    assert worldline("receipt", "verify", str(saved))["id"] == move["receipt"]["id"]
    keys = tmp_path / "keys"
    signers = {signer["host"]: signer["key"] for signer in worldline("receipt", "keys", "--save", str(keys))["signers"]}
    assert worldline("receipt", "verify", str(saved), "--key", str(keys))["signer"] == signers["b"]
    assert worldline("receipt", "verify", str(saved), "--key", signers["b"])["made_by"] == "b"
    refused = worldline("receipt", "verify", str(saved), "--key", signers["a"], code=5)
    assert refused["error"]["code"] == "UNAUTHENTICATED"
    assert worldline("receipt", "verify", str(saved), "--key", "nonsense", code=2)["error"]["code"] == "BAD_VALUE"

    parked = worldline("park", name)
    assert (parked["status"], parked["host"], parked["epoch"]) == ("parked", None, 3)
    image = fleet.run_dir / "images" / parked["image"]
    assert worldline("image", "verify", str(image))["session"] == name
    assert worldline("step", name, "1", code=4)["error"]["code"] == "SESSION_PARKED"

    assert worldline("resume", name, "c")["host"] == "c"
    assert worldline("step", name, "1")["blocks"][0]["block"] == 5
    assert name in [row["id"] for row in worldline("list")["sessions"]]
    assert worldline("close", name)["status"] == "closed"
    assert worldline("describe", name)["status"] == "closed"
    assert name not in [row["id"] for row in worldline("list")["sessions"]]


def test_frames_can_be_kept_as_pictures(client, worldline, tmp_path):
    name = open_tiny(worldline)["id"]
    blocks = worldline("step", name, "1", "--frames-to", str(tmp_path / "frames"))["blocks"]
    pictures = sorted((tmp_path / "frames").iterdir())
    assert pictures[0].name == f"{blocks[0]['frame']:08d}.jpg"
    assert all(picture.read_bytes().startswith(b"\xff\xd8") for picture in pictures)


def test_a_world_that_tells_a_story_tells_it_on_the_command_line(client, worldline, capsys):
    name = worldline("open", "lm", "-o", "weights=random")["id"]
    (block,) = worldline("step", name, "look around")["blocks"]
    assert block["text"]
    assert main(["step", name, "go on"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("block 2 ")
    assert "".join(lines[2:])


def test_a_planted_fault_is_exit_code_5_and_the_world_goes_on(client, worldline):
    name = open_tiny(worldline, "--host", "a")["id"]
    worldline("step", name, "1")
    assert worldline("move", name, "b", "--fault", "flip", code=5)["error"]["code"] == "CORRUPT"
    assert worldline("step", name, "1")["blocks"][0]["host"] == "a"


def test_what_does_not_exist_is_exit_code_3(client, worldline):
    assert worldline("step", "s-nobody", "1", code=3)["error"]["code"] == "UNKNOWN_SESSION"
    assert worldline("open", "no-such-world", code=3)["error"]["code"] == "UNKNOWN_WORLD"
    assert worldline("receipt", "show", "r-nothing", code=3)["error"]["code"] == "UNKNOWN_RECEIPT"


def test_two_plans_refuse_under_t0_and_move_under_t1_once_they_are_qualified(client, worldline):
    exact = open_tiny(worldline, "--host", "a")["id"]
    assert worldline("move", exact, "d", code=5)["error"]["code"] == "PLAN_MISMATCH"

    loose = open_tiny(worldline, "--host", "a", "--readout-psnr-db-min", "5")["id"]
    worldline("step", loose, "1", "2")
    assert worldline("move", loose, "d", code=5)["error"]["code"] == "PLAN_MISMATCH"
    found = worldline("qualify", "a", "d", "--world", TINY, "--blocks", "12")
    assert found["psnr_db_worst"] <= found["psnr_db_median"]

    receipt = worldline("move", loose, "d")["receipt"]
    assert (receipt["tier"], receipt["qualification"]) == ("T1", found["id"])
    assert receipt["source_root"] == receipt["target_root"], "the state is exact under T1 too"
    strict = open_tiny(worldline, "--host", "a", "--readout-psnr-db-min", "99.5")["id"]
    refusal = worldline("move", strict, "d", code=5 if found["psnr_db_worst"] < 99.5 else 0)
    assert found["psnr_db_worst"] >= 99.5 or refusal["error"]["code"] == "PLAN_MISMATCH"


def test_text_for_people_names_what_they_look_for(client, fleet, capsys, monkeypatch):
    monkeypatch.setenv("WORLDLINE_URL", fleet.url)
    assert main(["open", TINY, "--host", "a", "--twin"]) == 0
    opened = capsys.readouterr().out
    assert "T0, pause <= 1 s" in opened and "twin" in opened
    assert main(["hosts"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["host", "a", "b", "c", "d"]
    assert main(["list"]) == 0
    assert "running" in capsys.readouterr().out
