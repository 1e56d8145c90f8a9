"""A plugin of pytest that takes one rule out of the code: `WORLDLINE_SABOTAGE=NAME pytest -p sabotage.plugin CHECK`.

The only place where tests patch code of ours: the named check must turn red, or it does not watch the rule.
"""

import contextlib
import os
from collections.abc import Callable

from worldline.control import handoff, playback
from worldline.migration import source, target
from worldline.runtime import controller_book, store_sqlite
from worldline.verify import disk, durable


def target_digest() -> None:
    """The target repeats the source's root instead of its own."""
    proven = target.TargetMachine._root_computed

    def repeats(self, event, now_s):
        return proven(self, target.RootComputed(self._seal.root, self._seal.layout), now_s)

    target.TargetMachine._root_computed = repeats


def compared_roots() -> None:
    """The target digests, and does not compare."""
    target.TargetMachine._roots_agree = lambda self, event, seal: True


def installed_state() -> None:
    """What was installed is not read back."""
    from worldline.runtime import host_engine  # it brings torch, which the other checks do without

    host_engine.Engine.refuse_change = lambda self, proven: None


def target_digest_and_installed_state() -> None:
    """Neither line of defence."""
    target_digest()
    installed_state()


def read_again() -> None:
    """What the target read before the fence stays believed."""
    from worldline.runtime import host_readings  # as above

    host_readings.Readings.read_again = lambda self, proven, armed: None


def gateway_epoch() -> None:
    """The gateway shows whatever block comes next, of whichever epoch."""
    playback.Playback._counts = lambda self, event: True
    found = playback.Playback._reign_of_epoch
    playback.Playback._reign_of_epoch = lambda self, epoch: found(self, epoch) or self._reigns[-1]


def image_flush() -> None:
    """An image gets its name before its bytes are on the disk."""
    disk.RealDisk.flush = lambda self, fd: None


def name_flush() -> None:
    """A name is told of before it is on the disk."""
    durable.flush_directory = lambda path: None


def record_flush() -> None:
    """The record answers before its line is on the disk."""
    connect = store_sqlite._connect

    def hasty(path):
        db = connect(path)
        db.execute("PRAGMA synchronous = OFF")
        return db

    store_sqlite._connect = hasty


def receipt_check() -> None:
    """The controller believes any receipt."""
    handoff.contradiction = lambda order, sealed, receipt: None


def sealed_silence() -> None:
    """A sealed source plays on when its link is lost."""
    handle = source.SourceMachine.handle

    def impatient(self, event, now_s):
        commands = handle(self, event, now_s)
        sealed = self.phase in (source.Phase.SEALED, source.Phase.PREPARED)
        return [*commands, source.Thaw()] if sealed and isinstance(event, source.LinkLost) else commands

    source.SourceMachine.handle = impatient


def veil() -> None:
    """A new owner is told of at the commit, before it is known to play."""
    controller_book.Book.veil = lambda self, shown: None


MUTATIONS: dict[str, Callable[[], None]] = {
    made.__name__.replace("_", "-"): made
    for made in (
        target_digest,
        compared_roots,
        installed_state,
        target_digest_and_installed_state,
        read_again,
        gateway_epoch,
        image_flush,
        name_flush,
        record_flush,
        receipt_check,
        sealed_silence,
        veil,
    )
}

with contextlib.suppress(KeyError):
    MUTATIONS[os.environ["WORLDLINE_SABOTAGE"]]()
