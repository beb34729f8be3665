"""As whom a broker sees a client: the principal that ACLs name."""

from __future__ import annotations

import re
from typing import Final

from acktrail.errors import AcktrailError
from acktrail.kafka.client.client_settings import ClientSettings
from acktrail.kafka.client.tls_files import certificate_facts
from acktrail.kafka.client.token_source import token_source

_ANONYMOUS: Final = "User:ANONYMOUS"
_SHORT: Final = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
"""The attribute types that RFC 2253 (section 2.3) has names for."""


def principal_of(settings: ClientSettings) -> str | None:
    """``User:NAME`` as a broker with Kafka's own principal builder and no mapping rules sees it; None: not known (a
    token without a subject, a certificate with unusual attributes)."""
    if settings.oauth is not None:
        return _of_token(settings)
    if settings.uses_sasl:
        return f"User:{settings.sasl_plain_username}"
    if not settings.uses_tls or settings.ssl_certfile is None:
        return _ANONYMOUS
    name = _distinguished_name(settings.ssl_certfile)
    return None if name is None else f"User:{name}"


def _of_token(settings: ClientSettings) -> str | None:
    if settings.oauth is None:
        return None
    try:
        subject = token_source(settings.oauth).current().subject
    except AcktrailError:
        return None
    return None if subject is None else f"User:{subject}"


def _distinguished_name(file: str) -> str | None:
    """The subject as Java's ``X500Principal.getName()`` writes it (RFC 2253): the last attribute first."""
    parts = []
    for attributes in reversed(certificate_facts(file).get("subject", ())):
        if any(kind not in _SHORT for kind, _ in attributes):
            return None
        parts.append("+".join(f"{_SHORT[kind]}={_escaped(value)}" for kind, value in attributes))
    return ",".join(parts) or None


def _escaped(value: str) -> str:
    return re.sub(r'([,+"\\<>;]|^[# ]| $)', r"\\\1", value)
