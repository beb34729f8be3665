"""`ShareGroupHook`: an admin client for share groups from an Airflow connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from acktrail.config import KafkaConfig
from acktrail.errors import AcktrailError
from acktrail_provider.cluster_connection import DEFAULT_KAFKA_CONN_ID, kafka_config
from acktrail_provider.provider_info import CONN_TYPE, FORM, HOOK_NAME
from acktrail_provider.task_errors import missing_package

if TYPE_CHECKING:
    from acktrail.kafka.admin import ShareGroupAdmin


class ShareGroupHook(BaseHook):
    """Connects to a cluster::

    with ShareGroupHook("acktrail_kafka").get_conn() as admin:
        admin.describe_group("billing").members
    """

    conn_name_attr = "kafka_conn_id"
    default_conn_name = DEFAULT_KAFKA_CONN_ID
    conn_type = CONN_TYPE
    hook_name = HOOK_NAME

    def __init__(self, kafka_conn_id: str = DEFAULT_KAFKA_CONN_ID, **settings: Any) -> None:
        super().__init__(**settings)
        self.kafka_conn_id = kafka_conn_id

    def config(self) -> KafkaConfig:
        """The client configuration; its secrets are masked in logs. Raises ConfigurationError."""
        return kafka_config(self.kafka_conn_id)

    def get_conn(self) -> ShareGroupAdmin:
        """A new client, which the caller closes. Raises ConfigurationError, Unreachable."""
        from acktrail.kafka.admin import ShareGroupAdmin

        return ShareGroupAdmin(self.config())

    def test_connection(self) -> tuple[bool, str]:
        """Whether the cluster answers and serves share groups, and one line for the person who asks."""
        try:
            with self.get_conn() as admin:
                able = admin.capabilities()
                count = len(admin.list_groups())
        except AcktrailError as error:
            return False, error.with_hint
        except ModuleNotFoundError as error:
            missing = missing_package(error)
            return False, missing.with_hint if missing else str(error)
        if not able.describes_share_groups:
            return False, f"Kafka {able.release} has no share groups; Kafka 4.2 or later has"
        return True, f"Kafka {able.release}, cluster {admin.cluster_id}: {count} share groups may be described"

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """The form for Airflow 3.1, which reads it from the hook."""
        return {name.replace("-", "_"): value for name, value in FORM.items()}
