"""Reading, copying, comparing and coding memory at the machine's speed: in C where it was built, else without.

C is built at install where a compiler is present. `WORLDLINE_KERNEL` decides otherwise: `python` never uses C, `c`
refuses to go without. Both give the same bytes; `backend` says which is used, and why not the other.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from worldline.errors import BadValue, MissingExtra
from worldline.kernel.native import Native
from worldline.kernel.operations import Kernel
from worldline.kernel.plain import Plain

VARIABLE = "WORLDLINE_KERNEL"
CHOICES = ("auto", "c", "python")


@dataclass(frozen=True, slots=True)
class Backend:
    """`name` is the kernel's, `reason` why it isn't C; None where it is."""

    name: str
    reason: str | None


@cache
def kernel() -> Kernel:
    """The kernel of this process. Raises `MissingExtra` where C is asked for and not there."""
    return _chosen()[0]


@cache
def backend() -> Backend:
    """Which kernel this process uses."""
    chosen, reason = _chosen()
    return Backend(chosen.name, reason)


@cache
def _chosen() -> tuple[Kernel, str | None]:
    wanted = os.environ.get(VARIABLE, "auto")
    if wanted not in CHOICES:
        raise BadValue(f"{VARIABLE} is one of {', '.join(CHOICES)}, not {wanted[:40]!r}")
    if wanted == "python":
        return Plain(), f"{VARIABLE} asks for python"
    found = sorted(Path(__file__).parent.glob("_kernel*.so"))
    reason = "it was not built: no C compiler was there at install"
    if found:
        try:
            return Native(found[0]), None
        except OSError as error:
            reason = str(error)
    if wanted == "c":
        raise MissingExtra(f"the C kernel can't be used: {reason}; have a C compiler and install worldline anew")
    return Plain(), reason
