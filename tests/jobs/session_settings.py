"""Open acktrail's session where the environment says that Spark is; print the settings named, as JSON."""

from __future__ import annotations

import json
import os
import sys

from acktrail_jobs.session import spark_session

if __name__ == "__main__":
    with spark_session(os.environ.get("MASTER")) as session:
        conf = session.sparkContext.getConf()
        found = {name: session.conf.get(name, None) or conf.get(name, "") for name in sys.argv[1:]}
    sys.stdout.write(json.dumps(found))
