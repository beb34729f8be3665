"""Errors as JSON, for programs."""

from __future__ import annotations

import json
from typing import Any

from acktrail.errors import AcktrailError

__all__ = ["error_json", "wants_json"]


def error_json(error: AcktrailError) -> dict[str, Any]:
    """`error` as plain data: class name, message, hint, exit code, and what it is about."""
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
