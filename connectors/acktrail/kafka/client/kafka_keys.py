"""The configuration keys with which a connector reaches a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from acktrail.config import KafkaConfig
from acktrail.connect.config_def import ConfigDef, ConfigKey, Importance, NonEmpty
from acktrail.connect.config_values import ConfigType, under
from acktrail.secrets import resolved_properties

_PREFIX: Final = "kafka."
_SERVERS: Final = "bootstrap.servers"
_FILE: Final = "client.config"
_TIMEOUT: Final = "request.timeout.ms"

KAFKA_KEYS: Final = ConfigDef(
    [
        ConfigKey(
            name=_PREFIX + _SERVERS,
            type=ConfigType.STRING,
            documentation="Brokers, host:port[,host:port].",
            importance=Importance.HIGH,
            validator=NonEmpty(),
            group="Kafka",
        ),
        ConfigKey(
            name=_PREFIX + _FILE,
            type=ConfigType.STRING,
            default=None,
            documentation="A file with key=value lines for the Kafka clients; keys given here win over it.",
            importance=Importance.MEDIUM,
            group="Kafka",
            lines_under=_PREFIX,
        ),
        ConfigKey(
            name=_PREFIX + _TIMEOUT,
            type=ConfigType.INT,
            default=30_000,
            documentation="Milliseconds that a broker has for a response.",
            importance=Importance.LOW,
            group="Kafka",
        ),
    ],
    {_PREFIX: "any property of Kafka's clients: security.protocol, sasl.*, ssl.* ..."},
)


def kafka_config(config: Mapping[str, Any]) -> KafkaConfig:
    """How to reach the cluster of a connector's parsed configuration. Raises ConfigurationError when the file cannot be
    read."""
    own = under(config, _PREFIX)
    servers, file, timeout = own.pop(_SERVERS), own.pop(_FILE), own.pop(_TIMEOUT)
    properties = {} if file is None else resolved_properties(Path(file))
    properties |= {name: str(value) for name, value in own.items()}
    return KafkaConfig(bootstrap_servers=servers, properties=properties, request_timeout_ms=timeout)
