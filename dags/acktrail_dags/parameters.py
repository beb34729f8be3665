"""The fields of the DAGs' forms, each with a title, a help text and a JSON schema."""

from __future__ import annotations

from typing import Any, Final

from airflow.sdk import Param

DEFAULT_KAFKA_CONN_ID: Final = "acktrail_kafka"

DURATION: Final = r"^P(?=.)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d{1,9})?S)?)?$"
"""A duration of ISO 8601 in days, hours, minutes and seconds."""

AGE: Final = r"^[1-9][0-9]{0,8}[smhd]$"
"""A number with a unit: s, m, h or d."""

NO_CREDENTIALS: Final = r"^(?!\w+://[^/]*@)\S(.*\S)?$"
"""A folder or URI; one that carries credentials is refused."""

PLAN_ID: Final = r"^[A-Za-z0-9-]{1,80}$"

_CONNECT: Final = r"sc://[\w.-]+(:\d{1,5})?(/(;(use_ssl|user_id)=[\w.@-]+)*)?"
SPARK_MASTER: Final = rf"^(local(\[(\d+|\*)(,\d+)?\])?|yarn|(spark|k8s)://\S+|{_CONNECT})$"
"""A master without a Spark Connect token: the worker's environment holds that (SPARK_CONNECT_AUTHENTICATE_TOKEN)."""

TOPIC_NAME: Final = r"^[A-Za-z0-9._-]{1,249}$"

_CONN_ID: Final = r"^[\w.-]{1,250}$"
_TOPIC: Final = r"^[A-Za-z0-9._-]{1,249}(:\d{1,10}(,\d{1,10})*)?$"
_LONGEST_WAIT_S: Final = 3600
_WAIT: Final = "Seconds to wait for the last member to leave (a killed one counts until its session ends)."
_WATCH: Final = "Seconds to watch that the new start offsets are not overwritten."


def _param(kind: str, title: str, description: str, default: Any, **schema: Any) -> Param:
    """Empty unless it has a `default`. `schema`: further keywords of JSON Schema."""
    kinds = ["null", kind] if default is None else kind
    return Param(default, type=kinds, title=title, description=description, **schema)


def text(title: str, description: str, *, default: str | None = None, **schema: Any) -> Param:
    return _param("string", title, description, default, **{"maxLength": 1024, **schema})


def number(
    title: str, description: str, *, minimum: int = 0, maximum: int = (1 << 63) - 1, default: int | None = None
) -> Param:
    return _param("integer", title, description, default, minimum=minimum, maximum=maximum)


def flag(title: str, description: str, *, default: bool = False) -> Param:
    return _param("boolean", title, description, default)


def names(title: str, description: str, pattern: str = ".") -> Param:
    """A list of distinct texts."""
    items = {"type": "string", "minLength": 1, "maxLength": 4096, "pattern": pattern}
    return Param([], type=["null", "array"], items=items, uniqueItems=True, title=title, description=description)


def topics(description: str) -> Param:
    """Topics, or partitions of topics (``TOPIC:0,2``)."""
    return names("Topics", description, _TOPIC)


def kafka_conn_id(default: str | None = DEFAULT_KAFKA_CONN_ID, *, empty: str = "") -> Param:
    """The Airflow connection to a cluster. `empty`: what is used without one."""
    return text("Kafka connection", f"Airflow connection to the cluster. {empty}", default=default, pattern=_CONN_ID)


def tables_uri(*, empty: str = "ACKTRAIL_TABLES of the worker") -> Param:
    """The root of the tables. `empty`: what is used without one."""
    return text("Tables", f"Folder or object-storage URI. Empty: {empty}.", pattern=NO_CREDENTIALS)


def key_order_fields() -> dict[str, Param]:
    """What becomes of the order of keys where partitions became more."""
    return {
        "ordering": text(
            "Order of keys",
            "For topics whose partitions became more: strict refuses what breaks the order of records of one key, warn "
            "plans it with a warning. Empty: strict for the groups in ACKTRAIL_ORDERED_GROUPS.",
            enum=[None, "strict", "warn"],
        ),
        "phases": flag(
            "In phases",
            "Partitions wait at the ends of their logs until those they depend on are finished; a second run with this "
            "plan under Next phase of sets them, and the group stops a second time.",
        ),
        "next_phase_of": text(
            "Next phase of",
            "A plan that was made In phases and carried out. Leave groups, topics and Where to empty.",
            pattern=PLAN_ID,
        ),
    }


def spark_master() -> Param:
    """Where PySpark runs."""
    about = "local[N], spark://, k8s://, yarn, or a Spark Connect server: sc://host:15002"
    return text("Spark master", about, default="local[2]", pattern=SPARK_MASTER)


def execution_fields(conn_id: str = DEFAULT_KAFKA_CONN_ID) -> dict[str, Param]:
    """Where, whether and how a plan is executed. `conn_id`: the connection to the cluster."""
    return {
        "dry_run": flag("Dry run", "Plan, preview and check, then end. Nothing is changed.", default=True),
        "partial": flag("Partial", "Execute what no refusal is about, and leave the rest."),
        "wait_for_empty_s": number("Wait for an empty group", _WAIT, default=0, maximum=_LONGEST_WAIT_S),
        "watch_s": number("Watch afterwards", _WATCH, default=5, maximum=_LONGEST_WAIT_S),
        "reason": text("Reason", "Kept in the plan and the audit.", maxLength=1000),
        "kafka_conn_id": kafka_conn_id(conn_id),
        "tables_uri": tables_uri(),
    }
