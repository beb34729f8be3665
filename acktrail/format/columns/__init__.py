"""The rules of ``acktrail.model`` for millions of records at once, in numpy and Arrow.

Words: `partition_index` numbers share partitions from 0 in the order they appear; `regular` values have the layout
that brokers write and are decoded in bulk, `irregular` values are all others; a `base` is the snapshot or tombstone
that replay starts from; a `segment` is a run of rows of one share partition, in log order.
"""
