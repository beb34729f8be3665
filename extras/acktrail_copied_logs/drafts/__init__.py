"""The record formats drafted in KIP-932 before Kafka 4.0: layouts, replay and JSON of four generations.

No release wrote them (https://cwiki.apache.org/confluence/display/KAFKA/KIP-932%3A+Queues+for+Kafka). Generations i and
ii are control records on the user's topic partition (ii with back offsets), iii are checkpoints and deltas, and iv are
snapshots and updates on the state topic.
"""
