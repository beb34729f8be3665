"""Whether tables can be written is tried, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from servers.s3_server import S3

from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError
from acktrail.tables.delta.store import Tables

PROBE = """
import os, sys
from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError
from acktrail.tables.delta.store import Tables
tables = Tables(TablesConfig(uri=sys.argv[1]))
if os.getuid() == 0:  # who may write everywhere
    os.setuid(65534)
try:
    tables.probe_write()
except ConfigurationError as error:
    print(error.message)
"""


def test_a_probe_leaves_nothing_behind(tmp_path: Path) -> None:
    """Where tables are and where there are none yet: not a file, not a folder more."""
    root = tmp_path / "tables"
    tables = Tables(TablesConfig(uri=str(root)))
    tables.probe_write()
    assert not root.exists()
    tables.create("topics")
    before = sorted(root.rglob("*"))
    tables.probe_write()
    assert sorted(root.rglob("*")) == before


@pytest.mark.few(1)
@pytest.mark.parametrize("part", [".", "topics", "topics/_delta_log"])
def test_a_folder_without_write_permission_is_found(part: str) -> None:
    """The root, a table's folder or its log: one that this user may not write is enough."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        Tables(TablesConfig(uri=folder)).create("topics")
        for each in (root, *(found for found in root.rglob("*") if found.is_dir())):
            each.chmod(0o777)
        command = [sys.executable, "-c", PROBE, folder]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""
        (root / part).chmod(0o555)
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "no permission to write" in done.stdout


def test_a_store_that_refuses_writes_is_found(s3: S3, bucket: TablesConfig) -> None:
    """A read-only root is reported; a writable one has no more objects than before."""
    tables = Tables(bucket)
    tables.probe_write()
    assert s3.keys(bucket.uri.split("/")[2]) == []
    s3.refuses("AccessDenied")
    with pytest.raises(ConfigurationError, match="access was denied"):
        tables.probe_write()
