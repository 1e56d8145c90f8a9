"""The faults of the data plane by their names in `worldline.schema.fault`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial

from worldline.errors import BadValue
from worldline.schema.fault import Fault as Planted
from worldline.schema.fault import FaultName
from worldline.transport.faults import (
    Cut,
    Delay,
    Drop,
    Duplicate,
    FaultKind,
    FaultyTransport,
    Flip,
    Lie,
    Reorder,
    Stall,
    Truncate,
)
from worldline.transport.protocol import Transport
from worldline.transport.struck import StruckRecord

log = logging.getLogger(__name__)

PLANTED: Mapping[FaultName, FaultKind] = {
    FaultName.FLIP: Flip,
    FaultName.LIE: Lie,
    FaultName.CUT: Cut,
    FaultName.STALL: Stall,
    FaultName.DROP: Drop,
    FaultName.TRUNCATE: Truncate,
    FaultName.DELAY: Delay,
    FaultName.DUPLICATE: Duplicate,
    FaultName.REORDER: Reorder,
}
"""The faults of `worldline.schema.fault` that are planted here."""


def plant(transport: Transport, fault: Planted) -> Transport:
    """The transport with this fault in each of its links. Raises `BadValue` for one that is not of the data plane."""
    kind = PLANTED.get(fault.name)
    if kind is None:
        raise BadValue(f"{fault.name} is no fault of the data plane; they are {', '.join(PLANTED)}")
    if fault.step is not None:
        return FaultyTransport(transport, partial(StruckRecord, planted=fault), fault.seed)
    log.warning("planted: %s", fault)
    return FaultyTransport(transport, kind, fault.seed)
