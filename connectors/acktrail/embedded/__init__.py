"""A real Kafka broker in a folder, and processes that end with their owner."""

from acktrail.embedded.broker import EmbeddedBroker
from acktrail.embedded.installation import KafkaTool
from acktrail.embedded.node import BrokerNotStarted
from acktrail.embedded.releases import DEFAULT_VERSION, RELEASES
from acktrail.embedded.supervised import GuardedProcess

__all__ = ["DEFAULT_VERSION", "RELEASES", "BrokerNotStarted", "EmbeddedBroker", "GuardedProcess", "KafkaTool"]
