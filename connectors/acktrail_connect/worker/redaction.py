"""The secrets of a configuration, and texts and errors without them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote, quote_plus

from acktrail.errors import AcktrailError, ConfigurationError, InvalidConfiguration
from acktrail.secrets import HIDDEN, user_info, without_user_info
from acktrail_connect.config_def import ConfigType, is_reference, is_secret, shown

_SHORTEST: Final = 4
"""A shorter text is in every second word: hiding it would hide the error, and show where it stands."""


class Redaction:
    """Hides `secrets`, and users and passwords of URLs, in a text, in any case, also where it quotes them as
    Python, JSON or a URL does."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms: set[str] = set()
        for secret in secrets:
            for form in (secret, secret.strip(), *secret.splitlines()):
                if len(form) >= _SHORTEST:
                    forms |= _forms(form)
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        found = "|".join(map(re.escape, longest_first))
        self._pattern = re.compile(found, re.IGNORECASE) if found else None

    def __call__(self, text: str) -> str:
        return without_user_info(text if self._pattern is None else self._pattern.sub(HIDDEN, text))

    def value(self, value: Any) -> Any:
        """A value of JSON without the secrets in its texts."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, Mapping):
            return {self.value(key): self.value(each) for key, each in value.items()}
        return [self.value(each) for each in value] if isinstance(value, list | tuple) else value

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Errors within the block come out without the secrets. Raises ConfigurationError in place of one that is not
        acktrail's: a plug-in's own, which may show anything."""
        try:
            yield
        except AcktrailError as error:
            raise self.error(error) from None
        except Exception as error:  # noqa: BLE001  # a plug-in raises what it likes
            raise ConfigurationError(self(f"{type(error).__name__}: {error}")) from None

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


def _forms(text: str) -> set[str]:
    """A text as it is quoted. In some scripts a letter's other case depends on the whole text: both are made."""
    cases = {text, text.upper(), text.lower()}
    return {
        form
        for each in cases
        for form in (
            each,
            repr(each)[1:-1],
            json.dumps(each)[1:-1],
            json.dumps(each, ensure_ascii=False)[1:-1],
            quote(each, safe="", errors="replace"),
            quote(each, errors="replace"),
            quote_plus(each, errors="replace"),
        )
    }


def secrets_of(given: Mapping[str, Any], resolved: Mapping[str, Any], passwords: Collection[str] = ()) -> list[str]:
    """The secrets of a configuration: what a reference led to, and texts of keys whose name or type (`passwords`) says
    that they are secret; users and passwords of URLs."""
    found = []
    for name, value in resolved.items():
        is_one = (name in passwords or is_secret(name)) and not is_reference(value)
        if isinstance(value, str) and (given.get(name) != value or is_one):
            found.append(value)
        if isinstance(value, str):
            logins = user_info(value)
            found += [*logins, *(each.partition(":")[2] for each in logins)]
    return found


def shown_text(name: str, kind: ConfigType | None, text: Any) -> Any:
    """A configured text as it may be shown: a password is hidden unless it is a reference to one."""
    if kind is ConfigType.PASSWORD and text and not is_reference(text):
        return HIDDEN
    return shown(name, text)
