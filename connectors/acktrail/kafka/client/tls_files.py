"""The PEM files of a client with TLS: the authority that it trusts, its own certificate and key."""

from __future__ import annotations

import datetime as dt
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from acktrail.errors import ConfigurationError
from acktrail.kafka.client.client_settings import ClientSettings

_CA: Final = "ssl.ca.location"
_CERTIFICATE: Final = "ssl.certificate.location"
_KEY: Final = "ssl.key.location"
_PEM: Final = b"-----BEGIN "
_LOCKED: Final = (b"BEGIN ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED")


def tls_context(settings: ClientSettings) -> ssl.SSLContext | None:
    """What TLS connections are made with; None for a client without TLS. Raises ConfigurationError with the property
    and the file for a file that cannot be read, is no PEM, or does not hold what it should; for a key that does not
    belong to the certificate or cannot be unlocked; for a certificate of the client's own that is out of date."""
    if not settings.uses_tls:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = settings.ssl_check_hostname
    trust(context, _CA, settings.ssl_cafile, signed="the broker")
    if settings.ssl_certfile is not None:
        _identify(context, settings, settings.ssl_certfile, settings.ssl_keyfile or settings.ssl_certfile)
    elif settings.ssl_keyfile is not None:
        _fault(_KEY, settings.ssl_keyfile, "has no certificate", f"set {_CERTIFICATE} as well")
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


def certificate_facts(file: str) -> Mapping[str, Any]:
    """``subject``, ``notBefore``, ``notAfter`` ... of the first certificate in a PEM file, as the standard library
    gives those of a peer; nothing where they cannot be had."""
    try:
        # The standard library decodes a peer's certificate, and one in a file only with this function of its tests.
        decoded = ssl._ssl._test_decode_cert(file)  # type: ignore[attr-defined]  # noqa: SLF001  # see above
    except (AttributeError, OSError, ValueError):
        return {}
    return dict(decoded)


def _identify(context: ssl.SSLContext, settings: ClientSettings, certificate: str, key: str) -> None:
    _ensure_pem(_CERTIFICATE, certificate)
    _ensure_pem(_KEY, key)
    password = settings.ssl_password or ""
    try:
        # As a function: without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(certificate, key, password=lambda: password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            _fault(_KEY, key, f"does not belong to the certificate {certificate}", "name the certificate's own key")
        if any(sign in Path(key).read_bytes() for sign in _LOCKED):
            _fault(_KEY, key, "cannot be unlocked", "set ssl.key.password to its password")
        _fault(_CERTIFICATE, certificate, f"and {_KEY}: {key} are no certificate and key", "name two PEM files")
    _ensure_in_time(certificate)


def _ensure_in_time(certificate: str) -> None:
    facts = certificate_facts(certificate)
    for bound, is_out, said in (("notBefore", _is_ahead, "is not valid before"), ("notAfter", _is_past, "expired on")):
        at_s = ssl.cert_time_to_seconds(facts[bound]) if bound in facts else None
        if at_s is not None and is_out(at_s):
            at = dt.datetime.fromtimestamp(at_s, dt.UTC)
            _fault(_CERTIFICATE, certificate, f"{said} {at:%Y-%m-%d %H:%M} UTC", "have it renewed, or set the clock")


def _is_ahead(at_s: float) -> bool:
    return time.time() < at_s


def _is_past(at_s: float) -> bool:
    return time.time() > at_s


def _ensure_pem(name: str, file: str) -> None:
    try:
        if _PEM not in Path(file).read_bytes():
            _fault(name, file, "is not a PEM file", "export it as PEM (keytool and openssl can)")
    except OSError as error:
        words = f"cannot be read: {error.strerror or type(error).__name__}"
        _fault(name, file, words, "name a PEM file that this user may read")


def _fault(name: str, file: str, fault: str, hint: str) -> NoReturn:
    raise ConfigurationError(f"{name}: {file} {fault}", hint=hint, data={"property": name, "file": file}) from None
