"""JSON for programs: one object a line, harmless to terminals and to programs that split text into lines; errors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

import typer

from acktrail.errors import AcktrailError
from acktrail.times import utc_text

_STEERING: Final = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
"""What JSON leaves as it is although it steers a terminal, turns text around, hides in it, or ends a line for some."""


def json_line(form: object) -> str:
    """`form` on one line, readable text as it is, everything that steers escaped; instants in UTC to the millisecond.
    Equal to `form` once parsed."""
    text = json.dumps(form, ensure_ascii=False, separators=(",", ":"), default=lambda at: utc_text(at, "milliseconds"))
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def echo_rows(forms: Iterable[object]) -> None:
    """Things of one kind on stdout, one object a line; no line where there is none."""
    for form in forms:
        typer.echo(json_line(form))


def error_json(error: AcktrailError) -> dict[str, Any]:
    """`error` as plain data: class name, message, hint, exit code and data."""
    return {
        "type": type(error).__name__,
        "message": error.message,
        "hint": error.hint,
        "exit_code": error.exit_code,
        "data": json.loads(json.dumps(error.data, default=str)),
    }


def wants_json(arguments: list[str]) -> bool:
    """Whether a command line asks for JSON; what follows ``--`` are names, not options."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options
