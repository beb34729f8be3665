"""Where a run's Spark is, out of an Airflow connection.

The Spark provider's connections are read, without the provider: it needs ``pyspark-client``, which installs over the
modules of ``pyspark``.
"""

from __future__ import annotations

from urllib.parse import quote

from airflow.sdk.log import mask_secret

from acktrail.errors import ConfigurationError
from acktrail_dags.run_target import airflow_connection

_CONNECT_PORT = 15002


def spark_master(conn_id: str | None) -> str | None:
    """The master that the Airflow connection `conn_id` describes, for ``executors_on``; None without one.

    Types ``spark`` (host: ``local[4]``, ``yarn``, ``spark://host`` or ``k8s://...``, with a port) and ``spark_connect``
    (host and port of a Spark Connect server, login as its user, password as its token, ``use_ssl`` in the extra), as
    the Spark provider has them. The token is masked in every later log line. Raises ConfigurationError: there is no
    such connection, it names no host, or asks for a driver on the cluster, from which no result comes back.
    """
    if conn_id is None:
        return None
    how_to = f"airflow connections add {conn_id} --conn-type spark --conn-host spark://HOST --conn-port 7077"
    found = airflow_connection(conn_id, how_to)
    if found.extra_dejson.get("deploy-mode") == "cluster":
        hint = "name a Spark Connect server (type spark_connect), where the driver is off the worker"
        raise ConfigurationError(f"the Airflow connection {conn_id!r} asks for a driver on the cluster", hint=hint)
    if not found.host:
        raise ConfigurationError(f"the Airflow connection {conn_id!r} names no Spark", hint=how_to)
    if found.conn_type == "spark_connect" or found.host.startswith("sc://"):
        if found.password:
            mask_secret(found.password)
        use_ssl = "true" if found.extra_dejson.get("use_ssl") in (True, "true") else None
        said = {"use_ssl": use_ssl, "user_id": found.login, "token": found.password}
        texts = ";".join(f"{name}={quote(str(value))}" for name, value in said.items() if value)
        return f"sc://{found.host.removeprefix('sc://')}:{found.port or _CONNECT_PORT}/;{texts}".rstrip("/;")
    return f"{found.host}:{found.port}" if found.port else str(found.host)
