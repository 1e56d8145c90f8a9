"""The receipt: what was moved, from where to where, and the proof that the bytes are the same (mission row X6)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from worldline.schema.contract import Tier
from worldline.schema.ids import Epoch, HostId, MoveId, ReceiptId, SessionId


class Mode(StrEnum):
    """How the state travels."""

    FREEZE = "freeze"
    """Stop at a boundary, copy, verify, go on."""
    PRECOPY = "precopy"
    """Copy while the session generates, then freeze at a boundary for the rest."""
    PARK = "park"
    """To a verified image on disk."""
    RESUME = "resume"
    """From a verified image on disk."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """Made by the installing side from its own resident bytes; `source_root == target_root` is the claim.

    Roots and digests are hex, BLAKE3-256. `epoch` is the owner's number that the commit brought into force.
    `pause_s` runs from the last block boundary at the source to the moment at which the target was ready to
    generate. A receipt of a park or a resume has the image on one side: its `source` or `target` is then the image's
    name.

    `signer` is the public key (Ed25519, hex) of the host that made it and `signature` that key's word on all other
    fields. Both are None for a receipt that never leaves its process, and such a one convinces nobody else.
    """

    id: ReceiptId
    move: MoveId
    session: SessionId
    epoch: Epoch
    mode: Mode
    transport: str
    source: str
    target: str
    tier: Tier
    source_plan: str
    target_plan: str
    qualification: str | None
    block: int
    layout: str
    source_root: str
    target_root: str
    leaf_count: int
    state_bytes: int
    bytes_moved: int
    rounds: int
    pause_s: float
    duration_s: float
    made_at_s: float
    made_by: HostId
    signer: str | None = None
    signature: str | None = None
