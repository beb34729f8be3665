"""The PEM files of a client with TLS: the authority that it trusts, its own certificate and key."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final, NoReturn

from acktrail.errors import ConfigurationError

_CA: Final = "ssl.ca.location"
_CERTIFICATE: Final = "ssl.certificate.location"
_KEY: Final = "ssl.key.location"
_PEM: Final = b"-----BEGIN "
_LOCKED: Final = (b"BEGIN ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED")


def tls_context(
    ca: str | None, certificate: str | None, key: str | None, *, password: str | None, check_hostname: bool
) -> ssl.SSLContext:
    """What TLS connections are made with, from files. Raises ConfigurationError with the property and the file for a
    file that cannot be read, is no PEM, or does not hold what it should; for a key that does not belong to the
    certificate or cannot be unlocked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = check_hostname
    trust(context, _CA, ca, signed="the broker")
    if certificate is not None:
        _identify(context, certificate, key or certificate, password or "")
    elif key is not None:
        _fault(_KEY, key, "has no certificate", f"set {_CERTIFICATE} as well")
    return context


def trust(context: ssl.SSLContext, name: str, file: str | None, *, signed: str) -> None:
    """Trust the authorities in `file`, which property `name` names (None: those of the system), for what they
    `signed`. Raises ConfigurationError."""
    if file is None:
        context.load_default_certs()
        return
    _ensure_pem(name, file)
    try:
        context.load_verify_locations(cafile=file)
    except ssl.SSLError:
        _fault(name, file, "holds no certificate", f"name the PEM file of the authority that signed {signed}")


def _identify(context: ssl.SSLContext, certificate: str, key: str, password: str) -> None:
    _ensure_pem(_CERTIFICATE, certificate)
    _ensure_pem(_KEY, key)
    try:
        # As a function: without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(certificate, key, password=lambda: password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            _fault(_KEY, key, f"does not belong to the certificate {certificate}", "name the certificate's own key")
        if any(sign in Path(key).read_bytes() for sign in _LOCKED):
            _fault(_KEY, key, "cannot be unlocked", "set ssl.key.password to its password")
        _fault(_CERTIFICATE, certificate, f"and {_KEY}: {key} are no certificate and key", "name two PEM files")


def _ensure_pem(name: str, file: str) -> None:
    try:
        if _PEM not in Path(file).read_bytes():
            _fault(name, file, "is not a PEM file", "export it as PEM (keytool and openssl can)")
    except OSError as error:
        words = f"cannot be read: {error.strerror or type(error).__name__}"
        _fault(name, file, words, "name a PEM file that this user may read")


def _fault(name: str, file: str, fault: str, hint: str) -> NoReturn:
    raise ConfigurationError(f"{name}: {file} {fault}", hint=hint, data={"property": name, "file": file}) from None
