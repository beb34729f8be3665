"""Every way to connect works, and every reason why one does not is told apart from the others."""

from __future__ import annotations

import re
import ssl
import tomllib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from drivers.descriptor_counts import descriptor_counts
from servers.certificates import Authority
from servers.fake_kafka import no_broker
from servers.secured_broker import CLIENT, PASSWORD, SUBJECT, USER, WAYS, SecuredBroker, secured_broker
from servers.workload import until

from acktrail.backoff import Backoff
from acktrail.config import KafkaConfig
from acktrail.errors import AcktrailError, ConfigurationError, NotAuthorized, RetryableError, Unreachable
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.broker_client import BrokerClient
from acktrail.kafka.client.client_settings import ClientSettings, to_librdkafka
from acktrail.kafka.client.credentials import TokenSource, token_source
from acktrail.kafka.log_reader import LogReader, StateTopic

pytestmark = [pytest.mark.broker, pytest.mark.slow]

PRINCIPALS: Final = {
    "plaintext": "User:ANONYMOUS",
    "mutual TLS": "User:CN=exporter,OU=trail,O=Example\\, Inc.",
    "PLAIN": f"User:{USER}",
    "SCRAM-SHA-256": f"User:{USER}",
    "SCRAM-SHA-512": f"User:{USER}",
    "OAUTHBEARER": f"User:{SUBJECT}",
}
DOCUMENT: Final = Path(__file__).parents[2] / "docs/how-to/connect-securely.md"
WRONG: Final = "a-wrong-s3cret"
_WITHIN_S: Final = 10.0


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker whose group g accepted all of topic orders; every principal may read both topics."""
    with secured_broker(tmp_path_factory.mktemp("secured")) as broker:
        broker.workload.create_topic("orders")
        for topic in ("closed", "described"):
            broker.workload.create_topic(topic)
        broker.workload.produce("orders", 3)
        broker.workload.acknowledge("g", "orders", 3)
        for principal in sorted({name.removeprefix("User:") for name in PRINCIPALS.values()} - {"ANONYMOUS"}):
            for topic in ("orders", "__share_group_state"):
                broker.workload.allow(principal, "READ", "TOPIC", topic)
            broker.workload.allow(principal, "DESCRIBE", "TOPIC", "described")
        broker.stranger.signed("stranger-client")
        broker.authority.signed("old", has_expired=True)
        broker.authority.signed("locked", password=PASSWORD)
        yield broker


def read_one(config: KafkaConfig, topic: str = "orders") -> None:
    """Look at `topic`, and read the first record of it."""
    with ShareGroupAdmin(replace(config, request_timeout_ms=int(_WITHIN_S * 1_000))) as admin:
        next(LogReader(StateTopic(admin, topic), patience_s=_WITHIN_S).read({0: (0, 1)}))


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that each try to connect gets for all addresses. A wait before another try is an error: how long
    something takes on a busy machine proves nothing, how long it may take does."""
    given: list[float] = []
    bootstrap = BrokerClient._bootstrap

    def counted(client: BrokerClient) -> None:
        given.append(client._timeout_s)
        bootstrap(client)

    def waited(_: Backoff) -> bool:
        raise AssertionError("a refusal was waited for")

    monkeypatch.setattr(BrokerClient, "_bootstrap", counted)
    monkeypatch.setattr(Backoff, "wait", waited)
    return given


@pytest.mark.parametrize("way", WAYS)
def test_every_way_works_and_with_librdkafka_too(secured: SecuredBroker, way: str) -> None:
    """One configuration lets in acktrail's client, and the one of producers and of plug-ins."""
    config = secured.config(way)
    until(lambda: _is_let_in(config), what="the ACLs")
    found = AdminClient(to_librdkafka(config)).list_topics("orders", timeout=60)
    assert found.topics["orders"].error is None


def _is_let_in(config: KafkaConfig) -> bool:
    try:
        read_one(config)
    except NotAuthorized:
        return False
    return True


def test_the_documents_list_what_is_tested_and_nothing_else() -> None:
    """docs/how-to/connect-securely.md has a row for each way of these tests."""
    text = DOCUMENT.read_text(encoding="utf-8")
    table = text.split("<!-- the matrix of tests/kafka/test_security.py -->")[1].split("\n\n")[0].strip().splitlines()
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]

    assert head == ["way", "`security.protocol`", "`sasl.mechanism`"]
    expected = [[way, f"`{WAYS[way][0]}`", f"`{WAYS[way][1]}`" if WAYS[way][1] else ""] for way in WAYS]
    assert rows == expected


FAULTS: Final = tomllib.loads(Path(__file__).with_name("connection_faults.toml").read_text("utf-8"))


def faulty(secured: SecuredBroker, fault: str) -> KafkaConfig:
    """The configuration with one of the `FAULTS`."""
    folder = secured.authority.folder
    given = {name: text.format(folder, wrong=WRONG) or None for name, text in FAULTS[fault]["changes"].items()}
    return secured.config(FAULTS[fault]["way"], **given)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_has_its_own_words(secured: SecuredBroker, fault: str, tries: list[float]) -> None:
    """One line that says what is wrong, a hint, no secret; and no other fault's words. All tries together get ten
    seconds, without a wait between them."""
    with pytest.raises(ConfigurationError) as caught:
        read_one(faulty(secured, fault))
    assert sum(tries) <= _WITHIN_S
    said = caught.value.message
    assert FAULTS[fault]["hint"] in caught.value.hint
    assert not [secret for secret in (WRONG, PASSWORD, CLIENT[1]) if secret in repr(caught.value)]
    assert "\n" not in said
    assert [name for name, other in FAULTS.items() if re.search(other["says"], said)] == [fault], said


@pytest.mark.parametrize(
    ("way", "listener", "asks"), [("plaintext", "LOGIN", "want TLS"), ("mutual TLS", "CLIENT", "speak TLS")]
)
def test_a_wrong_protocol_is_hinted_at(secured: SecuredBroker, way: str, listener: str, asks: str) -> None:
    """Brokers close such a connection without a word."""
    with pytest.raises(Unreachable) as caught:
        ShareGroupAdmin(secured.config(way, listener=listener))
    assert asks in caught.value.hint


@pytest.mark.parametrize("topic", ["closed", "described"])
def test_a_missing_right_is_no_failed_login(secured: SecuredBroker, topic: str, tries: list[float]) -> None:
    """The client is in, and may not see a topic, or not read it: NotAuthorized names it, at the first try."""
    with pytest.raises(NotAuthorized, match=f"topic {topic} is missing"):
        read_one(secured.config("SCRAM-SHA-512"), topic)
    assert sum(tries) <= _WITHIN_S


def test_a_token_for_another_audience_is_refused_by_the_broker(secured: SecuredBroker) -> None:
    """The endpoint gives a token, the broker does not take it: both are named, and the next token is a new one."""
    token_source_of(secured.config("OAUTHBEARER")).forget()
    secured.endpoint.behaviour = "audience"
    try:
        with pytest.raises(ConfigurationError, match=f"refused the token of OAuth client '{CLIENT[0]}'"):
            read_one(secured.config("OAUTHBEARER"))
    finally:
        secured.endpoint.behaviour = "good"
    until(lambda: _is_let_in(secured.config("OAUTHBEARER")), what="a new token")


def token_source_of(config: KafkaConfig) -> TokenSource:
    """The source that both clients use."""
    oauth = ClientSettings.from_config(config).oauth
    assert oauth is not None
    return token_source(oauth)


def source(secured: SecuredBroker, **changes: str | None) -> TokenSource:
    """A source that shares nothing with others."""
    oauth = ClientSettings.from_config(secured.config("OAUTHBEARER", **changes)).oauth
    assert oauth is not None
    return TokenSource(oauth)


def test_a_token_is_fetched_once_and_again_before_it_expires(
    secured: SecuredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two clients use one token; when four fifths of its life are over, the next one is fetched."""
    tokens = source(secured, sasl_oauthbearer_scope="kafka read")
    before, now = len(secured.endpoint.requests), [1_000.0]
    monkeypatch.setattr("acktrail.kafka.client.credentials.time.monotonic", lambda: now[0])
    first = tokens.token()
    now[0] += 0.79 * secured.endpoint.life_s
    text, _, principal, _ = tokens.for_librdkafka()
    assert (text, principal) == (first, SUBJECT)
    assert secured.endpoint.requests[before:] == [{"grant_type": ["client_credentials"], "scope": ["kafka read"]}]
    now[0] += 0.02 * secured.endpoint.life_s
    tokens.token()
    assert len(secured.endpoint.requests) == before + 2


def _reading(config: KafkaConfig) -> dict[str, Any]:
    return {**to_librdkafka(config), "group.id": "security", "enable.auto.commit": False, "log_level": 2}


def test_clients_outlive_their_tokens(secured: SecuredBroker) -> None:
    """Two short tokens later both clients still have answers, on a broker that ends connections with old ones."""
    config = secured.config("OAUTHBEARER")
    tokens, before = token_source_of(config), len(secured.endpoint.requests)
    tokens.forget()
    secured.endpoint.life_s = 2
    try:
        with BrokerClient(config) as client, closing(Consumer(_reading(config))) as consumer:
            consumer.assign([TopicPartition("orders", 0, 0)])
            while len(secured.endpoint.requests) < before + 3:
                assert client.metadata(["orders"]).topics[0].error_code == 0
                secured.workload.produce("orders", 1)
                while (message := consumer.poll(_WITHIN_S)) is None or message.error() is not None:
                    pass
    finally:
        secured.endpoint.life_s = 300
        tokens.forget()


@pytest.mark.parametrize(
    ("behaviour", "kind", "said"),
    [
        ("down", RetryableError, "HTTP status 503"),
        ("redirect", ConfigurationError, "HTTP status 302"),
        ("odd", ConfigurationError, "gave no token"),
    ],
)
def test_an_endpoint_without_a_token_is_said_to_have_none(
    secured: SecuredBroker, behaviour: str, kind: type[AcktrailError], said: str
) -> None:
    """An outage may be tried again; a redirection is not followed, since it would take the secret along."""
    tokens, asked = source(secured), len(secured.endpoint.requests)
    secured.endpoint.behaviour = behaviour
    try:
        with pytest.raises(kind, match=said) as caught:
            tokens.token()
    finally:
        secured.endpoint.behaviour = "good"
    assert CLIENT[1] not in repr(caught.value) + caught.value.hint
    assert len(secured.endpoint.requests) == asked + 1
    assert tokens.token()


def test_an_endpoint_that_is_not_there_is_retryable(secured: SecuredBroker) -> None:
    """Nobody listens: try again later."""
    tokens = source(secured, sasl_oauthbearer_token_endpoint_url="https://127.0.0.1:1/token")
    with pytest.raises(RetryableError, match=r"token endpoint https://127.0.0.1:1/token does not answer"):
        tokens.token()


@pytest.mark.parametrize("way", WAYS)
def test_the_principal_is_the_brokers(secured: SecuredBroker, way: str) -> None:
    """What `doctor` writes into ACLs is what the broker wrote into its log for a refused request."""
    found = ClientSettings.from_config(secured.config(way)).principal()
    assert found == (None if way == "mutual TLS" else PRINCIPALS[way])
    if way != "plaintext":
        hidden = f"hidden-{uuid4().hex}"
        with ShareGroupAdmin(secured.config(way)) as admin:
            admin.topics([hidden])
        denied = f"Principal = {PRINCIPALS[way]} is Denied operation = DESCRIBE from host = 127.0.0.1 on resource = "
        log = secured.broker.log_path
        until(lambda: f"{denied}Topic:LITERAL:{hidden}" in log.read_text(errors="replace"), what="the refusal")


@pytest.mark.parametrize("way", [None, "untrusted certificate", "no certificate", "wrong password, SCRAM"])
def test_refused_connections_cost_no_descriptors(secured: SecuredBroker, way: str | None) -> None:
    """However often nobody takes a connection, or a handshake or a login fails, there are as many descriptors as
    before: of a client that lives on, and of new ones."""
    nobody = KafkaConfig(bootstrap_servers=secured.addresses["CLIENT"])
    counts = descriptor_counts("a refusal" if way else "an outage", faulty(secured, way) if way else nobody)
    assert min(counts[len(counts) // 2 :]) <= counts[1], counts


def test_a_servers_expired_certificate_is_said_to_be(tmp_path: Path) -> None:
    """Not "not trusted": the authority is right."""
    authority = Authority.make(tmp_path, "authority")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.signed("expired", address="127.0.0.1", has_expired=True))
    with no_broker(tls=context) as address, pytest.raises(ConfigurationError, match="is out of date"):
        ShareGroupAdmin(_trusting(address, authority))


def test_a_server_that_keeps_silent_in_a_handshake_is_unreachable(tmp_path: Path) -> None:
    """Connections are taken and nothing is said, also not to a client with TLS."""
    authority = Authority.make(tmp_path, "authority")
    with no_broker() as address, pytest.raises(Unreachable, match="no answer in time"):
        ShareGroupAdmin(_trusting(address, authority), bootstrap_timeout_s=1.0)


def _trusting(address: str, authority: Authority) -> KafkaConfig:
    properties = {"security.protocol": "SSL", "ssl.ca.location": str(authority.file)}
    return KafkaConfig(bootstrap_servers=address, properties=properties)
