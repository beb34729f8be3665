"""Certificates that a test's own authority signs."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["Authority"]

_DAY: Final = dt.timedelta(days=1)
_KINDS: Final = {"CN": NameOID.COMMON_NAME, "OU": NameOID.ORGANIZATIONAL_UNIT_NAME, "O": NameOID.ORGANIZATION_NAME}


@dataclass(frozen=True)
class Authority:
    """Signs certificates into `folder`; `file` is its own certificate."""

    folder: Path
    name: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def make(cls, folder: Path, name: str) -> Authority:
        key, subject, now = ec.generate_private_key(ec.SECP256R1()), _name({"CN": name}), dt.datetime.now(dt.UTC)
        made = (
            x509.CertificateBuilder(subject, subject, key.public_key(), 1, now - _DAY, now + 2 * _DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        authority = cls(folder, name, key, made)
        authority.file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        return authority

    @property
    def file(self) -> Path:
        return self.folder / f"{self.name}.pem"

    def signed(
        self, name: str, *, address: str | None = None, has_expired: bool = False, password: str = "", **subject: str
    ) -> Path:
        """A PEM file with a key (locked by `password`, if any) and its certificate, of a server at `address` alone or
        of a client."""
        key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.UTC)
        end = now - _DAY / 2 if has_expired else now + _DAY
        named, issuer = _name(subject or {"CN": name}), self.certificate.subject
        builder = x509.CertificateBuilder(issuer, named, key.public_key(), x509.random_serial_number(), now - _DAY, end)
        if address is not None:
            is_name = address[0].isalpha()
            at = x509.DNSName(address) if is_name else x509.IPAddress(ipaddress.ip_address(address))
            names = x509.SubjectAlternativeName([at])
            builder = builder.add_extension(names, critical=False)
        made = builder.sign(self.key, hashes.SHA256())
        lock = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        file = self.folder / f"{name}.pem"
        file.write_bytes(key.private_bytes(pem, form, lock) + made.public_bytes(pem))
        return file


def _name(attributes: dict[str, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(_KINDS[kind], value) for kind, value in attributes.items()])
