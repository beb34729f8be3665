"""Whether the tables of changes agree with each other, and with what is remembered elsewhere.

The evidence, from the inside out: each audit row holds the hash of the one before; the table's log holds the newest
sequence; rows of plans and results hold the newest sequence and hash of their time; the audit holds their hashes. All
of it is in the tables: who may write them all can write another audit that is consistent in itself. Only what is kept
elsewhere shows that: an anchor, which is a file with one row's hash, or a key with which rows were hashed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from acktrail.atomic_files import read_text, write_whole
from acktrail.change.audit.audit_chain import (
    AUDIT,
    EXECUTIONS,
    PLANS,
    AuditRow,
    Event,
    Flaw,
    check_chain,
    check_keys,
    in_order,
    row_digest,
    rows_digest,
)
from acktrail.change.audit.journal import SEQUENCE, read_audit, read_plan_row
from acktrail.config import TablesConfig, audit_key
from acktrail.dataclass_json import json_object, stored_object
from acktrail.errors import ConfigurationError, MalformedFile
from acktrail.text_parsing import parse_json
from acktrail.times import utc_text

Row = Mapping[str, Any]
_ANCHOR: Final = {"format": "acktrail-audit-anchor", "version": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """The tables are consistent in themselves. Rows that the audit vouches for, and those without audit: of a process
    that was killed in between, or put in by something that is not acktrail. `anchor_sequence`: the row that an anchor
    had noted, and that is still the same; None: nothing was compared with an anchor. `keyed`: which rows were written
    with the key of the environment."""

    rows: int
    anchor_sequence: int | None
    keyed: str
    newest_sequence: int | None
    newest_hash: str | None
    plans: int
    executions: int
    plans_without_audit: int
    executions_without_audit: int

    @property
    def words(self) -> str:
        """What was compared with what, and no more."""
        found = f"{self.rows:,} row{'s' * (self.rows != 1)}, consistent in itself"
        anchored = f", and with the anchor at row {self.anchor_sequence}"
        found += "; compared with no anchor" if self.anchor_sequence is None else anchored
        return f"{found}; {self.keyed}" if self.keyed else found


def checked_audit(tables: TablesConfig, *, anchor: Path | None = None, moves_on: bool = True) -> AuditReport:
    """The report on audit, plans and results. `anchor`: a file with a row of the audit, which is compared and then
    replaced by the newest row; made if it is not there yet. Without `moves_on` it is only read. Raises
    ConfigurationError: something is not as it was written; it says what; or `anchor` lies in the tables, or cannot be
    written. MalformedFile: `anchor` is no such file."""
    if anchor is not None and anchor.resolve().is_relative_to(Path(tables.uri).resolve()):
        hint = "keep it where those who can write the tables cannot"
        raise ConfigurationError(f"the anchor {anchor} is inside the tables with which it is to be compared", hint=hint)
    kept = [] if anchor is None or not anchor.exists() else [_read_anchor(anchor)]
    stored = _Stored(tables)
    unkeyed, keyed = check_keys(stored.audit, audit_key())
    flaws = stored.flaws(kept) or ([unkeyed] if unkeyed else [])
    if flaws:
        raise _broken(flaws)
    newest = stored.audit[-1] if stored.audit else None
    if anchor is not None and moves_on and newest is not None:
        about = {name: getattr(newest, name) for name in ("cluster_id", "sequence", "row_hash")}
        text = json.dumps({**_ANCHOR, **about, "audited_at": newest.audited_at.isoformat()}, indent=1)
        write_whole(text + "\n", anchor)
    return AuditReport(
        rows=len(stored.audit),
        anchor_sequence=kept[0][0] if kept else None,
        keyed=keyed,
        newest_sequence=None if newest is None else newest.sequence,
        newest_hash=None if newest is None else newest.row_hash,
        plans=stored.known_plans,
        executions=stored.known_executions,
        plans_without_audit=len(stored.plans) - stored.known_plans,
        executions_without_audit=len(stored.executions) - stored.known_executions,
    )


def compared_audit(tables: TablesConfig, noted: Sequence[tuple[int, str, str]]) -> AuditRow | None:
    """The newest row of the audit, which is a whole chain and has the rows that are `noted` elsewhere (sequence, hash,
    where); None without any row. Raises ConfigurationError: it is not, or has not."""
    rows = read_audit(tables)
    broken = check_chain(rows, rows[0].cluster_id) if rows else None
    if flaws := [*_noted_flaws(rows, noted), *([broken] if broken else ())]:
        raise _broken(flaws)
    return rows[-1] if rows else None


def audit_rows(tables: TablesConfig, *, plan_id: str | None = None) -> list[dict[str, Any]]:
    """The rows of the audit, of one plan or all, oldest first, as JSON. Raises UnknownName: there is no such plan."""
    rows = read_audit(tables, {} if plan_id is None else {"plan_id": plan_id})
    if not rows and plan_id is not None:
        read_plan_row(tables, plan_id)
    return [
        {
            **asdict(row),
            "audited_at": utc_text(row.audited_at, "milliseconds"),
            "detail": stored_object(row.detail, AUDIT, "detail"),
        }
        for row in rows
    ]


class _Stored:
    """What the tables hold. Other processes may write meanwhile: the audit is read first, and what came since last, so
    that only what its first rows (`early`) speak of must be there."""

    def __init__(self, tables: TablesConfig) -> None:
        from acktrail.tables.delta.store import Tables

        store = Tables(tables)
        early = len(store.read(AUDIT, columns=["sequence"]))
        self.plans = store.rows(PLANS)
        self.executions = store.rows(EXECUTIONS)
        snapshot = store.snapshot(AUDIT)
        rows = () if snapshot is None else snapshot.rows()
        self.audit = in_order(AuditRow(**row) for row in rows)
        self.early = self.audit[:early]
        self.newest = None if snapshot is None else snapshot.transaction_version(SEQUENCE)
        """The sequence that the log of the audit names as the newest; None: none."""
        self._planned = {row.plan_id: _detail(row) for row in self.audit if row.event == Event.PLANNED}
        self.known_plans = sum(plan["plan_id"] in self._planned for plan in self.plans)
        self.known_executions = 0

    def flaws(self, kept: Iterable[tuple[int, str, str]]) -> list[Flaw]:
        """Everything compared with everything else, and with the rows that are `kept` elsewhere."""
        anchors = _noted_flaws(self.audit, self._anchors())
        found = [*_noted_flaws(self.audit, kept), *self._chain_flaws(), *anchors]
        return [*found, *self._plan_flaws(), *self._execution_flaws()]

    def _chain_flaws(self) -> Iterator[Flaw]:
        rows, newest = self.audit, self.newest
        broken = check_chain(rows, rows[0].cluster_id if rows else "")
        last = len(rows) - 1
        if broken is not None:
            yield broken
        elif newest is None and rows:
            yield Flaw(sequence=last, why="the table was replaced: its log does not know its rows")
        elif newest is not None and newest < last:
            yield Flaw(sequence=newest + 1, why=f"rows were added past {newest}, the newest that the log knows")
        elif newest is not None and newest > last:
            why = f"the log has rows up to {newest}, and those after {last} are missing"
            yield Flaw(sequence=last + 1, why=why)

    def _anchors(self) -> list[tuple[int, str, str]]:
        """The audit rows that other tables remember: sequence, hash, where."""
        return sorted(
            {
                (row["audit_sequence"], row["audit_hash"], f"{table}, plan {row['plan_id']}")
                for table, found in ((PLANS, self.plans), (EXECUTIONS, self.executions))
                for row in found
                if row.get("audit_sequence") is not None
            }
        )

    def _plan_flaws(self) -> Iterator[Flaw]:
        """Rows of plans against the audit rows that planned them."""
        plans = _by(self.plans, "plan_id")
        for plan_id in sorted({row.plan_id for row in self.early if row.event == Event.PLANNED}):
            digests = [row_digest(plan) for plan in plans[plan_id]]
            if digests != [self._planned[plan_id].get("plan")]:
                what = (
                    "is missing" if not digests else "was altered" if len(digests) == 1 else "is there more than once"
                )
                yield Flaw(table=PLANS, why=f"plan {plan_id} {what}")
        hashes: dict[str, set[str]] = defaultdict(set)
        for row in self.audit:
            hashes[row.plan_id].add(row.plan_hash)
        for plan_id, found in plans.items():
            known = hashes.get(plan_id)
            if plan_id not in self._planned and known and {plan["plan_hash"] for plan in found} != known:
                yield Flaw(table=PLANS, why=f"plan {plan_id} is another than the audit has: its hash differs")

    def _execution_flaws(self) -> Iterator[Flaw]:
        """Results against the audit rows of their run that vouch for them, by the newest audit row of their time."""
        written = _by(self.executions, "run_id")
        first: dict[str, int] = defaultdict(lambda: -1)
        for index, row in enumerate(self.audit):
            noted = _detail(row).get("executions")
            if not isinstance(noted, Mapping) or row.sequence is None:
                continue
            span = range(first[row.run_id], row.sequence)
            first[row.run_id] = row.sequence
            then = ((each, each.get("audit_sequence")) for each in written[row.run_id])
            mine = [each for each, newest in then if (-1 if newest is None else newest) in span]
            self.known_executions += len(mine)
            about = f"of plan {row.plan_id}, attempt {row.attempt}"
            is_early = index < len(self.early)
            if is_early and len(mine) != noted.get("rows"):
                why = f"results {about}: {noted.get('rows')} were written and {len(mine)} are there"
                yield Flaw(table=EXECUTIONS, why=why)
            elif is_early and rows_digest(mine) != noted.get("hash"):
                yield Flaw(table=EXECUTIONS, why=f"a result {about} was altered")


def _noted_flaws(audit: Iterable[AuditRow], noted: Iterable[tuple[int, str, str]]) -> list[Flaw]:
    """The first row that is remembered otherwise."""
    by_sequence = {row.sequence: row.row_hash for row in audit}
    for sequence, row_hash, where in noted:
        if by_sequence.get(sequence) != row_hash:
            what = "it is another one" if sequence in by_sequence else "it is missing"
            return [Flaw(sequence=sequence, why=f"{what}: {where} has noted its hash")]
    return []


def _read_anchor(file: Path) -> tuple[int, str, str]:
    """The audit row that `file` remembers: sequence, hash, where. Raises MalformedFile when it is no such file."""
    hint = "name a file that acktrail change audit --anchor wrote, or one that is not there yet"
    data = json_object(read_text(file, hint=hint), str(file), "anchor of an audit", _ANCHOR, hint=hint)
    sequence, row_hash = data.get("sequence"), data.get("row_hash")
    if type(sequence) is int and isinstance(row_hash, str):
        return sequence, row_hash, str(file)
    raise MalformedFile("is not an anchor of an audit", file=str(file), hint=hint)


def _broken(flaws: Sequence[Flaw]) -> ConfigurationError:
    first = flaws[0]
    text = f"{first.table}: {first.why}"
    if first.sequence is not None:
        text = f"the audit is broken at row {first.sequence}: {first.why}"
    return ConfigurationError(
        text + (f" (and {len(flaws) - 1} more findings)" if len(flaws) > 1 else ""),
        hint="rows were changed or lost: compare the tables with a backup",
        data={"findings": [[flaw.table, flaw.sequence, flaw.why] for flaw in flaws[:100]]},
    )


def _by(rows: Iterable[Row], column: str) -> Mapping[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row[column]].append(row)
    return found


def _detail(row: AuditRow) -> Row:
    try:
        found = parse_json(row.detail)
    except (TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
