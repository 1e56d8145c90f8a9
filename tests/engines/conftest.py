"""Engines whose code is a checkout. They run where the folder of checkouts has theirs: `make engines ENGINES=DIR`."""

from importlib.util import find_spec

import pytest

from worldline.worlds.checkouts import advice, has_checkout


@pytest.fixture(scope="session")
def needs_checkout():
    """Skips, with what to do, where a world's engine isn't here."""

    def check(world):
        if not has_checkout(world):
            pytest.skip(f"the code of {world} is not here: {advice(world)}")
        if find_spec("einops") is None:
            pytest.skip(f"{world} needs einops: pip install 'worldline[engines]'")

    return check
