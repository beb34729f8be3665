"""The share-group state records that were drafted before Kafka 4.0, and the law by which each generation is replayed.

The labels are those of the founding documents; in time the order is ii, i, iii, iv, then the shipped formats.
"""
