"""The id under which one run's rows lie in the tables."""

from __future__ import annotations

import hashlib
import re
from typing import Final

__all__ = ["table_run_id"]

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9]+")
_LONGEST: Final = 60


def table_run_id(dag_id: str, dag_run_id: str, try_number: int) -> str:
    """A run id of letters, digits and ``-``, at most 80 long, for one try of one DAG run.

    Different arguments give different ids (a digest tells apart what looks alike once it is cleaned). A second try
    gets an id of its own: its observation must not mix with what the first one left.
    """
    digest = hashlib.sha256(f"{dag_id}\0{dag_run_id}\0{try_number}".encode()).hexdigest()[:12]
    readable = _UNSAFE.sub("-", dag_run_id).strip("-")[:_LONGEST].strip("-")
    return f"{readable}-{digest}" if readable else digest
