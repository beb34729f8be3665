"""Tokens and passwords that callers of a listener send: long enough, and in files that only their owner may read."""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from acktrail.errors import ConfigurationError
from acktrail.secrets import Password, is_foreign

LEAST_TOKEN: Final = 16
_MADE_BYTES: Final = 32
_LARGEST_BYTES: Final = 4_096


def checked_token(token: str, what: str) -> Password:
    """A token or a password, which `what` names in errors. Raises ConfigurationError: it can be guessed."""
    if len(token) < LEAST_TOKEN:
        message = f"{what} has fewer than {LEAST_TOKEN} characters"
        raise ConfigurationError(message, hint="make one: openssl rand -hex 24")
    return Password(token)


def token_in(file: Path, what: str) -> Password:
    """The token in `file`, without blanks around it. Raises ConfigurationError: it cannot be read, others may read or
    own the file, or the token is too short."""
    try:
        with file.open("rb") as opened:
            found = os.fstat(opened.fileno())
            mode = stat.S_IMODE(found.st_mode)
            text = opened.read(_LARGEST_BYTES).decode("utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {what} in {file}", hint="name a text file") from error
    if is_foreign(found):
        message = f"another user owns the file of {what}, and can read or write it: {file}"
        raise ConfigurationError(message, hint=f"chown it to user {os.geteuid()}, and chmod 600")
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        message = f"other users can read or write {what}: {file} has mode {mode:04o}"
        raise ConfigurationError(message, hint=f"chmod 600 {file}, or give it in an environment variable")
    return checked_token(text, f"{what} in {file}")


def kept_token(file: Path, what: str, *, hint: str) -> Password:
    """The token in `file`; where there is no such file, a new one is made and kept there for its owner only. Raises
    ConfigurationError as `token_in`, and, with `hint`, where it cannot be kept."""
    try:
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.NamedTemporaryFile("w", dir=file.parent, prefix=".acktrail-") as draft:  # of mode 0600
                draft.write(secrets.token_urlsafe(_MADE_BYTES) + "\n")
                draft.flush()
                with suppress(FileExistsError):  # another process was faster: its token is the one
                    os.link(draft.name, file)
    except OSError as error:
        raise ConfigurationError(f"cannot keep {what} in {file}: {error.strerror}", hint=hint) from error
    return token_in(file, what)
