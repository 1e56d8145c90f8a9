"""Engines that are no packages: checkouts of public repositories, read where the user has them and left as they are.

None of an engine's code is part of this project. A checkout is looked for in one folder, which whoever runs the hosts
chooses: options come from clients, and a client's words never name a path, least of all one that code is run from.
"""

from worldline.worlds.checkouts.find import FOLDER, PLACES, Checkout, advice, find_checkout, has_checkout
from worldline.worlds.checkouts.load import Edits, Engine, load_engine

__all__ = [
    "FOLDER",
    "PLACES",
    "Checkout",
    "Edits",
    "Engine",
    "advice",
    "find_checkout",
    "has_checkout",
    "load_engine",
]
