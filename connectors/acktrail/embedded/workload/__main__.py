"""``python -m acktrail.embedded.workload``: see ``workload_run``."""

from acktrail.embedded.workload.workload_run import main

if __name__ == "__main__":
    main()
