"""From an Airflow connection to a cluster's address and client properties."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acktrail.errors import ConfigurationError

pytestmark = pytest.mark.airflow


def config_of(monkeypatch: pytest.MonkeyPatch, **fields: object) -> object:
    """What `kafka_config` makes of a connection that the environment defines."""
    from acktrail_dags.run_target import kafka_config

    monkeypatch.setenv("AIRFLOW_CONN_PROBE", json.dumps({"conn_type": "generic", **fields}))
    return kafka_config("probe")


@pytest.mark.parametrize(
    ("fields", "address"),
    [
        ({"host": "k1", "port": 9092}, "k1:9092"),
        ({"host": "k1:9092,k2:9093"}, "k1:9092,k2:9093"),
        ({"host": "k1, k2:1", "port": 9092}, "k1:9092,k2:1"),
        ({"host": "[::1]:9092", "port": 1}, "[::1]:9092"),
        ({"host": "[::1]", "port": 9092}, "[::1]:9092"),
        ({"extra": {"bootstrap.servers": "k3:9094"}}, "k3:9094"),
        ({"host": "k1", "port": 1, "extra": {"bootstrap.servers": "k3:9094"}}, "k3:9094"),
    ],
)
def test_address(monkeypatch: pytest.MonkeyPatch, fields: dict[str, object], address: str) -> None:
    """Every way people write brokers into a connection gives the list a client takes."""
    assert config_of(monkeypatch, **fields).bootstrap_servers == address  # type: ignore[attr-defined]


def test_properties_and_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra's members are client properties as text; login and password are SASL's unless the extra says so."""
    extra = {"security.protocol": "SASL_SSL", "enable.ssl.certificate.verification": True, "retries": 3, "x": None}
    config = config_of(monkeypatch, host="k:1", login="ann", password="s3cret-word", extra=extra)
    assert config.properties == {  # type: ignore[attr-defined]
        "security.protocol": "SASL_SSL",
        "enable.ssl.certificate.verification": "true",
        "retries": "3",
        "sasl.username": "ann",
        "sasl.password": "s3cret-word",
    }
    own = config_of(monkeypatch, host="k:1", login="ann", extra={"sasl.username": "bob"})
    assert own.properties["sasl.username"] == "bob"  # type: ignore[attr-defined]


def test_secrets_are_masked_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """No secret of the connection is in the value's repr, and Airflow's logs redact every one of them."""
    from airflow.sdk._shared.secrets_masker import redact

    secrets = {
        "sasl.password": "pass-w0rd",
        "ssl.key.pem": "-----BEGIN-----",
        "sasl.jaas.config": "module required x",
        "sasl.oauthbearer.config": "principal=zed",
        "ssl.keystore.key": "keystore-k3y",
    }
    config = config_of(monkeypatch, host="k:1", password="connection-s3cret", extra=secrets)
    for secret in (*secrets.values(), "connection-s3cret"):
        assert secret not in repr(config)
        assert secret not in str(redact(f"tried with {secret} twice"))


@pytest.mark.parametrize(
    "extra", ['{"a": ', '["a"]', '{"a": {"b": "hidden-w0rd"}}', '{"a": ["hidden-w0rd"]}', "hidden-w0rd"]
)
def test_refused_extra_is_not_shown(monkeypatch: pytest.MonkeyPatch, extra: str) -> None:
    """An extra that is no flat JSON object is refused with a hint, and nothing of it is in the error."""
    with pytest.raises(ConfigurationError, match="probe") as caught:
        config_of(monkeypatch, host="k:1", extra=extra)
    assert "hidden" not in caught.value.message + caught.value.hint
    assert "security.protocol" in caught.value.hint


def test_no_broker_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection without a broker is refused with how to make a right one."""
    with pytest.raises(ConfigurationError, match="names no broker") as caught:
        config_of(monkeypatch)
    assert "airflow connections add probe" in caught.value.hint


def test_missing_connection_says_how_to_create_it(airflow_home: object) -> None:
    """The hint is the command that creates it."""
    from acktrail_dags.run_target import kafka_config

    with pytest.raises(ConfigurationError, match="no Airflow connection 'nowhere'") as caught:
        kafka_config("nowhere")
    assert "airflow connections add nowhere" in caught.value.hint


RUN = st.tuples(st.text(max_size=40), st.text(max_size=300), st.integers(1, 9))


@given(RUN, RUN)
def test_run_ids_are_safe_and_never_shared(one: tuple[str, str, int], other: tuple[str, str, int]) -> None:
    """Whatever Airflow calls a run, the tables' id has letters, digits and '-' only; two tries never share one."""
    from acktrail_dags.run_target import table_run_id

    first, second = table_run_id(*one), table_run_id(*other)
    assert (first == second) == (one == other)
    assert 1 <= len(first) <= 80
    assert first.isascii()
    assert first.replace("-", "").isalnum()


def test_run_ids_stay_readable() -> None:
    """The DAG run's own id can be seen in it."""
    from acktrail_dags.run_target import table_run_id

    found = table_run_id("acktrail_export", "scheduled__2026-11-21T11:20:00+00:00", 1)
    assert found.startswith("scheduled-2026-11-21T11-20-00-00-00-")
