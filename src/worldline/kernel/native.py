"""The kernel in C, called through ctypes: it releases the interpreter lock for the length of each call."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np

from worldline.kernel.operations import (
    DIGEST_BYTES,
    HEADER_BYTES,
    Claims,
    Octets,
    Places,
    check_equal,
    check_places,
    granule_count,
)

ABI = 1
"""Of the C source beside this; a library of another is not used."""
PORTABLE, AVX2 = 0, 1
_NAMES = {PORTABLE: "c-portable", AVX2: "c-avx2"}

_at = ctypes.c_void_p
_size = ctypes.c_int64
_SIGNATURES: dict[str, tuple[object, tuple[object, ...]]] = {
    "wl_leaf_digests": (None, (_at, _at, _at, _size, _at)),
    "wl_copy_digests": (None, (_at, _at, _at, _at, _size, _at)),
    "wl_copy": (None, (_at, _at, _size)),
    "wl_differences": (None, (_at, _at, _size, _size, _at)),
    "wl_zeros": (None, (_at, _size, _size, _at)),
    "wl_granules_encode": (_size, (_at, _size, ctypes.c_int, _at)),
    "wl_granules_decode": (ctypes.c_int, (_at, _size, _at, _size)),
    "wl_planes_split": (None, (_at, _size, _at, _at)),
    "wl_planes_join": (None, (_at, _at, _size, _at)),
}


class Native:
    """See `Kernel`. Raises `OSError` where `library` can't be loaded or is of another ABI."""

    def __init__(self, library: Path, level: int = AVX2) -> None:
        """`level` is lowered to what the machine has, for all users of the library in this process."""
        self._c = ctypes.CDLL(str(library))
        try:
            abi = self._c.wl_abi()
        except AttributeError as error:
            raise OSError(f"{library.name} is not the kernel") from error
        if abi != ABI:
            raise OSError(f"{library.name} is of ABI {abi}, not {ABI}; install anew")
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self._c, name)
            function.restype, function.argtypes = result, arguments
        self.name = _NAMES[self._c.wl_use(level)]

    def leaf_digests(self, memory: Octets, offsets: Places, sizes: Places) -> bytes:
        check_places(memory.nbytes, offsets, sizes)
        out = np.empty(DIGEST_BYTES * offsets.size, np.uint8)
        offsets, sizes = _flat(offsets), _flat(sizes)
        self._c.wl_leaf_digests(_address(memory), _address(offsets), _address(sizes), offsets.size, _address(out))
        return out.tobytes()

    def copy_digests(self, target: Octets, source: Octets, offsets: Places, sizes: Places) -> bytes:
        check_places(min(target.nbytes, source.nbytes), offsets, sizes)
        out = np.empty(DIGEST_BYTES * offsets.size, np.uint8)
        offsets, sizes = _flat(offsets), _flat(sizes)
        self._c.wl_copy_digests(
            _writable(target), _address(source), _address(offsets), _address(sizes), offsets.size, _address(out)
        )
        return out.tobytes()

    def copy(self, target: Octets, source: Octets) -> None:
        check_equal(target, source)
        self._c.wl_copy(_writable(target), _address(source), source.nbytes)

    def differences(self, left: Octets, right: Octets, granule_bytes: int) -> Claims:
        check_equal(left, right)
        out = np.empty(granule_count(left.nbytes, granule_bytes), np.bool_)
        self._c.wl_differences(_address(left), _address(right), left.nbytes, granule_bytes, _address(out))
        return out

    def zeros(self, memory: Octets, granule_bytes: int) -> Claims:
        out = np.empty(granule_count(memory.nbytes, granule_bytes), np.bool_)
        self._c.wl_zeros(_address(memory), memory.nbytes, granule_bytes, _address(out))
        return out

    def encode_granules(self, memory: Octets, window: bool) -> Octets:
        out = np.empty(HEADER_BYTES * granule_count(memory.nbytes) + memory.nbytes, np.uint8)
        used = self._c.wl_granules_encode(_address(memory), memory.nbytes, int(window), _address(out))
        return out[:used]

    def decode_granules(self, encoded: Octets, into: Octets) -> bool:
        done: int = self._c.wl_granules_decode(_address(encoded), encoded.nbytes, _writable(into), into.nbytes)
        return done == 0

    def split_planes(self, memory: Octets) -> tuple[Octets, Octets]:
        if memory.nbytes % 2:
            raise ValueError("bf16 elements have two bytes")
        exponents, rest = np.empty(memory.nbytes // 2, np.uint8), np.empty(memory.nbytes // 2, np.uint8)
        self._c.wl_planes_split(_address(memory), exponents.size, _address(exponents), _address(rest))
        return exponents, rest

    def join_planes(self, exponents: Octets, rest: Octets, into: Octets) -> None:
        check_equal(exponents, rest)
        if into.nbytes != 2 * rest.nbytes:
            raise ValueError("bf16 elements have two bytes")
        self._c.wl_planes_join(_address(exponents), _address(rest), rest.size, _writable(into))


def _flat(places: Places) -> Places:
    return np.ascontiguousarray(places, np.int64)


def _address(array: np.ndarray) -> int:
    if not array.flags.c_contiguous:
        raise ValueError("the kernel takes contiguous memory")
    address: int = array.__array_interface__["data"][0]
    return address


def _writable(array: np.ndarray) -> int:
    if not array.flags.writeable:
        raise ValueError("the kernel can't write to read-only memory")
    return _address(array)
