"""Executable models of what a broker does inside: a simulation, for tests and study.

Nothing here talks to Kafka and no answer of acktrail is computed from it. What is modelled follows Kafka's source
(``ShareCoordinatorShard``, ``SharePartition``, ``SharePartitionManager``) and, for the drafts that never shipped, the
founding documents; what a model leaves out is said in its docstring. ``tests/oracle`` holds the shipped parts against
Kafka's own classes.
"""
