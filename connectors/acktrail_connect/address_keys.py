"""Keys of connectors that say where a cluster and where tables are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from acktrail.config import KafkaConfig, TablesConfig
from acktrail_connect.config_def import keys_in, under

KAFKA_KEYS: Final = keys_in(__package__, "cluster_keys.toml")
TABLES_KEYS: Final = keys_in(__package__, "tables_keys.toml")
_OPTION: Final = "option."
_PREFIX: Final = "kafka."
_SERVERS: Final = "bootstrap.servers"
_TIMEOUT: Final = "request.timeout.ms"


def tables_config(config: Mapping[str, Any]) -> TablesConfig:
    """Where the tables of a parsed configuration are."""
    options = {name: str(value) for name, value in under(config, _OPTION).items()}
    return TablesConfig(uri=config["tables"], options=options)


def kafka_config(config: Mapping[str, Any]) -> KafkaConfig:
    """How to reach the cluster of a connector's parsed configuration."""
    own = under(config, _PREFIX)
    servers, timeout = own.pop(_SERVERS), own.pop(_TIMEOUT)
    properties = {name: str(value) for name, value in own.items()}
    return KafkaConfig(bootstrap_servers=servers, properties=properties, request_timeout_ms=timeout)
