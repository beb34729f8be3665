"""What Airflow shows of this provider: its connection type with the fields of the form, hook and modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

CONN_TYPE: Final = "acktrail_kafka"
HOOK_NAME: Final = "Apache Kafka share groups"
_TEXT: Final = ["string", "null"]
_PROTOCOLS: Final = ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
_MECHANISMS: Final = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]

FORM: Final[Mapping[str, Any]] = {
    "hidden-fields": ["schema"],
    "relabeling": {
        "host": "Brokers",
        "login": "User (sasl.username)",
        "password": "Password (sasl.password)",
        "extra": "More client properties",
    },
    "placeholders": {
        "host": "broker-1:9092,broker-2:9092",
        "port": "9092",
        "extra": '{"ssl.ca.location": "/etc/ca.pem"}',
    },
}
"""Which standard fields the form has, and what they are called there."""

FIELDS: Final[Mapping[str, Any]] = {
    "security.protocol": {
        "label": "Security protocol",
        "description": "Empty: PLAINTEXT",
        "schema": {"type": _TEXT, "enum": [*_PROTOCOLS, None]},
    },
    "sasl.mechanism": {
        "label": "SASL mechanism",
        "description": "With SASL_PLAINTEXT and SASL_SSL",
        "schema": {"type": _TEXT, "enum": [*_MECHANISMS, None]},
    },
    "ssl.ca.location": {
        "label": "CA certificates",
        "description": "A PEM file on workers, triggerer and API server. Empty: the system's",
        "schema": {"type": _TEXT},
    },
}
"""Fields of the form that are kept in the connection's extra, by Kafka's names."""


def get_provider_info() -> dict[str, Any]:
    """Return what the entry point ``apache_airflow_provider`` gives."""
    return {
        "package-name": "acktrail",
        "name": "acktrail",
        "description": "Waits for share groups of Apache Kafka, and changes where they begin.",
        "hooks": [{"integration-name": HOOK_NAME, "python-modules": ["acktrail_provider.hooks"]}],
        "sensors": [{"integration-name": HOOK_NAME, "python-modules": ["acktrail_provider.sensors"]}],
        "operators": [{"integration-name": HOOK_NAME, "python-modules": ["acktrail_provider.operators"]}],
        "triggers": [{"integration-name": HOOK_NAME, "python-modules": ["acktrail_provider.triggers"]}],
        "integrations": [{"integration-name": HOOK_NAME, "tags": ["service"]}],
        "connection-types": [
            {
                "connection-type": CONN_TYPE,
                "hook-class-name": "acktrail_provider.hooks.ShareGroupHook",
                "hook-name": HOOK_NAME,
                "ui-field-behaviour": dict(FORM),
                "conn-fields": dict(FIELDS),
            }
        ],
    }
