"""Hides the secrets of a configuration in texts that others wrote: errors of libraries, tracebacks."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from acktrail.connect.config_values import HIDDEN, is_reference, is_secret
from acktrail.errors import AcktrailError, InvalidConfiguration

_SHORTEST: Final = 4
"""A shorter text is in every second word: hiding it would hide the error, and show where it stands."""


class Redaction:
    """Hides `secrets` in a text, also where it quotes them as Python or JSON does."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms: set[str] = set()
        for secret in secrets:
            for form in (secret, secret.strip()):
                if len(form) >= _SHORTEST:
                    forms |= {
                        form,
                        repr(form)[1:-1],
                        json.dumps(form)[1:-1],
                        json.dumps(form, ensure_ascii=False)[1:-1],
                    }
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def __call__(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(HIDDEN, text)

    def error(self, error: AcktrailError) -> AcktrailError:
        """The same error without the secrets, and without what caused it."""
        error.message, error.hint = self(error.message), self(error.hint)
        error.args = (error.message,)
        error.data = {key: self(value) if isinstance(value, str) else value for key, value in error.data.items()}
        if isinstance(error, InvalidConfiguration):
            error.errors = {self(key): tuple(map(self, texts)) for key, texts in error.errors.items()}
            error.data["errors"] = {key: list(texts) for key, texts in error.errors.items()}
        error.__cause__, error.__suppress_context__ = None, True
        return error


def secrets_of(given: Mapping[str, Any], resolved: Mapping[str, Any], passwords: Collection[str] = ()) -> list[str]:
    """The secrets of a configuration: what a reference led to, and texts of keys whose name or type (`passwords`) says
    that they are secret."""
    found = []
    for name, value in resolved.items():
        is_one = (name in passwords or is_secret(name)) and not is_reference(value)
        if isinstance(value, str) and (given.get(name) != value or is_one):
            found.append(value)
    return found
