"""What ``acktrail doctor --alerts`` asks a Prometheus: whether the alerts that the wheel brings can fire there, and
whether they reach a person."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.error import URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import urlopen

from acktrail.cli.doctor_checks import DoctorCheck, missing
from acktrail.errors import AcktrailError, ConfigurationError, RetryableError
from acktrail.package_data import deployed_files
from acktrail.secrets import without_user_info
from acktrail.text_parsing import parse_json
from acktrail.text_tables import few, printable

_RULES: Final = "prometheus/acktrail-alerts.yml"
_PATIENCE_S: Final = 10
_MOST_BYTES: Final = 1 << 24
_OF_WORKER: Final = {"acktrail_last_success_timestamp_seconds": "metrics.listener of the worker"}
_OF_TABLES: Final = {
    **dict.fromkeys(
        ("acktrail_export_timestamp_seconds", "acktrail_tables_read_timestamp_seconds"), "acktrail tables metrics"
    ),
    "acktrail_reconciliation_timestamp_seconds": "acktrail run reconcile, once",
    "acktrail_validation_timestamp_seconds": "acktrail run validate, once",
}
_NEEDED: Final = {**_OF_WORKER, **_OF_TABLES}
"""Series that every cluster has, by what serves or makes them. Others come with a group, a gap, a branch."""


def alert_checks(address: str) -> Iterator[DoctorCheck]:
    """Ask the Prometheus at `address`, such as ``http://127.0.0.1:9090``."""
    try:
        prometheus = _Prometheus(address)
        yield DoctorCheck(what="Prometheus", status="ok", detail=str(prometheus.asked("status/buildinfo")["version"]))
        yield _jobs(prometheus)
        yield _rules(prometheus)
        yield _series(prometheus)
        yield _receivers(prometheus)
        yield _firing(prometheus)
    except AcktrailError as error:
        yield missing("Prometheus", error)


class _Prometheus:
    """Its HTTP API, read only."""

    def __init__(self, address: str) -> None:
        if urlsplit(address).scheme not in {"http", "https"}:
            hint = "--alerts http://127.0.0.1:9090"
            raise ConfigurationError(f"{without_user_info(address)!r} is no address of a Prometheus", hint=hint)
        self._address = address.rstrip("/")

    def asked(self, what: str, **query: str) -> Any:
        """The data of an answer. Raises RetryableError: there is none."""
        try:
            with urlopen(f"{self._address}/api/v1/{what}?{urlencode(query)}", timeout=_PATIENCE_S) as answer:  # noqa: S310  # http or https
                return parse_json(answer.read(_MOST_BYTES))["data"]
        except (OSError, URLError, ValueError, KeyError, TypeError) as error:
            reason = getattr(error, "reason", None) or error
            message = f"no Prometheus answers at {without_user_info(self._address)}: {printable(str(reason))}"
            raise RetryableError(message, hint="give the address of its own page") from error

    def rows(self, expression: str) -> list[Mapping[str, Any]]:
        """The series of an instant query."""
        return list(self.asked("query", query=expression)["result"])


def _jobs(prometheus: _Prometheus) -> DoctorCheck:
    """AcktrailWorkerDown finds an absent process by `acktrail` in the name of its job."""
    what = "scrape jobs"
    unnamed = {row["metric"].get("job", "") for row in prometheus.rows('acktrail_build_info{job!~".*acktrail.*"}')}
    if unnamed:
        hint = "give the job a name with acktrail in it: the alert on an absent process looks for that"
        return DoctorCheck(what=what, status="missing", detail=f"named otherwise: {few(sorted(unnamed))}", hint=hint)
    targets = [each for each in prometheus.asked("targets")["activeTargets"] if "acktrail" in each["labels"]["job"]]
    down = [f"{each['labels']['instance']} ({each['lastError']})" for each in targets if each["health"] != "up"]
    if not targets or down:
        detail = f"not up: {few(down)}" if down else "none with acktrail in its name"
        return DoctorCheck(what=what, status="missing", detail=detail, hint="see docs/how-to/alerts.md, Prometheus")
    names = sorted({each["labels"]["job"] for each in targets})
    return DoctorCheck(what=what, status="ok", detail=f"{len(targets)} targets of {few(names)} are up")


def _shipped() -> set[str]:
    """The names of the alerts that the wheel brings."""
    return set(re.findall(r"^ *- alert: (\w+)$", deployed_files()[_RULES].read_text("utf-8"), re.MULTILINE))


def _rules(prometheus: _Prometheus) -> DoctorCheck:
    what, wanted = "alert rules", _shipped()
    loaded = {rule["name"]: rule for group in prometheus.asked("rules")["groups"] for rule in group["rules"]}
    absent = sorted(wanted - loaded.keys())
    if absent:
        hint = "load the rule file that acktrail config files copies"
        detail = f"{len(absent)} of {len(wanted)} are not loaded: {few(absent)}"
        return DoctorCheck(what=what, status="missing", detail=detail, hint=hint)
    broken = [f"{name} ({loaded[name].get('lastError', '')})" for name in wanted if loaded[name]["health"] == "err"]
    if broken:
        return DoctorCheck(what=what, status="missing", detail=few(sorted(broken)), hint="copy the rule file again")
    return DoctorCheck(what=what, status="ok", detail=f"{len(wanted)} loaded")


def _series(prometheus: _Prometheus) -> DoctorCheck:
    """Without its series an alert can never be pending."""
    ages = {name: prometheus.rows(f"time() - max({name})") for name in _NEEDED}
    absent = [name for name, rows in ages.items() if not rows]
    if absent:
        hint = "; ".join(dict.fromkeys(f"{name}: {_NEEDED[name]}" for name in absent))
        return DoctorCheck(what="series", status="missing", detail=f"no {few(absent)}", hint=hint)
    seconds = {name: float(rows[0]["value"][1]) for name, rows in ages.items()}
    shown = ", ".join(f"{_short(name)} {age:.0f} s ago" for name, age in seconds.items())
    limits = dict(re.findall(r"time\(\) - (\w+) > (\d+)", deployed_files()[_RULES].read_text("utf-8")))
    late = [name for name, age in seconds.items() if age > float(limits.get(name, "inf"))]
    if late:
        hint = f"older than its alert allows: {few([_short(name) for name in late])}"
        return DoctorCheck(what="series", status="missing", detail=shown, hint=hint)
    return DoctorCheck(what="series", status="ok", detail=shown)


def _short(name: str) -> str:
    return name.removeprefix("acktrail_").removesuffix("_timestamp_seconds").replace("_", " ")


def _receivers(prometheus: _Prometheus) -> DoctorCheck:
    found = [str(each["url"]) for each in prometheus.asked("alertmanagers")["activeAlertmanagers"]]
    if not found:
        hint = "set `alerting` in prometheus.yml: without an Alertmanager, alerts are only on Prometheus' own page"
        return DoctorCheck(what="Alertmanager", status="note", detail="none", hint=hint)
    return DoctorCheck(what="Alertmanager", status="ok", detail=few([without_user_info(url) for url in found]))


def _firing(prometheus: _Prometheus) -> DoctorCheck:
    rows = prometheus.rows('count by (alertname) (ALERTS{alertstate="firing", alertname=~"Acktrail.*"})')
    names = sorted(row["metric"]["alertname"] for row in rows)
    if not names:
        return DoctorCheck(what="alerts", status="ok", detail="none fires")
    return DoctorCheck(what="alerts", status="note", detail=f"firing: {few(names)}")
