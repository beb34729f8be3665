"""The vectors of ``tests/support/golden/seed_examples.json`` by name; see PROVENANCE.md beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

__all__ = ["SEED", "example", "vector", "wire"]

SEED: Final[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "golden/seed_examples.json").read_text("utf-8"))


def example(name: str) -> dict[str, Any]:
    """One example table."""
    return next(table for table in SEED["examples"] if table["id"] == name)


def vector(name: str) -> dict[str, Any]:
    """One derived vector."""
    return next(found for found in SEED["derived_vectors"] if found["id"] == name)


def wire(name: str) -> bytes:
    """The bytes of one wire vector."""
    return bytes.fromhex(next(found for found in SEED["wire_vectors"]["vectors"] if found["id"] == name)["hex"])
