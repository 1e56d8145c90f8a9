"""Where the gateway shows itself, and what it asks of whoever comes.

Invariant: an address that other machines can reach is served with TLS and to holders of the token alone, or not at all.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from worldline.errors import BadValue, Unauthenticated

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_NAME = re.compile(r"[a-z0-9]([a-z0-9.:-]{0,251}[a-z0-9])?\Z")


@dataclass(frozen=True, slots=True)
class Face:
    """Raises `Unauthenticated` where others could reach what is not guarded, `BadValue` for words without a meaning."""

    address: str = "127.0.0.1"
    names: tuple[str, ...] = ()
    """Under which clients reach it, beside the address and the loopback names."""
    token_file: Path | None = None
    """Its one line is the bearer token that clients must show."""
    tls_cert: Path | None = None
    tls_key: Path | None = None

    def __post_init__(self) -> None:
        if self.address not in LOOPBACK:
            try:
                ip_address(self.address)
            except ValueError as error:
                raise BadValue(f"the gateway listens on an address, not on {self.address[:80]!r}") from error
        wrong = [name for name in self.names if _NAME.match(name) is None]
        if wrong:
            raise BadValue(f"{wrong[0][:80]!r} is no name under which a gateway can be reached")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise BadValue("TLS needs a certificate and its key")
        if not self.is_loopback and (self.token_file is None or self.tls_cert is None):
            raise Unauthenticated(
                f"others can reach {self.address}: without a token and TLS the gateway listens on loopback alone",
                address=self.address,
            )
        if self.is_everywhere and not self.names:
            raise BadValue(f"a gateway on {self.address} needs the names under which it is reached")

    @property
    def is_loopback(self) -> bool:
        return self.address in LOOPBACK

    @property
    def is_everywhere(self) -> bool:
        return not self.is_loopback and ip_address(self.address).is_unspecified

    @property
    def scheme(self) -> str:
        return "http" if self.tls_cert is None else "https"

    @property
    def reached_as(self) -> frozenset[str]:
        """What a request's `Host` may name."""
        return LOOPBACK | set(self.names) | (set() if self.is_everywhere else {self.address})

    @property
    def shown_as(self) -> str:
        """The name in the address that people are told."""
        return next(iter(self.names), "127.0.0.1" if self.is_everywhere else self.address)

    def check_tls(self) -> None:
        """Raises `BadValue` where certificate and key can't be read, or are not each other's."""
        if self.tls_cert is None or self.tls_key is None:
            return
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.tls_cert, self.tls_key, password="")
        except OSError as error:
            raise BadValue(f"TLS with {self.tls_cert.name} and {self.tls_key.name}: {error.strerror}") from error

    def arguments(self) -> list[str]:
        """For the gateway's command line. Paths only: a token on a command line is read by everybody."""
        words = ["--address", self.address]
        for name in self.names:
            words += ["--name", name]
        for option, path in (
            ("--token-file", self.token_file),
            ("--tls-cert", self.tls_cert),
            ("--tls-key", self.tls_key),
        ):
            words += [] if path is None else [option, str(path)]
        return words
