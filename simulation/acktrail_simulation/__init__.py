"""Executable models of what a broker does inside: a simulation, for tests and study.

Nothing here connects to Kafka, and no result of acktrail is computed from it. The models follow Kafka's source
(``ShareCoordinatorShard``, ``SharePartition``, ``SharePartitionManager``) and, for the drafts that never shipped, the
founding documents; what a model leaves out is in its docstring. ``tests/support/oracle`` compares the shipped parts
with Kafka's own classes.
"""
