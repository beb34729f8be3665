"""For spark-submit: ``spark-submit spark_jobs/submit.py run reconcile --tables ... --run-id ...``."""

from acktrail.cli.main import main

main()
