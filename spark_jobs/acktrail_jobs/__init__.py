"""The data pipeline on Spark: from the exported tables to verdicts, findings, history and statuses.

Each step divides its work into shares, which executors take (``acktrail.executors``). An executor reads its files,
works on columns (``acktrail.format.columns``, ``acktrail.reconcile``), and writes data files; the driver commits their
names. In the order of a run:

1. ``reconcile_run``: state records to states (replay), states beside what brokers said, to verdicts and findings.
2. ``history_run``: new state records, file after file, to changes of the status of records.
3. ``status_run``: verdicts and counted changes to statuses, what changed, and trends.
4. ``verify_tables``: everything that runs leave for the next one, made again from all records.

``acktrail_jobs.commands.pipeline_commands`` calls 1, 2 and 3 in this order, within one Spark application; 4 is a
command of its own. ``acktrail_jobs.views`` shows the tables, and what a run wrote, to SQL. Each module has an example:
state partition 3 with the records of the group `billing` on partition 0 of `orders`.
"""
