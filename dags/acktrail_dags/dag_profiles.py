"""For which clusters the DAGs are made: for one, or for each of several profiles under ids of their own.

What ``ACKTRAIL_DAG_PROFILES`` names is all that a DAG file needs: no file of profiles, no connection and no network is
used while it is parsed. So a profile that is wrong has its DAGs like any other; their first task fails and says why.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

from airflow.sdk import Param

from acktrail.config import dag_profiles as profile_names
from acktrail_dags import parameters

_UNSAFE: Final = re.compile(r"[^a-z0-9]+")
_LONGEST: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class DagProfile:
    """One cluster's DAGs. `name` None: no profile is named, and everything is as without profiles. `suffix` is what
    the ids of several profiles' DAGs and assets end with; `kafka_conn_id` the Airflow connection to the cluster."""

    name: str | None = None
    suffix: str = ""
    kafka_conn_id: str = parameters.DEFAULT_KAFKA_CONN_ID

    def named(self, base: str) -> str:
        """`base` as the id of this profile's DAG or asset."""
        return base + self.suffix

    @property
    def tags(self) -> list[str]:
        """Beside the tags of the DAG."""
        return [] if self.name is None else [f"profile:{self.name}"[:_LONGEST]]

    def doc(self, text: str) -> str:
        """A DAG's documentation, with what is its own."""
        if self.name is None:
            return text
        ids = f" Ids of its DAGs and assets end with `{self.suffix}`." if self.suffix else ""
        return f"{text}\n**Profile**: `{self.name}`, Airflow connection `{self.kafka_conn_id}`.{ids}\n"

    def params(self) -> dict[str, Param]:
        """The form's field that says which profile a run is for; none without profiles."""
        if self.name is None:
            return {}
        about = "The cluster that this DAG works on: its connection, tables and options."
        return {"profile": parameters.text("Profile", about, default=self.name, enum=[self.name])}


def dag_profiles() -> tuple[DagProfile, ...]:
    """Whose DAGs are made; one alone keeps the ids without a suffix."""
    names = profile_names()
    if not names:
        return (DagProfile(),)
    alike = Counter(map(_cleaned, names))
    endings = {name: _endings(name)[alike[_cleaned(name)] > 1] for name in names}
    return tuple(
        DagProfile(
            name=name,
            suffix=ending if len(names) > 1 else "",
            kafka_conn_id=parameters.DEFAULT_KAFKA_CONN_ID + ending,
        )
        for name, ending in endings.items()
    )


def own_connection(profile: str | None) -> str:
    """The Airflow connection that the DAGs of `profile` name by themselves."""
    return next((each.kafka_conn_id for each in dag_profiles() if each.name == profile), DagProfile().kafka_conn_id)


def _endings(name: str) -> tuple[str, str]:
    """What ids of a profile end with, and what they end with where another profile's would look the same."""
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"__{_cleaned(name)}", f"__{_cleaned(name)}_{digest}"


def _cleaned(name: str) -> str:
    """In lower case: environment variables that define connections have no case."""
    return _UNSAFE.sub("_", name.lower())[:_LONGEST]
