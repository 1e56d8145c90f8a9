"""The process's random generators: torch's, numpy's and Python's."""

from __future__ import annotations

import random

import numpy as np
import torch


def seed_globals(seed: int) -> None:
    """Sets all three."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def global_state() -> tuple[bytes, str, int]:
    """What they would draw next."""
    return torch.get_rng_state().numpy().tobytes(), _numpy_state(), hash(random.getstate())


def _numpy_state() -> str:
    state = np.random.get_state(legacy=False)
    return repr((state["state"]["pos"], state["state"]["key"].tolist(), state["has_gauss"]))
