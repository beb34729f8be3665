"""Configuration: the only module that reads the environment (references to secrets apart: `acktrail.secrets`).

==========================  ====================================================================================
variable                    meaning
==========================  ====================================================================================
ACKTRAIL_BOOTSTRAP_SERVERS  brokers, ``host:port[,host:port]``
ACKTRAIL_CLIENT_CONFIG      file with ``key=value`` lines for the Kafka clients (security.protocol, sasl.*, ssl.*)
ACKTRAIL_TABLES             root of the tables: a folder or an object-storage URI
ACKTRAIL_TABLES_OPTIONS     file with ``key=value`` lines for the object storage (endpoint, region, credentials)
ACKTRAIL_PROFILES           file of named profiles (default: acktrail/profiles.toml in the user's configuration folder)
ACKTRAIL_PROFILE            the profile that brokers, client properties, tables and their options come from
ACKTRAIL_DAG_PROFILES       the profiles that the DAGs are made for: ``prod-eu,prod-us`` (default: ACKTRAIL_PROFILE)
ACKTRAIL_DAG_PLACES         ``CONNECTION=TABLES,...``: other clusters that runs of the DAGs may name, with their tables
ACKTRAIL_DAG_SPARK          ``CONNECTION,...``: Airflow connections to Spark that runs may name
ACKTRAIL_DAG_FOLDERS        ``FOLDER,...``: folders of the workers in which runs may name files and report folders
ACKTRAIL_REPORTS            folder the DAGs write their reports to
ACKTRAIL_REPORTS_KEPT       how many runs keep their report in ACKTRAIL_REPORTS (default 100)
ACKTRAIL_DASHBOARD_TOKEN    token that readers of the dashboard must have
ACKTRAIL_DASHBOARD_URL      where people reach the dashboard: ``https://acktrail.example``
ACKTRAIL_NOTIFIERS          ``module:function`` that gives the Airflow notifiers of reconciliations and resets
ACKTRAIL_RECONCILE_EVERY    least time between two scheduled reconciliations: ``90s``, ``5m`` (default), at most ``1h``
ACKTRAIL_SPARK_MASTER       where jobs run that name no Spark master: ``local[4]``, ``sc://host:15002``, ``in-process``
ACKTRAIL_RESET_APPROVAL     who approves a change before it is carried out: ``optional`` (default), ``required``,
                            ``second-person`` (an approval by somebody other than the requester)
ACKTRAIL_AUDIT_ANCHOR       file with the hash of one audit row, stored outside of the tables
ACKTRAIL_AUDIT_KEY          secret, 16 characters or more: rows of the audit of changes get a hash with it
ACKTRAIL_PAYLOADS           ``allowed``: `acktrail record show --payload` may show records; ``denied`` (default)
ACKTRAIL_PAYLOAD_MASKS      what it masks: ``$..iban,$.card.number,header:authorization,key``
ACKTRAIL_CACHE              brokers, classes of Spark (may be deleted at any time; default: the user's cache folder)
JAVA_HOME                   Java 17 or later
==========================  ====================================================================================

The variables of branches are in modules of theirs, which ask `setting` and `duration`. The file of profiles:
`acktrail.profiles`.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from acktrail.errors import ConfigurationError, NotNamed
from acktrail.profiles import Profile, Profiles, read_profiles
from acktrail.secrets import resolved_properties

_BOOTSTRAP: Final = "ACKTRAIL_BOOTSTRAP_SERVERS"
_TABLES_URI: Final = "ACKTRAIL_TABLES"
_PROFILE: Final = "ACKTRAIL_PROFILE"
_PROFILES: Final = "ACKTRAIL_PROFILES"
_DURATION: Final = re.compile(r"([0-9]{1,5})([smh])")
_SHORTEST_KEY: Final = 16
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600}
_STORAGE_PREFIXES: Final = ("AWS_", "AZURE_", "GOOGLE_", "GCE_", "IDENTITY_", "MSI_")


class ApprovalRule(StrEnum):
    """Which recorded approval of this very plan a change needs before it is carried out: none (a rejection forbids it
    all the same), one, or one by somebody who neither made the plan nor asked for it."""

    OPTIONAL = "optional"
    REQUIRED = "required"
    SECOND_PERSON = "second-person"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConfig:
    """How to reach a cluster. `properties` use Kafka's own names (``security.protocol``, ``sasl.username`` ...); they
    may hold secrets: the repr does not show them."""

    bootstrap_servers: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    request_timeout_ms: int = 30_000

    @classmethod
    def from_environment(
        cls, bootstrap_servers: str | None = None, client_config: Path | None = None, *, profile: str | None = None
    ) -> KafkaConfig:
        """From arguments, else from `profile` (None: the one that the environment names), else from the environment.
        Raises ConfigurationError when no broker is named, or the client configuration cannot be read; UnknownName when
        there is no such profile."""
        chosen = _chosen(profile)
        address = bootstrap_servers or (os.environ.get(_BOOTSTRAP) if chosen is None else chosen.brokers())
        if not address:
            hint = f"give --bootstrap-server or --profile, or set {_BOOTSTRAP}"
            raise NotNamed("no Kafka broker is given", hint=hint)
        if client_config is None and chosen is not None:
            return cls(bootstrap_servers=address, properties=chosen.client_properties())
        return cls(bootstrap_servers=address, properties=_properties(client_config, "ACKTRAIL_CLIENT_CONFIG"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesConfig:
    """Where the tables are. `options` are the object storage's and may hold secrets."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def from_environment(
        cls, uri: str | None = None, options_file: Path | None = None, *, profile: str | None = None
    ) -> TablesConfig:
        """From arguments, else from `profile` (None: the one that the environment names), else from the environment.
        Raises ConfigurationError when no root is named, or the options cannot be read; UnknownName when there is no
        such profile."""
        chosen = _chosen(profile)
        root = uri or (os.environ.get(_TABLES_URI) if chosen is None else chosen.tables_uri())
        if not root:
            raise NotNamed("no root of tables is given", hint=f"give --tables or --profile, or set {_TABLES_URI}")
        if options_file is None and chosen is not None:
            return cls(uri=root, options=chosen.storage_options())
        return cls(uri=root, options=_properties(options_file, "ACKTRAIL_TABLES_OPTIONS"))

    @classmethod
    def optional_from_environment(cls, uri: str | None = None, options_file: Path | None = None) -> TablesConfig | None:
        """As `from_environment`; None where neither names a root."""
        chosen = None if uri else _chosen(None)
        named = uri or (os.environ.get(_TABLES_URI) if chosen is None else chosen.tables)
        return cls.from_environment(uri, options_file) if named else None


def profiles_file() -> Path:
    """Where the profiles are."""
    own = (_path("XDG_CONFIG_HOME") or Path.home() / ".config") / "acktrail" / "profiles.toml"
    return _path(_PROFILES) or own


def profiles() -> Profiles:
    """The profiles of this user. Raises ConfigurationError: there is no file of profiles, or it is wrong."""
    return read_profiles(profiles_file())


def has_profiles() -> bool:
    """Whether there is a file of profiles, or the environment names one."""
    return _path(_PROFILES) is not None or profiles_file().exists()


@contextmanager
def chosen_profile(name: str) -> Iterator[None]:
    """Brokers and tables come from profile `name` within the block, in child processes too. Raises UnknownName,
    ConfigurationError: there is no such profile, or something in it is wrong."""
    profiles().profile(name)
    with _variable(_PROFILE, name):
        yield


def dag_profiles() -> tuple[str, ...]:
    """The profiles that the DAGs are made for, each once; none: the DAGs work on what the environment names."""
    text = os.environ.get("ACKTRAIL_DAG_PROFILES") or os.environ.get(_PROFILE) or ""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _chosen(name: str | None) -> Profile | None:
    """The profile `name`, else the one that the environment names."""
    wanted = name or os.environ.get(_PROFILE)
    return profiles().profile(wanted) if wanted else None


def cache_folder() -> Path:
    """The user's folder for things that can be fetched again."""
    return _path("ACKTRAIL_CACHE") or (_path("XDG_CACHE_HOME") or Path.home() / ".cache") / "acktrail"


def state_folder() -> Path:
    """The folder for what a service of this user keeps: systemd's, else the user's."""
    named = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    return Path(named) if named else (_path("XDG_STATE_HOME") or Path.home() / ".local/state") / "acktrail"


def reports_folder() -> Path | None:
    """The folder of reports, if the environment names one."""
    return _path("ACKTRAIL_REPORTS")


def reports_kept() -> int:
    """How many runs keep their report. Raises ConfigurationError when the variable holds no number of 1 or more."""
    text = os.environ.get("ACKTRAIL_REPORTS_KEPT") or "100"
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ConfigurationError(
            f"ACKTRAIL_REPORTS_KEPT={text!r} is not a number of 1 or more", hint="100, for instance"
        )
    return int(text)


def dashboard_url() -> str | None:
    """Where people reach the dashboard, without a slash at the end, if the environment names it. Raises
    ConfigurationError when the variable holds something else than an address of http or https."""
    text = (os.environ.get("ACKTRAIL_DASHBOARD_URL") or "").rstrip("/")
    if text and not re.fullmatch(r"https?://[^\s@\"'<>]+", text):
        message = f"ACKTRAIL_DASHBOARD_URL={text!r} is not an address"
        raise ConfigurationError(message, hint="use https://HOST, without user and password")
    return text or None


def spark_master() -> str | None:
    """Where jobs run that name no Spark master; None: where Spark's own settings say."""
    return os.environ.get("ACKTRAIL_SPARK_MASTER") or None


def reconcile_every() -> dt.timedelta:
    """The least time between the beginnings of two scheduled reconciliations. Raises as `duration`."""
    return duration("ACKTRAIL_RECONCILE_EVERY", "5m", longest=dt.timedelta(hours=1))


def setting(variable: str) -> str:
    """What the environment says in `variable`, without blanks around it; empty where it says nothing."""
    return (os.environ.get(variable) or "").strip()


def duration(variable: str, default: str, *, longest: dt.timedelta | None = None) -> dt.timedelta:
    """The time that the environment names in `variable`, else `default`: a number and ``s``, ``m`` or ``h``. Raises
    ConfigurationError when the variable holds no duration, or more than `longest`."""
    text = os.environ.get(variable) or default
    found = _DURATION.fullmatch(text)
    value = dt.timedelta(seconds=int(found[1]) * _SECONDS[found[2]]) if found else None
    if value is None or (longest is not None and value > longest):
        limit = "" if longest is None else f" up to {longest // dt.timedelta(hours=1)} h"
        hint = f"a number and s, m or h: {default}"
        raise ConfigurationError(f"{variable}={text!r} is not a duration{limit}", hint=hint)
    return value


def approval_rule() -> ApprovalRule:
    """The approval that the environment requires; unset: none. Raises ConfigurationError when the environment names no
    such rule. A misspelled rule must not switch approvals off."""
    text = os.environ.get("ACKTRAIL_RESET_APPROVAL") or ApprovalRule.OPTIONAL
    try:
        return ApprovalRule(text)
    except ValueError:
        names = ", ".join(rule.value for rule in ApprovalRule)
        raise ConfigurationError(f"ACKTRAIL_RESET_APPROVAL is {text!r}", hint=f"set it to one of {names}") from None


def audit_key() -> bytes | None:
    """The secret with which rows of the audit are hashed; None: there is none. Raises ConfigurationError when it is too
    short; it is never shown."""
    text = setting("ACKTRAIL_AUDIT_KEY")
    if text and len(text) < _SHORTEST_KEY:
        hint = "make one by `openssl rand -hex 32`"
        raise ConfigurationError(f"ACKTRAIL_AUDIT_KEY has fewer than {_SHORTEST_KEY} characters", hint=hint)
    return text.encode() or None


def payload_masks() -> list[str]:
    """The masks for records that are shown. Raises ConfigurationError unless the environment allows to show any."""
    text = setting("ACKTRAIL_PAYLOADS") or "denied"
    if text != "allowed":
        hint = "set ACKTRAIL_PAYLOADS=allowed, and ACKTRAIL_PAYLOAD_MASKS for what must stay hidden"
        raise ConfigurationError(f"content of records may not be shown: ACKTRAIL_PAYLOADS is {text!r}", hint=hint)
    return [each.strip() for each in setting("ACKTRAIL_PAYLOAD_MASKS").split(",") if each.strip()]


def java_home() -> Path | None:
    """The home of Java, if the environment names one."""
    return _path("JAVA_HOME")


def storage_environment() -> dict[str, str]:
    """The variables that clients of object storages read: credentials, regions, endpoints."""
    return {name: value for name, value in os.environ.items() if name.startswith(_STORAGE_PREFIXES)}


def forgo_metadata_service() -> None:
    """Amazon's own client asks no metadata service in this process and its children, unless the environment says
    otherwise. Without a region in the environment it asks every time that a table is opened, also where keys are given,
    and waits seconds for an answer that machines elsewhere never get."""
    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")


def be_spark_of_this_machine(python: str) -> None:
    """A Spark that this process starts shows its pages to this machine alone, and its workers run `python`, unless the
    environment says otherwise: clients of a Connect server have no setting for either."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", python)


@contextmanager
def spark_on_loopback() -> Iterator[None]:
    """A Java of Spark's that starts within the block does not look up the name of this machine, unless the environment
    says otherwise. It fails where the name does not resolve, as in many containers."""
    with _variable("SPARK_LOCAL_IP", os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")):
        yield


@contextmanager
def native_log_filter(levels: str) -> Iterator[None]:
    """Native libraries that are imported within the block log what `levels` say, unless the environment says
    otherwise."""
    with _variable("RUST_LOG", os.environ.get("RUST_LOG", levels)):
        yield


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    """The environment has `value` within the block, and afterwards what it had before."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def environment(**changes: str) -> dict[str, str]:
    """The environment for a child process, with `changes`."""
    return {**os.environ, **changes}


def _properties(file: Path | None, variable: str) -> dict[str, str]:
    named = file or _path(variable)
    return resolved_properties(named) if named else {}


def _path(variable: str) -> Path | None:
    text = os.environ.get(variable)
    return Path(text) if text else None
