"""A worker of Kafka Connect's kind, which runs connectors until a signal stops it: plug-ins, their configuration,
threads of tasks, stored connectors, Connect's REST interface and metrics.

``acktrail run export`` needs none of it: it runs the same tasks once (``acktrail_connect.task_execution``).
"""
