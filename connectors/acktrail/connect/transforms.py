"""Transforms of batches on their way from source to sink: Connect's single message transforms, for Arrow tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa

from acktrail.connect.config_def import ConfigDef


class Transform(ABC):
    """Changes the rows of a batch. One object for one task; called by one thread."""

    config_def: ClassVar[ConfigDef]
    description: ClassVar[str] = ""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Keep the parsed configuration."""
        self.config = config

    @abstractmethod
    def apply(self, table: str, rows: pa.Table) -> tuple[str, pa.Table]:
        """The table that `rows` go to, and what becomes of them. Rows that are left out count as filtered.

        Traps: rows must keep the types of their columns, or the sink refuses them; the same rows must give the same
        result, or a restart changes what was committed.
        """
