"""Certificates for a fleet of one's own: an authority, one certificate a host, one for the gateway if it has names.

Invariant: a host's certificate names that host and no other, and no gateway's name can be taken for a host's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from worldline.errors import BadValue
from worldline.schema.ids import check_name

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, ExtendedKeyUsage, GeneralName, KeyUsage

HOST_DOMAIN: Final = ".host.worldline"
"""Follows a host's name in its certificate."""
AUTHORITY: Final = "ca"
GATEWAY: Final = "gateway"
SKEW_S: Final = 300.0
"""Clocks of two machines may differ by so much."""
DAYS_MAX: Final = 3650


def make_certificates(
    folder: Path, hosts: Sequence[str], now_s: float, days: float = 365, gateway: Sequence[str] = ()
) -> list[Path]:
    """Writes ca.pem, ca.key and for each host NAME.pem, NAME.key; with gateway names gateway.pem, gateway.key too.

    After success all of them are there, keys with mode 0600. An authority that is there already signs, so a host may be
    added later; a certificate that is there is replaced. Raises `BadValue`, `OSError`.
    """
    names = [check_name(host, "the host") for host in hosts]
    if not names or set(names) & {AUTHORITY, GATEWAY} or len(set(names)) != len(names):
        raise BadValue(f"certificates are for hosts of different names, and none is called {AUTHORITY} or {GATEWAY}")
    if not 0 < days <= DAYS_MAX:
        raise BadValue(f"certificates hold for at most {DAYS_MAX} days, not {days}")
    if any(name.endswith(HOST_DOMAIN) for name in gateway):
        raise BadValue(f"a gateway has no name that ends with {HOST_DOMAIN}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    maker = _Maker(folder, datetime.fromtimestamp(now_s, UTC), timedelta(days=days))
    written = [maker.make(name, [name + HOST_DOMAIN]) for name in names]
    return [*written, maker.make(GATEWAY, [*gateway, "localhost", "127.0.0.1"])] if gateway else written


class _Maker:
    def __init__(self, folder: Path, now: datetime, lasts: timedelta) -> None:
        self._folder = folder
        self._since, self._until = now - timedelta(seconds=SKEW_S), now + lasts
        self._authority, self._key = self._load_or_make_authority()

    def make(self, name: str, alternatives: Sequence[str]) -> Path:
        """The certificate's path."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        names = [_general(alternative) for alternative in dict.fromkeys(alternatives)]
        return self._write(name, self._sign(name, key, names, usage), key)

    def _load_or_make_authority(self) -> tuple[Certificate, EllipticCurvePrivateKey]:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        path = self._folder / f"{AUTHORITY}.pem"
        if path.exists():
            try:
                key = load_pem_private_key((self._folder / f"{AUTHORITY}.key").read_bytes(), password=None)
                found = x509.load_pem_x509_certificate(path.read_bytes())
            except (OSError, ValueError) as error:
                raise BadValue(f"the authority in {self._folder.name} can't be read: {error}") from error
            if not isinstance(key, ec.EllipticCurvePrivateKey):
                raise BadValue(f"the authority in {self._folder.name} was not made here")
            return found, key
        made = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(AUTHORITY, made, [], None)
        self._write(AUTHORITY, certificate, made)
        return certificate, made

    def _sign(
        self, name: str, key: EllipticCurvePrivateKey, names: list[GeneralName], usage: ExtendedKeyUsage | None
    ) -> Certificate:
        """Signed by the authority, or by itself where `usage` is None: then it is the authority."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"Worldline {name}")])
        own = usage is None
        issuer, signer = (subject, key) if own else (self._authority.subject, self._key)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._since)
            .not_valid_after(self._until)
            .add_extension(x509.BasicConstraints(ca=own, path_length=0 if own else None), critical=True)
            .add_extension(_key_usage(own), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        )
        if usage is not None:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
            builder = builder.add_extension(usage, critical=False)
        return builder.sign(signer, hashes.SHA256())

    def _write(self, name: str, certificate: Certificate, key: EllipticCurvePrivateKey) -> Path:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        _replace(self._folder / f"{name}.key", secret, 0o600)
        path = self._folder / f"{name}.pem"
        _replace(path, certificate.public_bytes(Encoding.PEM), 0o644)
        return path


def _key_usage(authority: bool) -> KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _general(name: str) -> GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _replace(path: Path, data: bytes, mode: int) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
