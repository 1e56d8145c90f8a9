"""What tests of worlds share."""

from pathlib import Path

import pytest

from worldline.worlds.weights import FOLDER


@pytest.fixture
def weights_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The host's folder of weights, empty."""
    folder = tmp_path / "weights"
    folder.mkdir()
    monkeypatch.setenv(FOLDER, str(folder))
    return folder
