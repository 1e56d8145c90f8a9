"""The import contracts hold, a planted violation of each is seen to fail, and the base install needs no torch."""

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "worldline"
PURE = {"schema", "wire", "migration", "control", "capacity"}


def lint(source: Path) -> subprocess.CompletedProcess[str]:
    """Run lint-imports on the package inside `source`, found there before the installed one."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"]
    return subprocess.run(
        [*command, str(ROOT / ".importlinter")], cwd=source, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture
def tree(tmp_path):
    shutil.copytree(
        PACKAGE, tmp_path / "worldline", ignore=shutil.ignore_patterns("__pycache__", "*.safetensors", "page")
    )
    return tmp_path


def plant(tree: Path, module: str, line: str) -> None:
    path = tree / "worldline" / module
    path.write_text(f"{path.read_text() if path.exists() else ''}\n{line}\n")


def test_the_tree_keeps_its_contracts(tree):
    result = lint(tree)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("schema/planted.py", "import worldline.control", "Imports point down"),
        ("transport/planted.py", "import worldline.worlds", "Imports point down"),
        ("errors.py", "import worldline.units", "The error tree stands alone"),
        ("snapshot/planted.py", "import time", "Only worldline.clock reads time"),
        ("service/planted.py", "import torch", "Torch is imported by snapshots"),
        ("transport/planted.py", "import worldline.snapshot.planted_torch", "The data plane and the verifiers"),
        ("migration/planted.py", "import worldline.verify.planted_sockets", "Decisions, the protocol and the formats"),
        ("control/planted.py", "def late():\n    import asyncio", "Decisions, the protocol and the formats"),
        ("verify/reader.py", "import worldline.verify.planted_sockets", "The second reader shares nothing"),
        ("verify/reader.py", "import worldline.schema", "The second reader shares nothing"),
        ("unnamed/__init__.py", "", "Imports point down"),
    ],
)
def test_a_planted_violation_fails(tree, module, line, contract):
    (tree / "worldline" / "unnamed").mkdir() if module.startswith("unnamed") else None
    plant(tree, "snapshot/planted_torch.py", "import torch")
    plant(tree, "verify/planted_sockets.py", "import socket")
    plant(tree, module, line)
    result = lint(tree)
    assert result.returncode != 0
    assert any(contract in row and "BROKEN" in row for row in result.stdout.splitlines()), result.stdout


def test_every_pure_package_is_held_to_the_contract_of_purity():
    config = configparser.ConfigParser()
    config.read(ROOT / ".importlinter")
    named = set(config["importlinter:contract:pure"]["source_modules"].split())
    present = {f"worldline.{name}" for name in PURE if (PACKAGE / name).is_dir()}
    assert named == present


def test_the_base_install_imports_no_torch():
    modules = [f"worldline.{name}" for name in ("cli", "service", "control", "migration", "transport", "verify")]
    code = f"import importlib, sys\nfor name in {modules}: importlib.import_module(name)\nprint('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "False"
