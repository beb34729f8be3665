"""The parameters people may set when they trigger a DAG, each with its JSON schema."""

from __future__ import annotations

from typing import Final

from airflow.sdk import Param

__all__ = ["DEFAULT_KAFKA_CONN_ID", "kafka_conn_id", "report_folder", "spark_master", "tables_uri"]

DEFAULT_KAFKA_CONN_ID: Final = "acktrail_kafka"
_CONN_ID: Final = r"^[\w.-]{1,250}$"
_NO_CREDENTIALS: Final = r"^(?!\w+://[^/]*@)\S(.*\S)?$"
_CONNECT: Final = r"sc://[\w.-]+(:\d{1,5})?(/(;(use_ssl|user_id)=[\w.@-]+)*)?"
_MASTER: Final = rf"^(local(\[(\d+|\*)(,\d+)?\])?|yarn|(spark|k8s)://\S+|{_CONNECT})$"


def kafka_conn_id(default: str | None, description: str) -> Param:
    """The Airflow connection to a cluster."""
    return _text(default, title="Kafka connection", description=description, pattern=_CONN_ID)


def tables_uri(description: str) -> Param:
    """The root of the tables; one that carries credentials is refused."""
    return _text(None, title="Tables", description=description, pattern=_NO_CREDENTIALS)


def spark_master() -> Param:
    """Where PySpark runs. A token of a Spark Connect server is refused here: the worker's environment has it
    (SPARK_CONNECT_AUTHENTICATE_TOKEN)."""
    return Param(
        "local[2]",
        type="string",
        title="Spark master",
        description="local[N], spark://, k8s://, yarn, or a Spark Connect server: sc://host:15002",
        pattern=_MASTER,
    )


def report_folder() -> Param:
    """Where the HTML report goes."""
    description = "Folder for the HTML report. Empty: what ACKTRAIL_REPORTS says on the worker."
    return _text(None, title="Report folder", description=description, pattern=_NO_CREDENTIALS)


def _text(default: str | None, *, title: str, description: str, pattern: str) -> Param:
    kinds = ["null", "string"] if default is None else "string"
    return Param(default, type=kinds, title=title, description=description, pattern=pattern, maxLength=1024)
