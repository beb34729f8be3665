"""Addresses of object storages in configurations that came by REST. A storage's client sends what it finds: the
credentials in the worker's environment, or the machine's own identity. It must not send them where a caller says."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from acktrail.config import storage_environment
from acktrail_connect.config_def import Texts, is_secret, names_file, under

_OPTION: Final = re.compile(r"((?:sink\.|transforms\.[^.]+\.)?)option\.(.+)")
_SAYS_WHERE: Final = re.compile(
    r"endpoint|host(?!ed)|url|uri|proxy|allow_(http|invalid)|imds|metadata|msi|emulator|fabric", re.IGNORECASE
)
_PLAIN: Final = re.compile(r"[A-Za-z0-9_:+=-]*")
"""A region or an account becomes part of a host's name: with other characters it could be all of it."""
_NO_ADDRESS: Final = ("user_agent", "_arn")
_PROGRAMS: Final = ("kinit.cmd", "plugin.library.paths")
"""Ends of names of Kafka's properties that have the client run a command or a library."""
_OFF: Final = frozenset({"", "0", "false", "no", "off"})
_CREDENTIAL: Final = re.compile(r"KEY|SECRET|TOKEN|CREDENTIAL|SERVICE_ACCOUNT|HEADER|PROFILE|CERTIFICATE|CONNECTION")
_AMAZON: Final = frozenset({"s3", "s3a"})
_OWN: Final = {
    _AMAZON: r"(aws_)?(secret_access_key|skip_signature)",
    frozenset({"gs", "gcs"}): r"(google_)?(service_account(_path|_key)?|application_credentials|skip_signature)",
    frozenset({"az", "azure", "abfs", "abfss", "adl"}): (
        r"(azure_(storage_)?)?((account|access|master)_key|sas_(token|key)|(bearer_)?token|skip_signature)"
    ),
}
"""By schemes: names of options with which a client looks for no other credentials."""


def refused_addresses(texts: Texts, asked: Collection[str]) -> dict[str, tuple[str, ...]]:
    """What is wrong, by key, with those keys of a configuration that a caller of REST `asked` for: they say to which
    server a storage's client connects, and the credentials would not be the caller's own."""
    held = [name for name in sorted(storage_environment()) if _CREDENTIAL.search(name.upper())]
    wrong = dict[str, tuple[str, ...]]()
    for name in asked:
        if name.lower().endswith(_PROGRAMS):
            wrong[name] = (f"{name}: the worker would run it: only an operator's file may name it, as [connector]",)
        match = _OPTION.fullmatch(name)
        tables = "" if match is None else str(texts.get(f"{match[1]}tables", ""))
        if match is None or "://" not in tables or not _is_address(match[2], str(texts[name])):
            continue
        if held:
            reason = f"the worker's environment has credentials of storages ({', '.join(held)}) that might go there"
            hint = "an operator puts this key into [connector] of the worker's file, or unsets those variables"
        elif not _has_own(tables, under(texts, f"{match[1]}option.")):
            reason = "the identity of the worker's machine might go there"
            hint = "send the storage's credentials too, or an operator puts this key into [connector]"
        else:
            continue
        wrong[name] = (f"{name}: {reason}: {hint}",)
    return wrong


def _is_address(option: str, text: str) -> bool:
    if _SAYS_WHERE.search(option):
        return text.strip().lower() not in _OFF
    is_other = is_secret(option) or names_file(option) or option.lower().endswith(_NO_ADDRESS)
    return not is_other and _PLAIN.fullmatch(text) is None


def _has_own(tables: str, options: Texts) -> bool:
    scheme = tables.partition("://")[0].lower()
    pattern = next((each for schemes, each in _OWN.items() if scheme in schemes), None)
    given = [name.lower() for name, text in options.items() if str(text).strip().lower() not in _OFF]
    if scheme in _AMAZON and not any(name.endswith(("access_key_id", "skip_signature")) for name in given):
        return False  # half of a pair: its client would search the environment
    return pattern is not None and any(re.fullmatch(pattern, name) for name in given)
