"""The simulation's gateway and its players: real playback over connections that keep order, drop, and begin anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from worldline.control import playback as play
from worldline.schema.ids import Epoch, SessionId
from worldline.testing.simulated_process import Process
from worldline.testing.simulated_session import Session, picture_of

if TYPE_CHECKING:
    from worldline.testing.simulation import Simulation

ATTACH_AGAIN_S = 0.1
ACTION_GAP_S = 0.1


@dataclass(slots=True)
class Player:
    """Acts one number after the other; what was refused, or not taken by a gateway that ended, is sent again."""

    session: Session
    next: int = 1
    seen: int = 0
    """The last block shown, or told as missed."""
    shown: int = 0
    missed: int = 0


@dataclass(slots=True)
class Seat:
    """One session at the gateway. `playback` is None until the first attachment."""

    owner: play.OwnerChanged
    lost: bool = False
    playback: play.Playback | None = None
    link: int | None = None


class Gateway(Process):
    def __init__(self, sim: Simulation) -> None:
        super().__init__(sim.timeline)
        self.sim = sim
        self.players: dict[SessionId, Player] = {}
        self._seats: dict[SessionId, Seat] = {}
        self._links = 0

    def tell(self, line: str, *facts: object) -> None:
        self.sim.transcript.tell("gateway", line, *facts)

    # ---- players

    def join(self, session: Session) -> None:
        player = self.players[session.id] = Player(session)
        self._play(player)

    def _play(self, player: Player) -> None:
        """The player's clock: it outlives the gateway."""
        seat = self._seats.get(player.session.id)
        ready = self.alive and not self.stopped and seat is not None and seat.playback is not None
        if ready and player.next <= len(player.session.actions):
            number = player.next
            commands = self._feed(player.session.id, play.ActionIn(number, player.session.actions[number - 1]))
            rejected = [command for command in commands if isinstance(command, play.Reject)]
            player.next = rejected[0].expected if rejected else number + 1
        self.timeline.after(ACTION_GAP_S, lambda: self._play(player))

    # ---- ends and beginnings

    def end(self) -> None:
        super().end()
        self.sim.counts.crashes += 1
        self.tell("ENDS")
        self._seats.clear()
        self.timeline.after(self.sim.rng.uniform(0.05, 0.5), self.begin)

    def begin(self) -> None:
        self.alive = True
        self.tell("begins anew")
        self._subscribe()

    def _subscribe(self) -> None:
        if self.sim.controller.alive:
            self.sim.controller.after(0.01, self.sim.controller.snapshot)
        else:
            self.after(ATTACH_AGAIN_S, self._subscribe)

    # ---- owners

    def owner_changed(self, session: SessionId, owner: play.OwnerChanged, lost: bool) -> None:
        seat = self._seats.get(session)
        if seat is None:
            self._seats[session] = Seat(owner, lost)
            self._attach(session)
            return
        seat.lost = lost
        if owner.epoch > seat.owner.epoch:
            ghost = play.BlockIn(
                seat.owner.epoch, owner.cut_block + 1, owner.cut_block + 1, b"of an epoch that is over"
            )
            seat.owner, seat.link = owner, None
            self._feed(session, owner)
            if self.sim.trouble.chance("zombie-speaks"):
                self.after(self.sim.rng.uniform(0.0, 0.3), lambda: self._feed(session, ghost))
            self._attach(session)

    def _attach(self, session: SessionId) -> None:
        """Asks the owner for its blocks, until it answers or another owner is told."""
        seat = self._seats.get(session)
        if seat is None:
            return
        owner = seat.owner
        if owner.host is None:
            if seat.playback is None and not seat.lost:
                self._begin_playback(session, seat, owner.cut_block)
            return
        host, epoch = self.sim.hosts[owner.host], owner.epoch
        self._links += 1
        link = self._links
        if host.alive:
            host.after(self.sim.rng.uniform(0.001, 0.01), lambda: self._attach_at_host(session, epoch, link))
        self.after(ATTACH_AGAIN_S, lambda: self._attach_again(session, epoch))

    def _attach_again(self, session: SessionId, epoch: Epoch) -> None:
        seat = self._seats.get(session)
        if seat is not None and seat.link is None and seat.owner.epoch == epoch and not seat.lost:
            self._attach(session)

    def _attach_at_host(self, session: SessionId, epoch: Epoch, link: int) -> None:
        """At the host: recent blocks first, then where it stands, then what it makes."""
        seat = self._seats.get(session)
        host = None if seat is None or seat.owner.host is None else self.sim.hosts[seat.owner.host]
        engine = None if host is None else host.engines.get(session)
        if seat is None or engine is None or engine.epoch != epoch or seat.link is not None:
            return
        seat.link = engine.watcher = link
        after = seat.playback.delivered_block if seat.playback is not None else engine.block
        for block, picture in engine.recent:
            if block > after:
                engine.send(block, picture)
        self._send(link, session, play.HostLinkUp(epoch, engine.block, engine.block))

    def _begin_playback(self, session: SessionId, seat: Seat, block: int) -> None:
        """The player is told where the show goes on, and which number is due."""
        seat.playback = self.sim.kinds.playback(seat.owner, block, block)
        player = self.players[session]
        player.next = seat.playback.expected_number
        if block > player.seen:
            self._miss(player, player.seen + 1, block)

    def drop_link(self, session: SessionId) -> None:
        seat = self._seats.get(session)
        if seat is not None and seat.link is not None:
            seat.link = None
            epoch = seat.owner.epoch
            self._feed(session, play.HostLinkDown(epoch))
            self.after(ATTACH_AGAIN_S, lambda: self._attach_again(session, epoch))

    def host_ended(self, name: str) -> None:
        for session, seat in self._seats.items():
            if seat.owner.host == name:
                self.after(0.02, lambda session=session: self.drop_link(session))  # type: ignore[misc]

    # ---- blocks

    def block_on_its_way(self, link: int, session: SessionId, epoch: Epoch, block: int, picture: bytes) -> None:
        """A host sends a block; one of an owner before, on a link that stands, may come late and still counts."""
        self._send(link, session, play.BlockIn(epoch, block, block, picture))

    def _send(self, link: int, session: SessionId, event: play.BlockIn | play.HostLinkUp) -> None:
        late_s = self.sim.rng.uniform(0.1, 2.5) if self.sim.trouble.chance("blocks-late") else 0.0
        delay_s = self.timeline.in_order(link, late_s + self.sim.rng.uniform(0.0005, 0.02))
        self.after(delay_s, lambda: self._come(link, session, event))

    def _come(self, link: int, session: SessionId, event: play.BlockIn | play.HostLinkUp) -> None:
        seat = self._seats.get(session)
        if seat is None:
            return
        if isinstance(event, play.HostLinkUp) and seat.link == link and seat.playback is None:
            self._begin_playback(session, seat, event.block)
        if seat.link == link or (isinstance(event, play.BlockIn) and event.epoch < seat.owner.epoch):
            self._feed(session, event)

    def _feed(self, session: SessionId, event: play.PlayEvent) -> list[play.PlayCommand]:
        seat = self._seats.get(session)
        playback = None if seat is None else seat.playback
        if seat is None or playback is None:
            return []
        commands = playback.handle(event, self.timeline.now_s)
        for command in commands:
            if self.sim.trouble.ends_here("gateway"):
                self.end()
                return []
            self._do(session, seat, command)
        if playback.wake_at_s is not None:
            self.after(playback.wake_at_s - self.timeline.now_s + 1e-6, lambda: self._feed(session, play.Waited()))
        return commands

    def _do(self, session: SessionId, seat: Seat, command: play.PlayCommand) -> None:
        player = self.players[session]
        match command:
            case play.SendAct(host, epoch, number, action):
                if seat.link is not None and self.sim.hosts[host].alive:
                    delay_s = self.timeline.in_order(("acts", seat.link), self.sim.rng.uniform(0.0005, 0.02))
                    link = seat.link
                    self.sim.hosts[host].after(delay_s, lambda: self._act_at_host(session, epoch, link, number, action))
            case play.Deliver(block):
                self._show(player, block)
            case play.Missed(first, last):
                self._miss(player, first, last)
            case play.DropStale() | play.Reject():
                pass
            case _:
                assert_never(command)

    def _show(self, player: Player, block: play.BlockIn) -> None:
        sim, truth = self.sim, player.session
        if block.block <= player.seen:
            return  # again, to a player who came back to another gateway
        if block.block != player.seen + 1:
            sim.fail(f"block {block.block} of {truth.id} was shown after {player.seen}, and none was told as missed")
        player.seen, player.shown = block.block, player.shown + 1
        if block.block >= len(truth.makers) or truth.makers[block.block] != block.epoch:
            sim.fail(f"block {block.block} of {truth.id} was shown by epoch {block.epoch}, which did not make it")
        if block.content != picture_of(truth.states[block.block]):
            sim.fail(f"block {block.block} of {truth.id} has not the unmoved session's picture")

    def _miss(self, player: Player, first: int, last: int) -> None:
        if last <= player.seen:
            return
        if first > player.seen + 1:
            self.sim.fail(f"blocks {first} to {last} of {player.session.id} were missed after {player.seen}")
        player.missed += last - player.seen
        player.seen = last

    def _act_at_host(self, session: SessionId, epoch: Epoch, link: int, number: int, action: int) -> None:
        seat = self._seats.get(session)
        if seat is None or seat.link != link or seat.owner.host is None:
            return
        engine = self.sim.hosts[seat.owner.host].engines.get(session)
        if engine is None or engine.epoch != epoch:
            return
        expected = engine.act(number, action)
        if expected is not None:
            rejected = play.RejectedIn(epoch, number, expected)
            self.after(0.002, lambda: self._feed(session, rejected))
