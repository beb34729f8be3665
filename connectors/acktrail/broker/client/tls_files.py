"""The PEM files that a client configuration names, checked before a connection is tried."""

from __future__ import annotations

import ssl
from typing import Final

from acktrail.broker.client.client_settings import ClientSettings
from acktrail.errors import ConfigurationError

__all__ = ["ensure_pem_files"]

_PEM: Final = b"-----BEGIN "


def ensure_pem_files(settings: ClientSettings) -> None:
    """Pass when every file that `settings` names can be read and is PEM; a client without TLS needs none.

    Raises:
        ConfigurationError: it names the property and the file.
    """
    if not settings.uses_tls:
        return
    for name, file in (
        ("ssl.ca.location", settings.ca_file),
        ("ssl.certificate.location", settings.certificate_file),
        ("ssl.key.location", settings.key_file),
    ):
        if file is not None:
            _check_pem(name, file)
    if settings.ca_file is not None:
        _check_authority(settings.ca_file)


def _check_pem(name: str, file: str) -> None:
    try:
        with open(file, "rb") as opened:
            is_pem = _PEM in opened.read()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise _refused(name, file, f"cannot be read: {reason}", "name a PEM file that this user may read") from None
    if not is_pem:
        raise _refused(name, file, "is not a PEM file", "export it as PEM (keytool and openssl can)")


def _check_authority(file: str) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=file)
    except (ssl.SSLError, OSError):
        raise _refused(
            "ssl.ca.location", file, "holds no certificate", "name the PEM file of the authority that signed the broker"
        ) from None


def _refused(name: str, file: str, fault: str, hint: str) -> ConfigurationError:
    return ConfigurationError(f"{name}: {file} {fault}", hint=hint, data={"property": name, "file": file})
