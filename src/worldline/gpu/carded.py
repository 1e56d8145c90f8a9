"""A world whose state lives on a card, as a world like any other: everything that moves an arena moves it.

`Carded(world, device)` runs an engine whose tensors are on `device`. At a boundary each of their storages is mirrored
to the host (`gpu.mirror`), and the state shown is the mirrors': the same tree, shapes, strides and aliases, on the CPU,
with the list of what belongs on the card. A restore brings those up before the engine sees them.

Invariant: the state shown at a boundary has, byte for byte, the device's values, and was digested on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from worldline.errors import LayoutRefused
from worldline.gpu.mirror import Bus, Mirror
from worldline.schema.inventory import Rule, rules_under
from worldline.snapshot.tree import Partial, Tree, join
from worldline.worlds.protocol import LiveWorld, Memory, World

WORLD = "world"
ON_CARD = "on_card"
CHANCE = "chance"


class CardMemory:
    """Memory on the card: an engine's `zeros` lie there, and have a mirror in the arena from the first boundary on."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def zeros(self, path: str, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(tuple(shape), dtype=dtype, device=self._device)


@dataclass(slots=True)
class _Twin:
    """A storage on the card and its mirror. `host` keeps the mirror's memory."""

    mirror: Mirror
    host: torch.Tensor
    address: int


@dataclass(slots=True)
class _Pass:
    """One walk over a tree: storages are met once each, in the tree's order."""

    visit: Callable[[str, torch.Tensor], torch.Tensor]
    chance: Callable[[str, torch.Generator], Tree]

    def of(self, tree: Any, path: str = "") -> Any:
        match tree:
            case torch.Tensor():
                return self.visit(path, tree)
            case Partial(tensor, dim, stop):
                return Partial(self.visit(path, tensor), dim, stop)
            case torch.Generator():
                return self.chance(path, tree)
            case Mapping():
                return {key: self.of(tree[key], join(path, key)) for key in sorted(tree)}
            case list() | tuple():
                items = [self.of(item, join(path, str(index))) for index, item in enumerate(tree)]
                return tuple(items) if isinstance(tree, tuple) else items
            case _:
                return tree


class CardedLive:
    """One session. See the module."""

    def __init__(self, inner: LiveWorld, bus: Bus, memory: Memory, twins: dict[str, _Twin]) -> None:
        self._inner = inner
        self._bus = bus
        self._memory = memory
        self._twins = twins
        self.rules: Sequence[Rule] = rules_under(WORLD, inner.rules)

    def step(self, action: int) -> np.ndarray:
        return self._inner.step(action)

    def state(self) -> Tree:
        on_card: list[str] = []
        chance: dict[str, Tree] = {}
        hosts: dict[int, torch.Tensor] = {}
        twins: dict[str, _Twin] = {}

        def shown(path: str, tensor: torch.Tensor) -> torch.Tensor:
            if tensor.device != self._bus.device:
                return tensor
            on_card.append(path)
            storage = tensor.untyped_storage()
            host = hosts.get(storage.data_ptr())
            if host is None:
                twins[path] = twin = self._twin(path, storage)
                twin.mirror.down()
                host = hosts[storage.data_ptr()] = twin.host
            return _view(host, tensor)

        def drawn(path: str, generator: torch.Generator) -> Tree:
            if generator.device.type == "cpu":
                return generator
            chance[path] = generator.get_state()
            return None

        world = _Pass(shown, drawn).of(self._inner.state())
        self._twins = twins
        return {WORLD: world, ON_CARD: "\n".join(on_card), CHANCE: chance}

    def _twin(self, path: str, storage: torch.UntypedStorage) -> _Twin:
        """The twin of a storage: the one of the last boundary where it is the same memory, or of one size at least."""
        nbytes = storage.nbytes()
        before = self._twins.get(path)
        device = torch.empty(0, dtype=torch.uint8, device=self._bus.device).set_(storage, 0, (nbytes,), (1,))
        if before is None or before.host.numel() != nbytes:
            host = self._memory.zeros(path, (nbytes,), torch.uint8)
        elif before.address == storage.data_ptr():
            return before
        else:
            host = before.host
        return _Twin(Mirror(device, host.numpy(), self._bus), host, storage.data_ptr())


class Carded:
    """`world` with its state on `device`; the world's own tensors are made there."""

    def __init__(self, world: World, device: torch.device) -> None:
        self._world = world
        self._bus = Bus(device)
        self.name = world.name
        self.actions = world.actions
        self.readout = world.readout
        self.state_bytes_max = 2 * world.state_bytes_max
        """Whole storages are mirrored, and the list of what is on the card goes with the state."""

    def facts(self) -> Mapping[str, str]:
        device = self._bus.device
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        return {**self._world.facts(), "card": name}

    def open(self, seed: int, memory: Memory) -> CardedLive:
        inner = self._world.open(seed, CardMemory(self._bus.device))
        return CardedLive(inner, self._bus, memory, {})

    def restore(self, tree: Tree, memory: Memory) -> CardedLive:
        """Raises `LayoutRefused` for a state of a world without a card, and `Corrupt` where other bytes came up."""
        match tree:
            case {"world": world, "on_card": str(named), "chance": Mapping() as chance}:
                pass
            case _:
                raise LayoutRefused("the state is not of a world on a card")
        twins: dict[str, _Twin] = {}
        devices: dict[int, torch.Tensor] = {}
        on_card = set(named.split("\n"))

        def brought(path: str, tensor: torch.Tensor) -> torch.Tensor:
            if path not in on_card:
                return tensor
            storage = tensor.untyped_storage()
            device = devices.get(storage.data_ptr())
            if device is None:
                host = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))
                device = torch.empty(storage.nbytes(), dtype=torch.uint8, device=self._bus.device)
                mirror = Mirror(device, host.numpy(), self._bus)
                mirror.up()
                devices[storage.data_ptr()] = device
                twins[path] = _Twin(mirror, host, device.untyped_storage().data_ptr())
            return _view(device, tensor)

        state = _Pass(brought, lambda _, generator: generator).of(world)
        for path, drawn in chance.items():
            assert isinstance(drawn, torch.Tensor), "a generator's state is a tensor"
            generator = torch.Generator(self._bus.device)
            generator.set_state(drawn)
            _put(state, path, generator)
        return CardedLive(self._world.restore(state, CardMemory(self._bus.device)), self._bus, memory, twins)


def _view(octets: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A tensor over `octets` where `like` lies over its own storage."""
    empty = torch.empty(0, dtype=like.dtype, device=octets.device)
    return empty.set_(octets.untyped_storage(), like.storage_offset(), like.size(), like.stride())


def _put(tree: Any, path: str, value: object) -> None:
    *groups, name = path.split("/")
    for group in groups:
        tree = tree[int(group)] if isinstance(tree, list) else tree[group]
    tree[int(name) if isinstance(tree, list) else name] = value
