"""What the controller asks of hosts for one order: the message that a command is, and the event that its answer is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, assert_never

from worldline.control import order as words
from worldline.control.order import Call, Event, Order
from worldline.runtime import messages as wire
from worldline.runtime.controller_ends import Cargo
from worldline.schema.receipt import Receipt

HostCommand: TypeAlias = (
    words.PrepareTarget
    | words.RunSource
    | words.RejoinSource
    | words.AwaitPrepared
    | words.WriteImage
    | words.LoadImage
    | words.Activate
    | words.Retire
    | words.Discard
    | words.Thaw
)


@dataclass(frozen=True, slots=True)
class Request:
    """One call to a host. An answer of type `answered_by` is `event` of it."""

    call: Call
    message: wire.Message
    answered_by: Any
    """None: the answer says nothing but that it was done."""
    event: Callable[[Any], Event]
    delay_s: float = 0.0
    """Before it is asked."""


def request_of(command: HostCommand, order: Order, cargo: Cargo) -> Request:
    """The call that a command stands for."""
    match command:
        case words.PrepareTarget():
            return Request(Call.PREPARE_TARGET, _prepare(order, cargo), wire.Endpoint, _target_ready)
        case words.RunSource(transport, address, key):
            endpoint = wire.Endpoint(transport, address, key)
            told = (order.move, order.session, order.epoch, order.mode, endpoint, cargo.planted)
            run = wire.RunSource(*told, cargo.grant_bytes, cargo.codec)
            return Request(Call.RUN_SOURCE, run, wire.SourceSealed, _source_sealed)
        case words.RejoinSource():
            run = wire.RunSource(order.move, order.session, order.epoch, order.mode, None)
            return Request(Call.RUN_SOURCE, run, wire.SourceSealed, _source_sealed)
        case words.AwaitPrepared():
            return Request(Call.AWAIT_PREPARED, wire.AwaitPrepared(order.move), Receipt, words.TargetPrepared)
        case words.WriteImage(image):
            write = wire.WriteImage(order.move, order.session, order.epoch, image, cargo.planted)
            return Request(Call.WRITE_IMAGE, write, Receipt, words.ImageWritten)
        case words.LoadImage(image):
            return Request(Call.LOAD_IMAGE, _load(image, order, cargo), Receipt, words.TargetPrepared)
        case words.Activate(epoch, delay_s):
            activate = wire.Activate(order.move, epoch)
            return Request(Call.ACTIVATE, activate, wire.SessionFacts, lambda _: words.Activated(), delay_s)
        case words.Retire(epoch, delay_s):
            retire = wire.Retire(order.move, order.session, epoch)
            return Request(Call.RETIRE, retire, None, lambda _: words.Retired(), delay_s)
        case words.Discard(delay_s):
            return Request(Call.DISCARD, wire.Discard(order.move), None, lambda _: words.Discarded(), delay_s)
        case words.Thaw(delay_s, epoch):
            thaw = wire.Thaw(order.move, order.session, epoch)
            return Request(Call.THAW, thaw, None, lambda _: words.Thawed(), delay_s)
        case _:
            assert_never(command)


def _prepare(order: Order, cargo: Cargo) -> wire.PrepareTarget:
    assert order.source is not None
    assert order.target is not None
    assert cargo.source_plan is not None
    return wire.PrepareTarget(
        move=order.move,
        session=order.session,
        epoch=order.epoch,
        spec=cargo.spec,
        witness=cargo.witness,
        source=order.source,
        target=order.target,
        mode=order.mode,
        transport=cargo.transport,
        state_bytes=cargo.state_bytes,
        source_plan=cargo.source_plan,
        qualification=cargo.qualification,
        fault=cargo.planted,
    )


def _load(image: str, order: Order, cargo: Cargo) -> wire.LoadImage:
    return wire.LoadImage(
        move=order.move,
        session=order.session,
        epoch=order.epoch,
        spec=cargo.spec,
        witness=cargo.witness,
        image=image,
        qualification=cargo.qualification,
        written_under=cargo.written_under,
        fault=cargo.planted,
    )


def _target_ready(endpoint: wire.Endpoint) -> Event:
    return words.TargetReady(endpoint.transport, endpoint.address, endpoint.key)


def _source_sealed(sealed: wire.SourceSealed) -> Event:
    return words.SourceSealed(
        sealed.root, sealed.block, sealed.number, sealed.frozen_at_s, sealed.bytes_moved, sealed.rounds
    )
