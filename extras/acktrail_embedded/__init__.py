"""A real Kafka broker and a real Airflow in a folder: processes that end with their owner."""

from acktrail_embedded.kafka.embedded_broker import BrokerNotStarted, EmbeddedBroker
from acktrail_embedded.kafka.installation import DEFAULT_VERSION, RELEASES
from acktrail_embedded.process.guarded_process import GuardedProcess

__all__ = ["DEFAULT_VERSION", "RELEASES", "BrokerNotStarted", "EmbeddedBroker", "GuardedProcess"]
