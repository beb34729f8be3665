"""What differs between kinds of changes, and which kinds there are: the trunk's, and those that branches add.

A plan names its kind. All that holds for every kind is in `api`: hash, age, approval, life, audit, undo, commands.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self

from acktrail.atomic_files import read_text
from acktrail.branches import branches
from acktrail.change.audit.journal import Journal, read_plan_row
from acktrail.change.audit.plan_life import PLAN_AGAIN, ChangeStatus, next_step
from acktrail.change.cluster import Cluster
from acktrail.change.plan.change_plan import PLAN_FORMAT, PLAN_VERSION, ChangePlan, PlanT, hash_of
from acktrail.config import TablesConfig
from acktrail.dataclass_json import from_json_value, json_object
from acktrail.errors import (
    AcktrailError,
    ChangeInProgress,
    InputError,
    MalformedFile,
    OutcomeUnknown,
    PartlyDone,
    PlanStale,
    RetryableError,
)
from acktrail.model.acls import Acl, each

if TYPE_CHECKING:
    from acktrail.kafka.changes import ChangeResult

Row = Mapping[str, Any]

_OF_TRUNK: Final[Mapping[str, str]] = {
    "reset": "acktrail.change.apply.reset_kind:RESET",
    "undo": "acktrail.change.apply.reset_kind:UNDO",
    "delete_groups": "acktrail.group_changes.group_kinds:DELETE_GROUPS",
    "delete_offsets": "acktrail.group_changes.group_kinds:DELETE_OFFSETS",
    "alter_configs": "acktrail.group_changes.group_kinds:ALTER_CONFIGS",
}


class OpenRequests:
    """A block from the first request of a plan to its verification; it may be entered again inside itself. Any error
    that ends the block while a request is out (a broker that is gone, tables that are lost, Ctrl-C, a defect) becomes
    OutcomeUnknown, which names the plan and how to settle it."""

    def __init__(self, plan_id: str) -> None:
        self._plan_id = plan_id
        self.out = 0
        """The requests that are sent, or about to be, and whose outcome is not noted, nor that they were refused."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or not self.out or isinstance(error, GeneratorExit | ChangeInProgress):
            return
        if isinstance(error, OutcomeUnknown) and error.data.get("plan") == self._plan_id:
            return
        reason = f"{type(error).__name__}: {error}".removesuffix(": ")
        if isinstance(error, AcktrailError | KeyboardInterrupt):
            reason = error.message if isinstance(error, AcktrailError) else "interrupted"
        raise OutcomeUnknown(
            f"plan {self._plan_id} was sent, and its outcome is unknown: {reason}",
            hint=next_step(ChangeStatus.UNKNOWN).on(self._plan_id).command,
            data={"plan": self._plan_id},
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What an attempt did. `results` are the broker's answers on every part that was sent; `refused` are the outcomes
    of share partitions that a rule forbids. `not_sent`: why a group was not reached, or nothing was sent to it."""

    plan_id: str
    attempt: int
    results: tuple[ChangeResult, ...]
    not_sent: Mapping[str, str] = field(default_factory=dict)
    refused: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What a verification found just now. `groups`: the outcome of each group that was not settled before;
    `partitions`: that of each of its share partitions, as rows of ``reset_executions`` without plan, attempt and
    time. `note` has more for people. `open_until_ms`: until then clients may behave as before; verify once more
    afterwards."""

    groups: Mapping[str, str]
    partitions: tuple[dict[str, Any], ...] = ()
    note: str = ""
    open_until_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOutcome:
    """What became of a plan. `execution` None: it was not carried out just now. `groups`: how each stands now;
    `partitions`: the newest outcome of every share partition, as JSON. `next`: what a person does next."""

    plan_id: str
    standing: ChangeStatus
    next: str
    execution: Execution | None
    settled: Settled
    groups: Mapping[str, ChangeStatus]
    partitions: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How a change that sends piece by piece continues: at most `rate` pieces a second, and only the `first` of those
    that are left; None: no limit."""

    rate: float | None = None
    first: int | None = None


AT_ONCE: Final = Pace()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRun(Generic[PlanT]):
    """One run at a plan: carrying it out, or finding out what became of it.

    `partial`: what rules forbid is left out. `pace`: how much is sent, and how fast. `is_done`: it was carried out
    before. `check` raises what forbids it, in the same commit as the lease. `requests` counts what is out. `wait_s`:
    how long a record, or a request without an answer, may take to show; `watch_s`: how long to watch that nothing
    overwrites start offsets. `is_overtaken`: the request of an earlier plan arrived later.
    """

    cluster: Cluster
    journal: Journal
    plan: PlanT
    requests: OpenRequests
    partial: bool = False
    pace: Pace = AT_ONCE
    is_done: bool = False
    check: Callable[[], object] | None = None
    wait_s: float = 0.0
    watch_s: float = 0.0
    is_overtaken: bool = False


class ChangeKind(ABC, Generic[PlanT]):
    """What only one kind of change knows. `is_undoable`: a reset of start offsets takes it back; `is_deletion`: it left
    none behind; `no_undo`: nothing takes it back, and what a person does instead. `command` makes a plan of it.
    `operation` is the ACL operation that it needs on its groups. `if_refused`: what a person may do where rules forbid
    a plan. `is_paced`: it sends piece by piece, at a `Pace`."""

    plan_type: type[PlanT]
    command: str = ""
    operation: str = "READ"
    is_undoable: bool = False
    is_deletion: bool = False
    is_paced: bool = False
    no_undo: str = ""
    if_refused: str = ""

    def rights(self, plan: PlanT) -> Sequence[Acl]:
        """Return the ACLs without which the plan cannot be carried out."""
        return each(self.operation, "group", plan.group_ids)

    def text(self, plan: PlanT) -> str:
        """Return what the plan has for people besides share partitions and notices; empty: nothing."""
        del plan
        return ""

    def plan_undo(self, cluster: Cluster, tables: TablesConfig, plan: PlanT, **asked: Any) -> ChangePlan | None:
        """Return the plan that takes back what `plan` did, as `asked` (the names of `undo_request`); None: a reset of
        start offsets does. See `reset_planner.plan_undo`."""
        del cluster, tables, plan, asked
        return None

    @abstractmethod
    def would_send(self, run: ChangeRun[PlanT]) -> Sequence[Row]:
        """Return what `execute` would send now, one row a part, all with the same names. Records nothing. Raises as
        `execute`."""

    @abstractmethod
    def execute(self, run: ChangeRun[PlanT]) -> Execution:
        """Compare the cluster with the plan, and send it. Raises as `api.execute`."""

    @abstractmethod
    def settle(self, run: ChangeRun[PlanT]) -> Settled:
        """Find out what became of what was sent, record it, release the leases. Raises as `api.verify`."""

    def raise_unless_done(self, outcome: ChangeOutcome) -> None:
        """Raise why not all is done, if the kind knows more of it than the status of the plan says."""
        del outcome


@cache
def kind_named(name: str) -> ChangeKind[Any] | None:
    """Return the kind with this name; None: there is none, or its branch is gone."""
    of_branches = {kind: target for branch in branches() for kind, target in branch.change_kinds.items()}
    target = _OF_TRUNK.get(name) or of_branches.get(name)
    return None if target is None else resolve_name(target)


def kind_of(plan: ChangePlan) -> ChangeKind[Any]:
    """Return the kind of a plan."""
    found = kind_named(plan.kind)
    assert found is not None
    return found


def check_pace(plan: ChangePlan, pace: Pace) -> None:
    """Raise InputError for a pace where the kind of the plan has none."""
    if pace != AT_ONCE and not kind_of(plan).is_paced:
        text = f"plan {plan.plan_id} is of kind {plan.kind}, which is sent at once"
        raise InputError(text, hint="leave out --rate and --first")


def new_plan(kind: str) -> str:
    """Return the advice how to make another plan of this kind."""
    command = getattr(kind_named(kind), "command", "")
    return f"{PLAN_AGAIN}: {command}" if command else PLAN_AGAIN


_S = ChangeStatus
_NOT_DONE: Final[Mapping[ChangeStatus, tuple[type[AcktrailError], str]]] = {
    _S.UNKNOWN: (OutcomeUnknown, "was sent, and its outcome is unknown"),
    _S.UNVERIFIED: (OutcomeUnknown, "was sent, and its outcome was not looked for"),
    _S.OVERWRITTEN: (OutcomeUnknown, "was done, and something else is there now"),
    _S.PARTLY: (PartlyDone, "was done in part"),
    **dict.fromkeys((_S.FAILED, _S.REFUSED, _S.STARTED), (RetryableError, "changed nothing")),
}


def raise_unless_done(plan: ChangePlan, outcome: ChangeOutcome) -> None:
    """Raise unless all of a plan of any kind that was attempted is done and shows, or a person closed it.
    OutcomeUnknown: it does not show, or is not known. PartlyDone: some of it is done. Otherwise the reason why nothing
    was done. The hint ends with what a person does next."""
    try:
        kind_of(plan).raise_unless_done(outcome)
        if outcome.standing in _NOT_DONE:
            error, text = _NOT_DONE[outcome.standing]
            raise error(f"plan {plan.plan_id} {text}", data={"plan": plan.plan_id})
    except AcktrailError as error:
        error.hint = "; ".join(filter(None, (error.hint, outcome.next)))
        raise


def parse_plan(text: str, where: str) -> ChangePlan:
    """Return the plan of any kind in `text`, which comes from `where`. Raises as `read_plan`; InputError: a field is
    wrong."""
    data = json_object(text, where, "plan of a change", {"format": PLAN_FORMAT}, hint=PLAN_AGAIN)
    if data.get("version") != PLAN_VERSION:
        why = f"{where} has version {data.get('version')!r} of the plan format, not {PLAN_VERSION}"
        raise PlanStale("other_version", why, hint=PLAN_AGAIN)
    name = data.get("kind")
    kind = kind_named(name) if isinstance(name, str) else None
    if kind is None:
        raise MalformedFile("is a plan of an unknown kind", file=where, hint=PLAN_AGAIN)
    plan: ChangePlan = from_json_value(kind.plan_type, data, where)
    if hash_of(plan) != plan.plan_hash:
        why = f"{where} was edited: its hash does not match"
        raise PlanStale("edited_plan", why, hint=PLAN_AGAIN)
    check_derived(plan, where)
    return plan


def check_derived(plan: ChangePlan, where: str) -> None:
    """Raise PlanStale where a plan says something else than what would be sent: anybody can write a hash."""
    for name, value in plan.derived().items():
        if getattr(plan, name) != value:
            text = f"{where} was changed after it was made: its {name} does not follow from what it would send"
            raise PlanStale("edited_plan", text, hint=PLAN_AGAIN)


def read_plan(file: Path) -> ChangePlan:
    """Return the plan of any kind in `file`. Raises MalformedFile: it cannot be read, or is no plan. PlanStale: it is
    of another version, or it was edited."""
    return parse_plan(read_text(file, hint=PLAN_AGAIN), str(file))


def load_plan(tables: TablesConfig, plan_id: str) -> ChangePlan:
    """Return a stored plan of any kind. Raises UnknownName: there is none. PlanStale, MalformedFile: what is stored was
    altered."""
    return parse_plan(read_plan_row(tables, plan_id)["plan"], f"plan {plan_id} in reset_plans")
