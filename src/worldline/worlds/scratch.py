"""Memory without an arena and digests of a tree without a layout: for canaries and quick looks, never for a move."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import torch
import xxhash

from worldline.worlds.protocol import Partial, Tree

Leaf: TypeAlias = "torch.Tensor | Partial | torch.Generator | int | str | None"


class ScratchMemory:
    """Ordinary zeroed tensors."""

    def zeros(self, path: str, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(tuple(shape), dtype=dtype)


def walk(tree: Tree, path: str = "") -> Iterator[tuple[str, Leaf]]:
    """Every leaf with its path, in canonical order: sorted keys, then indices."""
    match tree:
        case None | bool() | int() | str() | torch.Tensor() | Partial() | torch.Generator():
            yield path, tree
        case Mapping():
            for name in sorted(tree):
                yield from walk(tree[name], f"{path}/{name}" if path else name)
        case _:
            for i, item in enumerate(tree):
                yield from walk(item, f"{path}/{i}" if path else str(i))


def leaf_bytes(leaf: Leaf) -> bytes:
    """What a leaf says, exactly: type, dtype, shape and raw bytes of the valid part."""
    match leaf:
        case torch.Tensor():
            flat = leaf.detach().contiguous().reshape(-1).view(torch.uint8)
            return f"{leaf.dtype} {tuple(leaf.shape)} ".encode() + flat.numpy().tobytes()
        case Partial(tensor=tensor, dim=dim, stop=stop):
            return leaf_bytes(tensor.narrow(dim, 0, stop))
        case torch.Generator():
            return b"rng " + leaf.get_state().numpy().tobytes()
        case _:
            return repr(leaf).encode()


def digest_tree(tree: Tree, leave_out: frozenset[str] = frozenset()) -> str:
    """XXH3-128 (hex) over paths and leaves."""
    digest = xxhash.xxh3_128()
    for path, leaf in walk(tree):
        if path not in leave_out:
            data = leaf_bytes(leaf)
            digest.update(f"{path} {len(data)}\n".encode())
            digest.update(data)
    return digest.hexdigest()
