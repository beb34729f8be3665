"""What lies in the folder where a worker keeps its connectors, and who can put something there."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers.connect_worker import ConnectWorker, connect_worker
from servers.workload import until

from acktrail_connect.worker.connector_run import ConfigStore


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[ConnectWorker]:
    own = {"rest.listener": "127.0.0.1:0", "config.storage.dir": str(tmp_path / "state/store")}
    with connect_worker(tmp_path / "worker", own) as started:
        started.start()
        yield started


def connector(tables: str) -> dict[str, str]:
    """A table's rows go to a table that the transform names."""
    return {
        "connector.class": "DeltaTableSource",
        "tables": "/none",
        "table": "rows",
        "transforms": "route",
        "transforms.route.type": "Route",
        "transforms.route.regex": ".*",
        "transforms.route.replacement": "a.json",
        "sink.tables": tables,
    }


def test_no_sink_writes_among_the_connectors(worker: ConnectWorker, tmp_path: Path) -> None:
    """Who holds the token has a sink write where the worker keeps its connectors, so that it never starts again: 400
    for the store, what is in it or above it, by any name; folders beside it are free."""
    assert worker.ask("GET", "/connectors") == (200, "[]")
    store = tmp_path / "state/store"
    (tmp_path / "link").symlink_to(store)
    names = [store, f"file://{store}", f"{store}/", store / "deeper/still", tmp_path / "state", tmp_path, "/"]
    names += [tmp_path / "link", tmp_path / "link/deeper", tmp_path / "none/../state/store", os.path.relpath(store)]
    told = "sink.tables: the worker keeps its connectors there"
    for named in map(str, names):
        code, text = worker.ask("POST", "/connectors", {"name": "evil", "config": connector(named)})
        assert (code, told in text) == (400, True), (named, text)
    own = {**connector(str(store)), "name": "evil"}
    assert worker.ask("PUT", "/connectors/evil/config", own)[0] == 400
    assert told in worker.ask("PUT", "/connector-plugins/DeltaTableSource/config/validate", own)[1]
    code, text = worker.ask(
        "POST", "/connectors", {"name": "free", "config": connector(str(tmp_path / "state/stored"))}
    )
    assert code == 201, text
    assert worker.ask("PATCH", "/connectors/free/config", {"sink.tables": str(store)})[0] == 400


def test_what_is_no_connector_does_not_stop_the_worker(worker: ConnectWorker, tmp_path: Path) -> None:
    """Something else in the store than files of connectors is a line each in the log; the worker runs what is one, and
    says why a connector cannot be kept in its place."""
    made = {"name": "kept", "config": connector(str(tmp_path / "tables")), "initial_state": "STOPPED"}
    code, text = worker.ask("POST", "/connectors", made)
    assert code == 201, text
    worker.kill()
    worker.said.clear()
    store = tmp_path / "state/store"
    (store / "folder.json").mkdir()
    os.mkfifo(store / "pipe.json")
    (store / "dangling.json").symlink_to(tmp_path / "none")
    (store / "binary.json").write_bytes(b"\xff\xfe\x00")
    (store / "list.json").write_text(json.dumps([]))
    worker.start()
    until(lambda: len([line for line in worker.said if "is not the file of a connector" in line]) == 5)
    until(lambda: worker.ask("GET", "/connectors") == (200, '["kept"]'))
    code, text = worker.ask("POST", "/connectors", {**made, "name": "folder"})
    assert (code, "cannot be written" in text) == (500, True)
    assert re.search(r"ignored: \S+/folder\.json is not the file of a connector", "\n".join(worker.said))


def test_only_its_owner_reads_the_store(tmp_path: Path) -> None:
    """Another account lists names of connectors: the folder that the worker makes keeps it out, whatever the umask."""
    before = os.umask(0)
    try:
        ConfigStore(tmp_path / "new/store")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new/store").stat().st_mode) == 0o700


def test_no_key_hides_another_in_the_log(worker: ConnectWorker, tmp_path: Path) -> None:
    """Who holds the token sends names of their own beside the address that they change, which remove nothing or are
    long: the line has the address first, and the number of keys that it leaves out."""
    made = {"name": "told", "config": connector(str(tmp_path / "tables")), "initial_state": "STOPPED"}
    assert worker.ask("POST", "/connectors", made)[0] == 201
    changes: dict[str, str | None] = {f"aaa-{number}-{'x' * 500}": None for number in range(30)}
    changes |= {"flush.records": "7", "tables": "/elsewhere", "table": "others", "transforms.route.regex": "x"}
    assert worker.ask("PATCH", "/connectors/told/config", changes)[0] == 200
    line = until(lambda: [line for line in worker.said if "PATCH" in line])[0]
    assert re.search(
        r"keys tables, flush\.records, table, transforms\.route\.regex, aaa-0-x+\.\.\., .* and \d\d more$", line
    )
    assert worker.ask("PATCH", "/connectors/told/config", {**dict.fromkeys(changes), "tables": "x"})[0] == 400
    line = until(lambda: [line for line in worker.said if "refused 400" in line])[0]
    assert "keys tables, flush.records, table, transforms.route.regex, " in line


@pytest.mark.parametrize("url", ["s3://key:PASSWORD-1@bucket/x", "http://PASSWORD-1@127.0.0.1:9/x"])
def test_no_answer_has_the_password_of_a_url(worker: ConnectWorker, url: str) -> None:
    """Who reads REST or the log looks for URLs with a login, under keys that no name gives away: none is shown, and
    what is sent back as it is shown stays."""
    config = {**connector(url), "tables": url, "transforms.route.replacement": f"x {url}"}
    config["sink.option.user_agent"] = url
    path = "/connectors/urls"
    made = worker.ask("POST", "/connectors", {"name": "urls", "config": config, "initial_state": "STOPPED"})
    validated = worker.ask("PUT", "/connector-plugins/DeltaTableSource/config/validate", {**config, "name": "urls"})
    shown = worker.ask("GET", f"{path}/config")
    texts = [made, validated, shown, worker.ask("GET", path)]
    assert made[0] == 201, made
    assert worker.ask("PUT", f"{path}/config", json.loads(shown[1]))[0] == 200
    stored = json.loads((worker.folder.parent / "state/store/urls.json").read_text())["config"]
    assert [stored["sink.tables"], stored["tables"]] == [url, url]
    assert worker.ask("PUT", f"{path}/resume")[0] == 202
    until(lambda: "FAILED" in worker.ask("GET", f"{path}/status")[1] or any("urls" in line for line in worker.said[5:]))
    texts.append(worker.ask("GET", f"{path}/status"))
    assert "PASSWORD-1" not in repr(texts) + "\n".join(worker.said)
