"""What branches add: packages of the wheel that register themselves and that no module of the trunk imports.

A branch is one folder. Its entry point in the group ``acktrail.branches`` names a `Branch`, which says where everything
is that the branch adds; nothing of it is imported before it is asked for. Commands and connectors have entry points of
their own (``acktrail.commands``, ``acktrail.connect.*``). A branch whose folder is gone is not there: the trunk works
without it.

Example: the trunk asks every branch for more metrics.

    for collect in loaded("metrics"):
        yield from collect(tables, cluster)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Any, Final

ENTRY_POINT: Final = "acktrail.branches"


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """What one branch adds. `package` may have ``tables.toml`` (tables, as ``acktrail.format.columns.schemas`` has the
    trunk's) and ``rules.toml`` (rules and their suites, as ``acktrail.model.rules`` has them). `observations`: its
    tables of observations, append-only, with `observed_at`. The others are ``module:attribute``; empty: the branch adds
    no such thing."""

    package: str
    observations: frozenset[str] = frozenset()
    change_kinds: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Its kinds of changes by the `kind` of their plans (``acktrail.change.change_kind.ChangeKind``)."""
    plan_check: str = ""
    """What makes its ``acktrail.change.plan.reset_rules.PlanCheck``: what it says about plans of resets."""
    allowable: frozenset[str] = frozenset()
    """The rules of its plan check whose refusals ``--allow`` makes warnings."""
    acls: str = ""
    """``(groups, topics) -> Sequence[Acl]`` by purpose: the ACLs that it needs (``acktrail.model.acls``)."""
    audit: str = ""
    """No attribute: the name of what opens and closes the findings of its rules (``acktrail.tables.open_findings``)."""
    metrics: str = ""
    """``(Tables, cluster id) -> Iterable[Metric]``."""
    messages: str = ""
    """What people are sent: ``acktrail.view.notifications.ChangesOf``."""
    dags: tuple[str, ...] = ()
    """Modules, each with only ``make(DagProfile)``, which makes its DAG (``dags/acktrail_branches.py``)."""
    views: str = ""
    """`acktrail_dashboard.web.branch_views.BranchViews`: pages, and sections of the report."""


@cache
def registered(group: str) -> Mapping[str, str]:
    """The entry points of acktrail in `group`, ``module:attribute`` by name, without those of folders that are gone."""
    from importlib.metadata import PackageNotFoundError, distribution  # commands of the trunk are known by name

    try:
        found = distribution("acktrail").entry_points.select(group=group)
    except PackageNotFoundError:
        return {}
    return {point.name: point.value for point in found if is_there(point.value)}


def is_installed(package: str) -> bool:
    """Whether a package of another project can be imported. Nothing of it is imported."""
    try:
        return find_spec(package) is not None
    except ImportError:
        return False


def is_there(target: str) -> bool:
    """Whether the package of ``module:attribute`` is there. Nothing of it is imported."""
    return find_spec(target.partition(":")[0].partition(".")[0]) is not None


@cache
def branches() -> tuple[Branch, ...]:
    """Every branch that is there, by name."""
    return tuple(resolve_name(target) for _, target in sorted(registered(ENTRY_POINT).items()))


def loaded(field: str) -> Iterator[Any]:
    """What every branch that has one names in `field` of its `Branch`."""
    return (resolve_name(target) for target in (getattr(branch, field) for branch in branches()) if target)


def observation_tables() -> frozenset[str]:
    """The tables of observations that branches add."""
    return frozenset(name for branch in branches() for name in branch.observations)


def package_texts(name: str) -> Iterator[tuple[Branch, str]]:
    """Every branch that has a file `name`, with its text."""
    for branch in branches():
        file = files(branch.package).joinpath(name)
        if file.is_file():
            yield branch, file.read_text(encoding="utf-8")
