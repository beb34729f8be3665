"""Where releases of the share coordinator differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorRules:
    """One release's rules. Releases before 4.3 are not modelled.

    `unchecked_epochs`: an epoch that is not given is not checked; else it is an INVALID_REQUEST.
    `guarded_progress`: start offset and complete count never go back; else they are taken as a request gives them.
    `idempotent_initialize`: an initialize that would change neither state epoch nor start offset writes nothing.
    """

    release: str
    unchecked_epochs: bool
    guarded_progress: bool
    idempotent_initialize: bool


KAFKA_4_3: Final = CoordinatorRules(
    release="4.3", unchecked_epochs=True, guarded_progress=False, idempotent_initialize=False
)
KAFKA_4_4: Final = CoordinatorRules(
    release="4.4", unchecked_epochs=False, guarded_progress=True, idempotent_initialize=False
)
KAFKA_TRUNK: Final = CoordinatorRules(
    release="trunk", unchecked_epochs=False, guarded_progress=True, idempotent_initialize=True
)
"""Kafka after 4.4, not released yet."""
