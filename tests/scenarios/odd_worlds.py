"""Worlds with one defect each, built on the tiny one."""

import threading

import torch

from worldline.schema.inventory import Kind, Roll, Rule, Static
from worldline.testing.tiny import TinyWorld


class ForgetfulWorld(TinyWorld):
    """Its restore opens a fresh session instead of taking the state over."""

    name = "forgetful"

    def restore(self, tree, memory):
        return self.open(0, memory)


class WastefulWorld(TinyWorld):
    """Its restore draws from the session's generator while it sets itself up."""

    name = "wasteful"

    def restore(self, tree, memory):
        live = super().restore(tree, memory)
        torch.randn(1, generator=tree["chance"])
        return live


class FlatteningWorld(TinyWorld):
    """Its restore takes a strided view for a contiguous one: the right numbers, laid out otherwise."""

    name = "flattening"

    def restore(self, tree, memory):
        return super().restore(tree | {"even": tree["even"].contiguous()}, memory)


class UnsharingWorld(TinyWorld):
    """Its restore gives each of two tensors over one memory a memory of its own."""

    name = "unsharing"

    def restore(self, tree, memory):
        return super().restore(tree | {"ring_turned": tree["ring_turned"].clone()}, memory)


class LingeringWorld(TinyWorld):
    """A thread of its sessions goes on writing into their state until `ended` is set, whatever became of them."""

    name = "lingering"
    ended = threading.Event()

    def open(self, seed, memory):
        live = super().open(seed, memory)
        rows = live.state()["ring"]

        def write():
            while not self.ended.wait(0.001):
                rows.view(torch.uint8)[...] = 0xA5

        threading.Thread(target=write, name="lingering", daemon=True).start()
        return live


class BrokenWorld(TinyWorld):
    """Its restore raises something that no contract names."""

    name = "broken"

    def restore(self, tree, memory):
        raise ZeroDivisionError("the adapter has a bug")


class NumberedWorld(TinyWorld):
    """Its state has a key that is no string, which can't be described exactly."""

    name = "numbered"

    def open(self, seed, memory):
        live = super().open(seed, memory)
        state = live.state
        live.state = lambda: {**state(), "odd": {1: 0}}
        return live


class RewritingWorld(TinyWorld):
    """It rewrites, every block, what its rules declare as static."""

    name = "rewriting"

    def open(self, seed, memory):
        return self._rewriting(super().open(seed, memory))

    def restore(self, tree, memory):
        return self._rewriting(super().restore(tree, memory))

    def _rewriting(self, live):
        step = live.step

        def step_and_rewrite(action):
            shown = step(action)
            live.state()["noise"].view(torch.uint8)[..., 0] += 1
            return shown

        live.step = step_and_rewrite
        return live


class LyingWorld(TinyWorld):
    """It says that its caches roll by three rows, and they roll by two and keep one."""

    name = "lying"

    def open(self, seed, memory):
        return self._saying(super().open(seed, memory))

    def restore(self, tree, memory):
        return self._saying(super().restore(tree, memory))

    def _saying(self, live):
        live.rules = (Rule("cache/*", Kind.CACHE, Roll(dim=0, shift=3)), *live.rules)
        return live


class UndeclaredWorld(TinyWorld):
    """It says nothing of how its state is written, as most engines do."""

    name = "undeclared"

    def open(self, seed, memory):
        return self._silent(super().open(seed, memory))

    def restore(self, tree, memory):
        return self._silent(super().restore(tree, memory))

    def _silent(self, live):
        live.rules = (Rule("derived/*", Kind.DERIVED, Static()),)
        return live
