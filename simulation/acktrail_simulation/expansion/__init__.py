"""KIP-253 at work: order of records of one key across changes of a topic's partitions. Kafka never shipped it.

The document's public part gives message and znode fields; how they are used follows from it where it can, and is our
reading elsewhere (each module says which). One topic, no replication: a partition is its leader.
"""
