"""Jars that tests need and nobody ships, fetched once as Kafka's jars are and kept in the user's cache."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from acktrail import config
from acktrail.atomic_files import sha256_of
from acktrail.errors import RetryableError
from acktrail.java import find_java
from acktrail_embedded.kafka.installation import dependency, retrieve

__all__ = ["fetched_jars"]


def fetched_jars(name: str, jars: Mapping[tuple[str, str, str], str]) -> Path:
    """The folder with `jars` (by coordinates, the sha256) and no others. Skips where they cannot be fetched."""
    kept = config.cache_folder() / name
    kept.mkdir(parents=True, exist_ok=True)
    wanted = {f"{module}-{revision}.jar": digest for (_, module, revision), digest in jars.items()}
    if _found(kept) != wanted:
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            dependencies = [dependency(*coordinates) for coordinates in jars]
            try:
                retrieve(dependencies, Path(folder, "jars"), java=find_java(), folder=Path(folder, "ivy"))
            except RetryableError as error:
                pytest.skip(f"{name} cannot be fetched here: {error.message}")
            for fetched in Path(folder, "jars").glob("*/*.jar"):
                fetched.replace(kept / fetched.name)
        assert _found(kept) == wanted
    return kept


def _found(folder: Path) -> dict[str, str]:
    return {file.name: sha256_of(file) for file in folder.iterdir()}
