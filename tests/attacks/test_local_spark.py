"""What another account of the machine reaches of a local Spark."""

from __future__ import annotations

import json
import os
import sys
from ipaddress import IPv6Address, ip_address

import pytest
from drivers.own_process import finished

RUN = """
import json, psutil
from contextlib import suppress
from acktrail_jobs.session import spark_session

def lines(process):
    try:
        return " ".join([*process.cmdline(), *map("=".join, process.environ().items())])
    except psutil.Error:  # it has ended
        return ""

with spark_session("local[2]") as session:
    assert session.sparkContext.parallelize(range(9), 3).map(lambda each: each * 2).sum() == 72
    own = psutil.Process()
    processes = [own, *own.children(recursive=True)]
    listening = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # a worker of Spark's may end meanwhile
            of_process = [each for each in process.net_connections("inet") if each.status == psutil.CONN_LISTEN]
            listening += [(process.name(), each.laddr.ip) for each in of_process]
    security = session.sparkContext._jvm.org.apache.spark.SparkEnv.get().securityManager()
    secret = security.getSecretKey()
    print(json.dumps({
        "listening": listening,
        "is_authenticated": security.isAuthenticationEnabled(),
        "secret": len(secret),
        "shown": any(secret in lines(process) for process in processes),
    }))
"""


@pytest.mark.slow
def test_a_local_spark_is_reached_by_nobody_else() -> None:
    """Another account of the machine lists what listens during a local run: every socket is on loopback, and those of
    Spark itself take nothing without a secret, which stands in no command line and no environment."""
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    done = finished(sys.executable, "-c", RUN, env=surroundings)
    assert done.returncode == 0, done.stderr[-4_000:]
    found = json.loads(done.stdout.splitlines()[-1])

    addresses = [(name, ip_address(text)) for name, text in found["listening"]]
    mapped = [(name, (isinstance(ip, IPv6Address) and ip.ipv4_mapped) or ip) for name, ip in addresses]
    assert {name for name, _ in mapped} >= {"java"}
    assert [(name, str(ip)) for name, ip in mapped if not ip.is_loopback] == []
    assert (found["is_authenticated"], found["shown"]) == (True, False)
    assert found["secret"] >= 32
