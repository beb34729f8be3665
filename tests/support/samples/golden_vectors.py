"""The vectors of ``tests/support/golden`` by name; see PROVENANCE.md there."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Final

__all__ = ["GOLDEN", "SEED", "example", "typed", "typed_vectors", "vector", "wire"]

GOLDEN: Final = Path(__file__).parents[1] / "golden"
SEED: Final[dict[str, Any]] = json.loads((GOLDEN / "seed_examples.json").read_text("utf-8"))


def example(name: str) -> dict[str, Any]:
    """One example table."""
    return next(table for table in SEED["examples"] if table["id"] == name)


def vector(name: str) -> dict[str, Any]:
    """One derived vector."""
    return next(found for found in SEED["derived_vectors"] if found["id"] == name)


def wire(name: str) -> bytes:
    """The bytes of one wire vector."""
    return bytes.fromhex(next(found for found in SEED["wire_vectors"]["vectors"] if found["id"] == name)["hex"])


def typed_vectors(file: Path) -> list[dict[str, Any]]:
    """The vectors of a file that were typed from a document."""
    (vectors,) = tomllib.loads(file.read_text("utf-8")).values()
    found: list[dict[str, Any]] = vectors
    return found


def typed(text: str) -> bytes:
    """The bytes at the beginning of each line; the rest of it names the field."""
    return b"".join(bytes.fromhex(line.split(maxsplit=1)[0]) for line in text.splitlines())
