"""The edge to Kafka: share groups, logs, and the records of the state topic."""

from acktrail.broker.client.lazy_kafka_import import enter_package

for _name in ("kafka", "kafka.protocol.admin", "kafka.protocol.consumer"):
    enter_package(_name)
