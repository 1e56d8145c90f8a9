"""What the processes of a fleet say to each other, over Unix sockets (`runtime.rpc`), as MessagePack.

Three conversations: controller to host, gateway to host (play), gateway to controller (verbs). A request has one
answer, or an error record of `worldline.errors`. A notice has none. Hosts and controller listen; whoever needs them
connects, so each may restart alone.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from worldline.runtime.error_record import ErrorRecord
from worldline.schema.contract import Contract
from worldline.schema.plan import Plan, Qualification
from worldline.schema.receipt import Mode, Receipt
from worldline.worlds.protocol import OptionValue, Readout


class Message(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Base of all; the class name is the tag."""


# ---- values that several messages carry


class SessionSpec(msgspec.Struct, frozen=True):
    """How a session was opened: enough to open an equal one."""

    world: str
    seed: int
    options: dict[str, OptionValue]
    contract: Contract


class HostFacts(msgspec.Struct, frozen=True):
    """One host as it describes itself."""

    host: str
    pid: int
    generation: str
    """Random, new at each start of the process: an answer of another generation is another host's."""
    memory_bytes: int
    memory_used_bytes: int
    worlds: list[str]
    transports: list[str]
    sessions: list[SessionFacts]
    signer: str | None = None
    """The public key (Ed25519, hex) with which it signs the receipts that it makes."""
    slot_bytes: list[int] = []
    """Of each prewarmed slot its size: in use, and yet there for a session that needs exactly this."""
    lane_bytes_per_s: float | None = None
    """What its verification lanes digest, by their own measurement."""
    arrivals: list[str] = []
    """Moves for which it keeps memory: their sessions are to come, and are nobody's here yet."""

    @property
    def free_bytes(self) -> int:
        return self.memory_bytes - self.memory_used_bytes

    def room_bytes(self, arena_bytes: int) -> int:
        """What there is for sessions of this arena: free memory, and the slots that were prewarmed for their like."""
        return self.free_bytes + self.slot_bytes.count(arena_bytes) * arena_bytes


class SessionFacts(msgspec.Struct, frozen=True):
    """One session as its host sees it."""

    session: str
    epoch: int
    spec: SessionSpec
    block: int
    number: int
    """The last action number applied; 0 before the first."""
    frame: int
    state_bytes: int
    frozen: bool
    plan: Plan
    block_ms_median: float | None
    readout: Readout
    actions: list[str]
    """The world's, which the controller keeps in its record for the page and for clients."""
    poisoned: str | None = None
    acted_at_s: float = 0.0
    """Wall clock: when its last action was queued, or it came here."""
    arena_bytes: int = 0
    """What its host reserves for it."""


class Cordon(msgspec.Struct, frozen=True):
    """A host that takes no session any more, unless it is asked back."""

    since_s: float
    released: bool
    """Emptied by a consolidation and given back: it is taken into use again when the others are full."""


class Endpoint(msgspec.Struct, frozen=True):
    """Where and how a source reaches its target for one attempt."""

    transport: str
    address: str
    key: bytes


# ---- controller -> host


class Describe(Message, frozen=True):
    """-> `HostFacts`."""


class PlanOf(Message, frozen=True):
    """-> `Plan`. Builds the world if this host has not yet, which may take seconds."""

    spec: SessionSpec


class OpenSession(Message, frozen=True):
    """-> `SessionFacts`. Opens at block 0. Refused with `NoCapacity`; never replaces a session of the same id."""

    session: str
    epoch: int
    spec: SessionSpec
    witness: bool
    """Digest the whole state after every block, so that a twin can be compared."""


class CloseSession(Message, frozen=True):
    """-> None. Frees everything. Idempotent for an unknown session."""

    session: str
    epoch: int


class RemoveImage(Message, frozen=True):
    """-> None. The file of an image that the record names no more. Idempotent. Refused with `RecordFailed`."""

    image: str


class PrepareTarget(Message, frozen=True):
    """-> `Endpoint`. Reserves a fresh arena for this attempt and listens. Refused with `PlanMismatch`, `NoCapacity`."""

    move: str
    session: str
    epoch: int
    """The epoch in force now, the source's."""
    spec: SessionSpec
    witness: bool
    source: str
    target: str
    mode: Mode
    transport: str
    state_bytes: int
    source_plan: Plan
    qualification: Qualification | None
    fault: str | None = None


class RunSource(Message, frozen=True):
    """-> `SourceSealed` when the source is frozen and sealed; `Progress` notices before that. The session stays
    frozen after it.

    On any error the source plays on by itself before the error is answered. Whoever asks last has the notices.
    """

    move: str
    session: str
    epoch: int
    mode: Mode
    endpoint: Endpoint | None
    """None: from a controller that has begun anew. Refused with `UnknownMove` where the attempt is not under way."""
    fault: str | None = None
    grant_bytes: int | None = None
    """The most that one `Grant` lets through: nothing is sent without one. None: no grants are needed."""
    codec: str = "auto"


class Grant(Message, frozen=True):
    """Notice: the source of this move may send, at this rate and for so long from when it hears of it; then it needs
    another one. A later grant takes the place of an earlier one.
    """

    move: str
    bytes_per_s: float
    for_s: float


class SourceSealed(Message, frozen=True):
    """The source's side of a receipt. `frozen_at_s` is on the machine's monotonic clock, which processes of one
    machine share.
    """

    root: str
    block: int
    number: int
    frozen_at_s: float
    bytes_moved: int
    rounds: int


class AwaitPrepared(Message, frozen=True):
    """-> `Receipt` when the target has verified its resident bytes against the seal; else an error, and the arena is
    already zeroed and freed.
    """

    move: str


class SourceEnded(Message, frozen=True):
    """Notice: the source's process has ended. A target to which it never connected waits for it no longer; without
    this it would until its deadline.
    """

    move: str


class Activate(Message, frozen=True):
    """-> `SessionFacts`. The target owns the session from now on. Idempotent for the same move and epoch."""

    move: str
    epoch: int


class Discard(Message, frozen=True):
    """-> None. The target forgets the attempt: link fenced, arena zeroed and freed. Idempotent."""

    move: str


class Retire(Message, frozen=True):
    """-> None. The source forgets the session: engine thread joined, arena unmapped. Idempotent."""

    move: str
    session: str
    epoch: int
    """The epoch that is over."""


class Thaw(Message, frozen=True):
    """-> None. The attempt is off: the source plays on. Idempotent. A process that knows neither the attempt nor the
    session answers UNKNOWN_SESSION: the one that was to play on has ended.
    """

    move: str
    session: str
    epoch: int | None = None
    """The new epoch under which it plays on; None: the one it has. Every order of an epoch before is without effect."""


class WriteImage(Message, frozen=True):
    """-> `Receipt`, with the image as its target. Freezes at a boundary, writes and fsyncs a verified image, stays
    frozen until `Retire` or `Thaw`.
    """

    move: str
    session: str
    epoch: int
    image: str
    """A file name, no path; the host knows the directory."""
    fault: str | None = None


class LoadImage(Message, frozen=True):
    """-> `Receipt`. Reads and verifies an image into a fresh arena, to be activated or discarded by the move's id.

    Refused with `Corrupt`, `Malformed`, `VersionUnknown`, `ByteOrderRefused`, `WrongSession`, `PlanMismatch`,
    `NoCapacity`.
    """

    move: str
    session: str
    epoch: int
    spec: SessionSpec
    witness: bool
    image: str
    qualification: Qualification | None
    written_under: int | None = None
    """The epoch in force when the image was written; None: the one before `epoch`."""
    fault: str | None = None


class Prewarm(Message, frozen=True):
    """-> `Prewarmed`. Builds the engine, runs its canary, and keeps so many arenas whose pages are in place: sessions
    that come here take them. Slots beyond that number are given back. Refused with `NoCapacity`.
    """

    world: str
    options: dict[str, OptionValue]
    slots: int


class Prewarmed(Message, frozen=True):
    """What a prewarm has made ready, and what that took."""

    slots: int
    arena_bytes: int
    """Of each."""
    engine_s: float
    """Until the engine stood and its canary had run; near 0 where it stood already."""
    arenas_s: float
    """Until the pages of the new slots were in place."""


class FlipBit(Message, frozen=True):
    """-> None. Sabotage for proofs: flips one bit of the session's live state at a boundary. Only where faults are
    allowed.
    """

    session: str
    bit: int
    """Modulo the state's bits."""


# ---- host -> controller, host -> gateway: notices


class Progress(Message, frozen=True):
    """One step of a move at its source."""

    move: str
    round: int
    bytes_moved: int
    dirty_bytes: int
    frozen: bool
    note: str
    sent_bytes_per_s: float | None = None
    """Of a move that needs grants: what it has sent, over the time in which it might."""


class SessionFailed(Message, frozen=True):
    """The engine raised inside a block: the session is poisoned and generates no more."""

    session: str
    epoch: int
    sentence: str


# ---- gateway -> host: play


class Attach(Message, frozen=True):
    """-> `SessionFacts`. Blocks of this session are sent to this connection from now on. Refused with `StaleEpoch`."""

    session: str
    epoch: int
    frames: bool = True
    raw: bool = False
    """Also send the raw readout bytes (proofs), not only the encoded ones."""
    after: int | None = None
    """First send again the blocks after this one, as far as the host still has them: for a connection that was lost."""


class Detach(Message, frozen=True):
    """-> None."""

    session: str


class Act(Message, frozen=True):
    """Notice. One action. A number already applied or already queued is dropped; one that jumps is answered by
    `Rejected`.
    """

    session: str
    epoch: int
    number: int
    action: int


class Rejected(Message, frozen=True):
    """Notice, host to gateway: an action was not taken; `expected` is the next number the host will take."""

    session: str
    epoch: int
    number: int
    expected: int
    code: str
    sentence: str


class Block(Message, frozen=True):
    """Notice, host to gateway: one generated block, in order."""

    session: str
    epoch: int
    block: int
    number: int
    """The action number this block applied."""
    frame: int
    """Number of its first frame."""
    frames: int
    encoding: str
    """`jpeg` (each frame: u32 little-endian length, bytes), `text` (UTF-8)."""
    height: int
    width: int
    payload: bytes
    digest: str
    """BLAKE3-256 (hex) of the raw readout bytes."""
    root: str | None
    """Content root of the whole state after this block, where the session has a witness."""
    raw: bytes | None
    step_ms: float


# ---- gateway -> controller: verbs, and what the controller tells


class OpenRequest(Message, frozen=True):
    """-> `Session`."""

    world: str
    seed: int
    options: dict[str, OptionValue]
    contract: Contract
    host: str | None
    twin: bool
    """Also open a second, equal session on another host, which never moves."""
    session: str | None = None
    """An id wished for; else one is drawn."""


class MoveRequest(Message, frozen=True):
    """-> `Move` when the move has ended, refused or done."""

    session: str
    host: str
    mode: Mode
    transport: str
    fault: str | None = None
    codec: str = "auto"
    """One of `transport.coding.CHOICES`."""


class ParkRequest(Message, frozen=True):
    """-> `Session`."""

    session: str
    fault: str | None = None
    asleep: bool = False
    """Let it be resumed when its player acts."""


class ResumeRequest(Message, frozen=True):
    """-> `Session`."""

    session: str
    host: str | None
    fault: str | None = None


class CloseRequest(Message, frozen=True):
    """-> `Session`."""

    session: str


VerbRequest: TypeAlias = OpenRequest | MoveRequest | ParkRequest | ResumeRequest | CloseRequest


class SabotageRequest(Message, frozen=True):
    """-> None. See `FlipBit`."""

    session: str
    bit: int


class ListSessions(Message, frozen=True):
    """-> list of `Session`."""


class ListHosts(Message, frozen=True):
    """-> list of `Host`."""


class GetSession(Message, frozen=True):
    """-> `Session`. Raises `UnknownSession`."""

    session: str


class GetMove(Message, frozen=True):
    """-> `Move`. Raises `UnknownMove`."""

    move: str


class Signer(msgspec.Struct, frozen=True):
    """A public key (Ed25519, hex) under which a host of this fleet has signed receipts, as the controller recorded it
    when that host first answered with it. A host that lost its key has several.
    """

    host: str
    key: str
    first_seen_at_s: float


class ListSigners(Message, frozen=True):
    """-> list of `Signer`, oldest first."""


class GetReceipt(Message, frozen=True):
    """-> `Receipt`. Raises `UnknownReceipt`."""

    receipt: str


class Keyed(Message, frozen=True):
    """A verb with an idempotency key -> what the verb answers. The same key and verb again get the recorded answer;
    the same key with another verb is refused with `KeyReused`.
    """

    key: str
    verb: VerbRequest


class Qualify(Message, frozen=True):
    """-> None. Records a pair of plans measured for T1; the newest of an ordered pair counts."""

    qualification: Qualification


class Subscribe(Message, frozen=True):
    """-> `Snapshot`, and then `SessionChanged`, `MoveChanged`, `HostChanged` notices."""


class Session(Message, frozen=True):
    """A session as the controller's record has it, and as the HTTP API shows it."""

    id: str
    world: str
    seed: int
    options: dict[str, OptionValue]
    contract: Contract
    status: str
    """`running`, `moving`, `parked`, `lost`, `closed`."""
    host: str | None
    epoch: int
    cut_block: int
    """The block at which this epoch began: the owner before it may not show a later one."""
    readout: Readout
    actions: list[str]
    plan: str
    """Digest of the kernel plan under which it runs, or ran last."""
    image: str | None
    twin: str | None
    """The session that mirrors this one and never moves."""
    twin_of: str | None
    move: str | None
    """The move in progress."""
    receipts: list[str]
    why: str | None
    """Why it is lost; of one that is not, why its last change of owner was taken back."""
    asleep: bool = False
    """Parked because its player was idle: it is resumed when that player acts."""
    arena_bytes: int = 0
    """What a host reserves for it; 0 in a record that is older than this fact."""


class Move(Message, frozen=True):
    """A move, park or resume from the journal."""

    id: str
    session: str
    mode: Mode
    transport: str
    source: str | None
    target: str | None
    phase: str
    outcome: str | None
    """`done`, `refused`, `returned`, `lost`, or None while it runs. `returned`: the target ended after the commit and
    before it was known to play, and the session is where it was, two epochs later.
    """
    error: ErrorRecord | None
    """Why it was refused."""
    receipt: Receipt | None
    story: list[str]
    """What happened, a line each, for people."""
    started_at_s: float
    ended_at_s: float | None
    asleep: bool = False
    """The session was asleep when this began, and is again if it is taken back."""


class Host(Message, frozen=True):
    """A host as the controller sees it."""

    id: str
    alive: bool
    facts: HostFacts | None
    plan_digest: str | None
    """`Plan.host_digest`, once the host has built a world: hosts of equal digests can exchange sessions."""
    cordon: Cordon | None = None
    gone: bool = False
    """Its process is known to have ended; one that is neither alive nor gone is not reached."""


class Snapshot(Message, frozen=True):
    sessions: list[Session]
    hosts: list[Host]
    moves: list[Move]


class SessionChanged(Message, frozen=True):
    session: Session


class MoveChanged(Message, frozen=True):
    move: Move


class HostChanged(Message, frozen=True):
    host: Host


ToHost: TypeAlias = (
    Describe
    | PlanOf
    | OpenSession
    | CloseSession
    | PrepareTarget
    | RunSource
    | AwaitPrepared
    | SourceEnded
    | Grant
    | Activate
    | Discard
    | Retire
    | Thaw
    | WriteImage
    | LoadImage
    | RemoveImage
    | Prewarm
    | FlipBit
    | Attach
    | Detach
    | Act
)
ToController: TypeAlias = (
    VerbRequest
    | SabotageRequest
    | ListSessions
    | ListHosts
    | GetSession
    | GetMove
    | GetReceipt
    | ListSigners
    | Keyed
    | Qualify
    | Subscribe
)
