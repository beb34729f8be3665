"""Great Expectations as its users know it: a context with data source, suites and validation definitions over the
tables of a run. For notebooks, Data Docs and exported suites; the gate itself needs none of it.

Nothing is sent anywhere: analytics are off, and the context keeps all of it in memory. As shipped each page of Data
Docs loads scripts and styles from seven hosts and an image that counts readers, and the index is empty without them.
Here they are removed, a policy in each page stops the rest, and the index is a plain table of links. No page has
values of the tables: results are counts.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import great_expectations as gx
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from great_expectations.data_context.types.base import DataContextConfig, InMemoryStoreBackendDefaults

from acktrail.config import TablesConfig
from acktrail.errors import MalformedFile
from acktrail.model.rules.catalogue import rule_catalogue
from acktrail.tables.delta.store import Tables
from acktrail.text_parsing import parse_json
from acktrail_expectations.evaluation import (
    OWNER,
    RESULT_FORMAT,
    SuiteCheck,
    SuiteFrame,
    checks_of,
    record_frames,
    suite_frames,
)
from acktrail_expectations.known_runs import choose_run, run_rows
from acktrail_expectations.validation_input import ValidationInput

_COUNTS: Final = {"result_format": "BASIC", "exclude_unexpected_values": True}
"""Counts without values: Data Docs do not escape what a group or a topic is called."""
_REMOVED: Final = re.compile(
    r"<script\b.*?</script\s*>|<(?:script|link|img|iframe|object|embed|source)\b[^>]*>", re.DOTALL | re.IGNORECASE
)
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_STYLE: Final = Path(__file__).with_name("data_docs.css").read_text("utf-8")
_HEAD: Final = (
    f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}"><style>{_STYLE}</style>'
)
_INDEX: Final = (
    "<!DOCTYPE html><html lang='en'><head><title>acktrail: results of a run</title></head><body>"
    "<h1>acktrail: results of a run</h1><table><tr><th>suite</th><th>result</th></tr>{rows}</table></body></html>"
)


class DocsNotMade(ValueError):
    """A page of Data Docs is missing, or has no place for the policy."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunChecks:
    """The suites of a run in a context of Great Expectations.

    `context`: data source ``acktrail`` with an asset a suite, the suites, their validation definitions. `suites`: the
    frames, whole. A suite without rows is not in the context: nothing of it can be evaluated.
    """

    run_id: str
    context: Any
    suites: Mapping[str, SuiteFrame]

    def validate(self, result_format: Mapping[str, Any] = RESULT_FORMAT) -> dict[str, Any]:
        """Great Expectations' result of every suite that has rows, by its name."""
        return {
            each.name: each.run(
                batch_parameters={"dataframe": self.suites[each.name].frame}, result_format=dict(result_format)
            )
            for each in self.context.validation_definitions.all()
        }

    def build_data_docs(self, folder: Path) -> Path:
        """Validate all suites and write Data Docs of the results into `folder` (counts, no values; no network): the
        index.

        Raises:
            DocsNotMade: a page could not be made.
        """
        folder.mkdir(parents=True, exist_ok=True)
        fresh = replace(self, context=_context(self.suites.values()))
        passed = {name: bool(result.success) for name, result in fresh.validate(_COUNTS).items()}
        backend = {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder.resolve())}
        fresh.context.add_data_docs_site(
            OWNER, {"class_name": "SiteBuilder", "store_backend": backend, "show_how_to_buttons": False}
        )
        fresh.context.build_data_docs(site_names=[OWNER])
        return _offline_site(folder, passed)


def open_run(tables: TablesConfig, run_id: str | None = None) -> RunChecks:
    """The suites of a run (None: the newest) in a context of Great Expectations, with the frames in memory.

    They are of all state records and export ranges, compared with their raw bytes. Memory: some 2 kB a state record.

    Raises:
        UnknownName, ConfigurationError: there is no such run, or none at all.
        RetryableError, OutcomeUnknown: the tables could not be read.
    """
    store = Tables(tables)
    chosen = choose_run(store, run_id)
    data = ValidationInput.read(store, chosen, run_rows(store, chosen), every_record=True)
    records = (piece for own in data.records.pieces() for piece in record_frames(data.records, own))
    pieces: dict[str, list[SuiteFrame]] = {}
    for piece in (*suite_frames(data, datetime.now(UTC)), *records):
        pieces.setdefault(piece.suite, []).append(piece)
    suites = {name: _whole(own) for name, own in pieces.items()}
    return RunChecks(run_id=chosen, context=_context(suites.values()), suites=suites)


def _whole(pieces: list[SuiteFrame]) -> SuiteFrame:
    frames = [piece.frame for piece in pieces if len(piece.frame)] or [pieces[0].frame]
    return replace(pieces[0], frame=pd.concat(frames, ignore_index=True))


def _context(suites: Iterable[SuiteFrame]) -> Any:
    """A context that keeps everything in memory, writes no documents and sends no analytics, with those of `suites`
    that have rows."""
    context = gx.get_context(
        mode="ephemeral",
        project_config=DataContextConfig(
            analytics_enabled=False,
            progress_bars={"globally": False},
            store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
        ),
    )
    source = context.data_sources.add_pandas(OWNER)
    for own in suites:
        if len(own.frame):
            batch = source.add_dataframe_asset(own.suite).add_batch_definition_whole_dataframe(own.suite)
            suite = context.suites.add(_documented(own.suite, own.checks))
            context.validation_definitions.add(gx.ValidationDefinition(name=own.suite, data=batch, suite=suite))
    return context


def _documented(name: str, checks: Sequence[SuiteCheck]) -> gx.ExpectationSuite:
    """A suite with an expectation of its own for each of `checks`: a context notes ids in them."""
    expectations = [check.expectation.copy() for check in checks]
    meta = {"owner": OWNER, "page": "docs/reference/rules.md"}
    return gx.ExpectationSuite(name=name, expectations=expectations, meta=meta)


def export_suites(folder: Path, run: RunChecks | None = None) -> list[Path]:
    """Write every suite to ``FOLDER/SUITE.json`` as Great Expectations stores suites, and the rows of `run` that it
    is about to ``FOLDER/SUITE.parquet``: what an expectation compares is a column there. Gives the files.
    The folder is made."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in dict.fromkeys(suite for rule in rule_catalogue().rules for suite in rule.suites):
        path = folder / f"{name}.json"
        path.write_text(json.dumps(_suite_json(name), indent=2, ensure_ascii=False) + "\n", "utf-8")
        written.append(path)
    for name, own in (run.suites if run else {}).items():
        path = folder / f"{name}.parquet"
        rows = pa.Table.from_pandas(own.frame, preserve_index=False)
        pq.write_table(rows.replace_schema_metadata(None), path)  # pandas cannot read its own names of nested types
        written.append(path)
    return written


def load_suite(file: Path) -> gx.ExpectationSuite:
    """The suite in a file of `export_suites`, with acktrail's expectations. Without the import of `batch_expectations`
    Great Expectations makes the suite without them, and only logs it; here the number is compared.

    Raises:
        MalformedFile: it is no such file, or Great Expectations could not make an expectation; its log says why.
    """
    try:
        stored = parse_json(file.read_bytes())
        suite = gx.ExpectationSuite(**stored)
    except (ValueError, TypeError) as error:
        message = f"is no suite of Great Expectations: {error}"
        hint = "`acktrail run validate --export-suites` writes them"
        raise MalformedFile(message, file=str(file), hint=hint) from error
    if (made := len(suite.expectations)) != (written := len(stored["expectations"])):
        raise MalformedFile(f"{made} of {written} expectations could be made", file=str(file), hint="see the log")
    return suite


def _suite_json(name: str) -> dict[str, Any]:
    """A suite without ids and Great Expectations' version, so that equal suites are equal."""
    stored: dict[str, Any] = _documented(name, checks_of(name)).to_json_dict()
    for expectation in stored["expectations"]:
        expectation.pop("id", None)
    stored["meta"].pop("great_expectations_version", None)
    return {key: value for key, value in stored.items() if key != "id"}


def _offline_site(folder: Path, passed: Mapping[str, bool]) -> Path:
    """Rewrite the pages of a site, with an index of the results of suites: the index. Great Expectations logs what went
    wrong with a page and continues: what is there is checked."""
    index, made = folder / "index.html", sorted((folder / "validations").rglob("*.html"))
    of_suite = {page.relative_to(folder / "validations").parts[0]: page for page in made}
    if of_suite.keys() != passed.keys():
        raise DocsNotMade("Data Docs could not be made: see the log of Great Expectations")
    for page in folder.rglob("*.html"):
        page.write_text(offline(page.read_text("utf-8")), "utf-8")
    rows = "".join(
        f'<tr><td><a href="{quote(str(of_suite[name].relative_to(folder)))}">{escape(name)}</a></td>'
        f"<td>{'passed' if is_ok else 'failed'}</td></tr>"
        for name, is_ok in passed.items()
    )
    index.write_text(offline(_INDEX.format(rows=rows)), "utf-8")
    shutil.rmtree(folder / "static", ignore_errors=True)
    return index


def offline(page: str) -> str:
    """`page` without the elements that load something in Great Expectations' pages, with a policy that stops a browser
    from loading any other. Raises DocsNotMade: it has no place for the policy."""
    changed = _REMOVED.sub("", page).replace("<head>", f"<head>{_HEAD}", 1)
    if _POLICY not in changed:
        raise DocsNotMade("a page of Data Docs has no head")
    return changed
