"""The fields of the DAGs' forms, and for which clusters the DAGs are made: for one, or for each of several profiles.

Each field has a title, a help text and a JSON schema. What ``ACKTRAIL_DAG_PROFILES`` names is all that a DAG file
needs: no file of profiles, no connection and no network is used while it is parsed. So a profile that is wrong has its
DAGs like any other; their first task fails and says why.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from airflow.sdk import Param

from acktrail.config import dag_profiles as profile_names
from acktrail_dags.allowed_places import allowed_folders, allowed_places, allowed_spark
from acktrail_provider.cluster_connection import DEFAULT_KAFKA_CONN_ID

DURATION: Final = r"^P(?=.)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d{1,9})?S)?)?$"
"""A duration of ISO 8601 in days, hours, minutes and seconds."""

AGE: Final = r"^[1-9][0-9]{0,8}[smhd]$"
"""A number with a unit: s, m, h or d."""

NO_CREDENTIALS: Final = r"^(?!\w+://[^/]*@)\S(.*\S)?$"
"""A folder or URI; one that carries credentials is refused."""

PLAN_ID: Final = r"^[A-Za-z0-9-]{1,80}$"

TOPIC_NAME: Final = r"^[A-Za-z0-9._-]{1,249}$"

_CONN_ID: Final = r"^[\w.-]{1,250}$"
_TOPIC: Final = r"^[A-Za-z0-9._-]{1,249}(:\d{1,10}(,\d{1,10})*)?$"
_RULE: Final = r"^[a-z_]{1,80}$"
_LONGEST_WAIT_S: Final = 3600
_WAIT: Final = "Seconds to wait for the last member to leave (a killed one counts until its session ends)."
_WATCH: Final = "Seconds to watch that the new start offsets are not overwritten."


STRATEGIES: Final[Mapping[str, tuple[str | None, str]]] = {
    "to-earliest": (None, "the start of the log"),
    "to-latest": (None, "the end of the log"),
    "to-offset": ("offset", "an offset"),
    "to-datetime": ("datetime", "the first record of a date and time"),
    "by-duration": ("duration", "the first record of a time before now"),
    "shift-by": ("shift_by", "a number of records forward or back"),
    "to-current": (None, "where it is, with new delivery counts"),
    "from-file": ("file", "the offsets of a file"),
    "to-history": ("datetime", "where the group was at a date and time"),
}
"""Each strategy, the field of the form that holds its value (None: it takes none), and what it means."""
_OPTIONAL: Final = {"kafka_conn_id": "Kafka connection", "tables_uri": "Tables", "file": "File of offsets"}
"""Titles of fields that a form only has where the deployment allows something."""
_COMMAND_OR_OPTION: Final = re.compile(r"`[^`]*`|acktrail [^,;:()]*|--[a-z][a-z-]*")
_UNSAFE: Final = re.compile(r"[^a-z0-9]+")
_LONGEST: Final = 64
_RETRY_DELAY: Final = timedelta(seconds=15)


def _param(kind: str, title: str, description: str, default: Any, *, required: bool = False, **schema: Any) -> Param:
    """Empty unless it has a `default`, or is `required`: a run without a value is refused. `schema`: further keywords
    of JSON Schema."""
    given = {"title": title, "description": description, **schema}
    if required:
        return Param(type=kind, **given)
    return Param(default, type=["null", kind] if default is None else kind, **given)


def text(title: str, description: str, *, default: str | None = None, **schema: Any) -> Param:
    return _param("string", title, description, default, **{"maxLength": 1024, **schema})


def number(
    title: str,
    description: str,
    *,
    default: int | None = None,
    minimum: int = 0,
    maximum: int = (1 << 63) - 1,
    **more: Any,
) -> Param:
    return _param("integer", title, description, default, minimum=minimum, maximum=maximum, **more)


def flag(title: str, description: str, *, default: bool = False) -> Param:
    return _param("boolean", title, description, default)


def choice(title: str, description: str, values: Mapping[str, str]) -> Param:
    """One of `values`, which are shown as what they mean; a run without one is refused."""
    return text(title, description, required=True, enum=[*values], values_display=dict(values))


def names(title: str, description: str, pattern: str = ".", *, required: bool = False) -> Param:
    """A list of distinct texts."""
    items = {"type": "string", "minLength": 1, "maxLength": 4096, "pattern": pattern}
    listed: dict[str, Any] = {"items": items, "uniqueItems": True, "title": title, "description": description}
    return Param(type="array", minItems=1, **listed) if required else Param([], type=["null", "array"], **listed)


def section(title: str, **fields: Param) -> dict[str, Param]:
    """`fields` under a heading of the form; those without one stand first."""
    for field in fields.values():
        field.schema["section"] = title
    return fields


def topics(description: str) -> Param:
    """Topics, or partitions of topics (``TOPIC:0,2``)."""
    return names("Topics", description, _TOPIC)


def tables_field(empty: str = "ACKTRAIL_TABLES of the worker") -> dict[str, Param]:
    """The root of the tables; no field where the deployment allows no other. `empty`: what is used without one."""
    allowed = [tables for _, tables in allowed_places()]
    about = f"Folder or object-storage URI, of those that the workers allow. Empty: {empty}."
    return (
        {"tables_uri": text(_OPTIONAL["tables_uri"], about, pattern=NO_CREDENTIALS, examples=allowed)}
        if allowed
        else {}
    )


def place_fields(
    conn_id: str = DEFAULT_KAFKA_CONN_ID, empty: str = "ACKTRAIL_TABLES of the worker"
) -> dict[str, Param]:
    """The cluster and its tables; no fields where the deployment allows no others. `conn_id` and `empty`: what is used
    without them."""
    allowed = [connection for connection, _ in allowed_places()]
    about = f"Airflow connection to the cluster, of those that the workers allow. Empty: {conn_id}."
    found = {"kafka_conn_id": text(_OPTIONAL["kafka_conn_id"], about, pattern=_CONN_ID, examples=allowed)}
    return {**found, **tables_field(empty)} if allowed else {}


def reset_form(conn_id: str = DEFAULT_KAFKA_CONN_ID) -> dict[str, Param]:
    """The form of a reset. `conn_id`: the connection to the cluster."""
    values = {name: f"{name}: {meaning}" for name, (_, meaning) in STRATEGIES.items()}
    return {
        "groups": names("Share groups", "Their ids, one per line. They must have no members.", required=True),
        "topics": topics("One per line: TOPIC for all its partitions, TOPIC:0,2 for some. Empty with All topics."),
        "all_topics": flag("All topics", "Every topic for which the group has a start offset."),
        "strategy": choice("Where to", "Named like the options of kafka-share-groups.sh. Some need a value.", values),
        **of_every_change(),
        **section("The value of Where to", **_values()),
        **section(
            "What is allowed",
            allow_skip=flag("Allow skipping", "Records below the new start offset are never delivered to the group."),
            allow=names("Allow rules", "Rules whose refusals say that --allow allows them, one per line.", _RULE),
            partial=_partial(),
        ),
        **_execution(conn_id),
    }


def rollback_form(conn_id: str = DEFAULT_KAFKA_CONN_ID) -> dict[str, Param]:
    """The form of an undo. `conn_id`: the connection to the cluster."""
    about = "Id of a plan that was executed: acktrail change list shows them."
    return {
        "plan_id": text("Plan to undo", about, required=True, pattern=PLAN_ID),
        "topics": topics("Only these: TOPIC or TOPIC:0,2, one per line. Empty: all of the plan."),
        **of_every_change(),
        **section(
            "What is allowed",
            allow_moved_on=flag("Allow what moved on", "Also undo what changed again since the plan."),
            partial=_partial(),
        ),
        **_execution(conn_id),
    }


def of_every_change() -> dict[str, Param]:
    """The fields that the form of each kind of change has."""
    return {
        "dry_run": flag("Dry run", "Plan, preview and check, then end. Nothing is changed.", default=True),
        "reason": text("Reason", "Kept in the plan and the audit.", maxLength=1000),
    }


def _partial() -> Param:
    return flag("Partial", "Execute what no refusal is about, and leave the rest.")


def _values() -> dict[str, Param]:
    moment = "For to-datetime and to-history, with its time zone: 2026-03-01T08:00:00+01:00."
    ago = "For by-duration: the time before now, in ISO 8601, such as PT2H or P1DT30M."
    file = "For from-file: a CSV in a folder that the workers allow, as kafka-share-groups.sh reads it."
    return {
        "offset": number("Offset", "For to-offset: the offset of the next record to deliver."),
        "shift_by": number("Shift by", "For shift-by: records forward; negative: back.", minimum=-(1 << 63)),
        "datetime": text("Date and time", moment, format="date-time"),
        "duration": text("Duration", ago, pattern=DURATION),
        **({"file": text(_OPTIONAL["file"], file, examples=list(allowed_folders()))} if allowed_folders() else {}),
    }


def _execution(conn_id: str) -> dict[str, Param]:
    return {
        **section(
            "Waiting",
            wait_for_empty_s=number("Wait for an empty group", _WAIT, default=0, maximum=_LONGEST_WAIT_S),
            watch_s=number("Watch afterwards", _WATCH, default=5, maximum=_LONGEST_WAIT_S),
        ),
        **section("Cluster and tables", **place_fields(conn_id)),
    }


TITLES: Final[Mapping[str, str]] = {
    **_OPTIONAL,
    **{name: str(field.schema["title"]) for name, field in {**rollback_form(), **reset_form()}.items()},
}
"""What a field of the form of a reset, or of its undo, is called there."""

_OPTIONS: Final = {
    **{f"--{name.replace('_', '-')}": title for name, title in TITLES.items()},
    **{f"--{strategy}": f"{TITLES['strategy']}: {strategy}" for strategy in STRATEGIES},
    "--group": TITLES["groups"],
    "--topic": TITLES["topics"],
    "--tables": TITLES["tables_uri"],
}


def in_form_words(text: str) -> str:
    """A message with the titles of the form's fields for the options of the command line. Whole commands stay."""
    return _COMMAND_OR_OPTION.sub(lambda at: f"“{title}”" if (title := _OPTIONS.get(at[0])) else at[0], text)


def spark_field() -> dict[str, Param]:
    """The Airflow connection to Spark; no field where the deployment allows none."""
    empty = "Empty: ACKTRAIL_SPARK_MASTER of the worker, else two local threads."
    about = f"Airflow connection of type spark or spark_connect, of those that the workers allow. {empty}"
    allowed = list(allowed_spark())
    return {"spark_conn_id": text("Spark connection", about, pattern=_CONN_ID, examples=allowed)} if allowed else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class DagProfile:
    """One cluster's DAGs. `name` None: no profile is named, and everything is as without profiles. `suffix` is what
    the ids of several profiles' DAGs and assets end with; `kafka_conn_id` the Airflow connection to the cluster."""

    name: str | None = None
    suffix: str = ""
    kafka_conn_id: str = DEFAULT_KAFKA_CONN_ID

    def named(self, base: str) -> str:
        """`base` as the id of this profile's DAG or asset."""
        return base + self.suffix

    @property
    def folder(self) -> str:
        """Where this profile's pages are below those of all profiles; empty for a single one."""
        return self.suffix.strip("_")

    def settings(
        self, base: str, text: str | None, *tags: str, retries: int = 2, retry_delay: timedelta = _RETRY_DELAY
    ) -> dict[str, Any]:
        """What all DAGs have; `text` documents this one."""
        about, more = text or "", []
        if self.name is not None:
            ids = f" Ids of its DAGs and assets end with `{self.suffix}`." if self.suffix else ""
            about += f"\n**Profile**: `{self.name}`, Airflow connection `{self.kafka_conn_id}`.{ids}\n"
            more = [f"profile:{self.name}"[:_LONGEST]]
        return {
            "dag_id": self.named(base),
            "doc_md": about,
            "catchup": False,
            "max_active_runs": 1,
            "tags": ["acktrail", *tags, *more],
            "default_args": {"owner": "acktrail", "retries": retries, "retry_delay": retry_delay},
        }

    def params(self) -> dict[str, Param]:
        """The form's field that says which profile a run is for; none without profiles."""
        if self.name is None:
            return {}
        about = "The cluster that this DAG works on: its connection, tables and options."
        return {"profile": text("Profile", about, default=self.name, enum=[self.name])}


def dag_profiles() -> tuple[DagProfile, ...]:
    """Whose DAGs are made; a single one keeps the ids without a suffix."""
    names = profile_names()
    if not names:
        return (DagProfile(),)
    alike = Counter(map(_cleaned, names))
    endings = {name: _endings(name)[alike[_cleaned(name)] > 1] for name in names}
    return tuple(
        DagProfile(name=name, suffix=ending if len(names) > 1 else "", kafka_conn_id=DEFAULT_KAFKA_CONN_ID + ending)
        for name, ending in endings.items()
    )


def _endings(name: str) -> tuple[str, str]:
    """Return the suffix of a profile's ids, and the longer suffix for the case that two profiles have the same one."""
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"__{_cleaned(name)}", f"__{_cleaned(name)}_{digest}"


def _cleaned(name: str) -> str:
    """In lower case: environment variables that define connections have no case."""
    return _UNSAFE.sub("_", name.lower())[:_LONGEST]
