"""One configuration means the same to both clients; a wrong one, or a connection that cannot be made, fails soon and
says what to do."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from drivers.own_process import printed
from kafka import errors as kafka_errors
from servers.fake_kafka import fake_kafka, no_broker
from servers.guarded_broker import GuardedBroker
from servers.workload import Workload, until

from acktrail.config import KafkaConfig
from acktrail.errors import AcktrailError, ConfigurationError, NotAuthorized, RetryableError, Unreachable
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.client_settings import ClientCredentials, ClientSettings, addresses_of, to_librdkafka
from acktrail.kafka.client.connection_errors import explain
from acktrail_connect.sinks.target_topics import TargetTopics
from acktrail_embedded import EmbeddedBroker
from acktrail_embedded.kafka.embedded_broker import free_ports

SECRET = 'pass"word\\ 1'
OAUTH = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauthbearer_token_endpoint_url": "https://idp:8443/token",
    "sasl_oauthbearer_client_credentials_client_id": "me",
    "sasl_oauthbearer_client_credentials_client_secret": SECRET,
}


def config(**properties: str) -> KafkaConfig:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return KafkaConfig(bootstrap_servers="a:1", properties=named)


@pytest.mark.parametrize(
    "login",
    [
        {"sasl_username": "ann", "sasl_password": SECRET},
        {
            "sasl_jaas_config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="ann" password="pass\\"word\\\\ 1";'
        },
    ],
)
def test_a_login_reads_the_same_in_both_notations(login: dict[str, str]) -> None:
    """User and password survive Kafka's JAAS line as well as librdkafka's properties."""
    given = config(security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-512", **login)
    settings = ClientSettings.from_config(given)
    assert (settings.sasl_plain_username, settings.sasl_plain_password) == ("ann", SECRET)
    assert settings.sasl_mechanism == "SCRAM-SHA-512"
    assert SECRET not in repr(settings) + repr(given)
    properties = to_librdkafka(given)
    assert (properties["sasl.username"], properties["sasl.password"]) == ("ann", SECRET)
    assert properties["security.protocol"] == "sasl_ssl"


def test_certificates_in_kafkas_notation_are_librdkafkas_files() -> None:
    """A PEM trust store is the authority's file, and an empty identification algorithm means no host name check."""
    properties = to_librdkafka(
        config(
            security_protocol="ssl",
            ssl_truststore_type="PEM",
            ssl_truststore_location="/ca.pem",
            ssl_keystore_type="PEM",
            ssl_keystore_location="/me.pem",
            ssl_endpoint_identification_algorithm="",
        )
    )
    assert properties["ssl.ca.location"] == "/ca.pem"
    assert properties["ssl.certificate.location"] == properties["ssl.key.location"] == "/me.pem"
    assert properties["ssl.endpoint.identification.algorithm"] == "none"


@pytest.mark.parametrize(
    "notation",
    [
        {
            "sasl_oauthbearer_client_credentials_client_id": "me",
            "sasl_oauthbearer_client_credentials_client_secret": SECRET,
            "sasl_oauthbearer_scope": "kafka read",
            "sasl_oauthbearer_extensions": "pool=p-1,logicalCluster=lkc-1",
            "sasl_login_callback_handler_class": "org.apache.kafka.common.security.oauthbearer"
            ".OAuthBearerLoginCallbackHandler",
        },
        {
            "sasl_oauthbearer_method": "oidc",
            "sasl_oauthbearer_client_id": "me",
            "sasl_oauthbearer_client_secret": SECRET,
            "sasl_oauthbearer_scope": "kafka read",
            "sasl_oauthbearer_extensions": "logicalCluster=lkc-1, pool=p-1",
        },
        {
            "sasl_jaas_config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            'clientId="me" clientSecret="pass\\"word\\\\ 1" scope="kafka read" extension_pool="p-1" '
            'extension_logicalCluster="lkc-1";'
        },
    ],
)
def test_a_clients_credentials_read_the_same_in_every_notation(notation: dict[str, str]) -> None:
    """Kafka's properties since 4.1, librdkafka's, and the JAAS line of older releases are one configuration."""
    login = {name: value for name, value in OAUTH.items() if "credentials" not in name}
    given = config(**login, **notation)
    settings = ClientSettings.from_config(given)
    assert settings.oauth == ClientCredentials(
        token_url="https://idp:8443/token",
        client_id="me",
        client_secret=SECRET,
        scope="kafka read",
        extensions=(("logicalCluster", "lkc-1"), ("pool", "p-1")),
    )
    assert SECRET not in repr(settings) + repr(given)
    properties = to_librdkafka(given)
    assert properties["sasl.mechanism"] == "OAUTHBEARER"
    assert callable(properties["oauth_cb"])
    assert SECRET not in repr(properties)


@pytest.mark.parametrize(
    ("misspelt", "near"),
    [
        ("securty.protocol", "security.protocol"),
        ("sasl.oauthbearer.token.endpoint.uri", "sasl.oauthbearer.token.endpoint.url"),
        ("sasl.oauthbearer.client.credential.client.id", "sasl.oauthbearer.client.credentials.client.id"),
        ("ssl.truststore.locaton", "ssl.truststore.location"),
        ("https.ca.locatoin", "https.ca.location"),
        ("Sasl.mechanism", "sasl.mechanism"),
    ],
)
def test_a_misspelt_name_is_refused_with_the_nearest(misspelt: str, near: str) -> None:
    """Else `securty.protocol` would mean plain text."""
    with pytest.raises(ConfigurationError) as caught:
        ClientSettings.from_config(KafkaConfig(bootstrap_servers="a:1", properties={misspelt: SECRET}))
    assert misspelt in caught.value.message
    assert SECRET not in str(caught.value) + caught.value.hint
    assert caught.value.hint == f"did you mean {near}?"


def test_other_properties_of_a_tools_file_are_passed_over() -> None:
    """What has nothing to do with security does not stop a file that Kafka's tools take."""
    assert ClientSettings.from_config(config(group_id="x", retries="3", client_id="me")).client_id == "me"


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"security_protocol": "TLS"}, "security.protocol"),
        ({"security_protocol": "SASL_SSL"}, "sasl.mechanism"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"}, "sasl.mechanism"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "u"}, "password"),
        ({"ssl_truststore_location": "/a.jks"}, "not a PEM"),
        ({"sasl_passwort": SECRET}, "sasl.passwort"),
        ({**OAUTH, "sasl_oauthbearer_client_credentials_client_secret": ""}, "client.secret is missing"),
        ({**OAUTH, "sasl_oauthbearer_token_endpoint_url": f"http://idp/?key={SECRET}"}, "is not an https URL"),
        ({**OAUTH, "sasl_oauthbearer_token_endpoint_url": f"https://u:{SECRET}@idp/"}, "is not an https URL"),
        ({**OAUTH, "sasl_oauthbearer_token_endpoint_url": "https://idp:x/"}, "is not an https URL"),
        ({**OAUTH, "sasl_oauthbearer_extensions": "logical"}, "name=value"),
        ({**OAUTH, "sasl_oauthbearer_extensions": "auth=x"}, "SASL extension 'auth'"),
        ({**OAUTH, "sasl_oauthbearer_method": "default"}, "sasl.oauthbearer.method"),
        ({**OAUTH, "sasl_login_callback_handler_class": "org.example.Handler"}, "sasl.login.callback.handler.class"),
        ({**OAUTH, "sasl_oauthbearer_assertion_file": "/a"}, "sasl.oauthbearer.assertion.file"),
    ],
)
def test_a_wrong_security_property_is_refused_by_name_and_without_its_value(
    properties: dict[str, str], said: str
) -> None:
    """The message names the property, never a secret."""
    with pytest.raises(ConfigurationError, match=said) as caught:
        ClientSettings.from_config(config(**properties))
    assert SECRET not in caught.value.message + caught.value.hint


@pytest.mark.parametrize("bad", ["", " , ", "host", "host:", "host:0", "host:70000", ":9092", "::1:9092", "h:x"])
def test_a_wrong_address_is_refused(bad: str) -> None:
    """Before any connection is tried."""
    with pytest.raises(ConfigurationError):
        addresses_of(bad)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a:1, b:2", ("a:1", "b:2")), ("SASL_SSL://[::1]:9092", ("[::1]:9092",)), ("10.0.0.1:1,", ("10.0.0.1:1",))],
)
def test_addresses_are_read_as_kafka_does(text: str, expected: tuple[str, ...]) -> None:
    """Lists with blanks, IPv6 in brackets, and a protocol in front."""
    assert addresses_of(text) == expected


def unreachable(address: str) -> Unreachable:
    """The error for `address`."""
    with pytest.raises(Unreachable) as caught:
        ShareGroupAdmin(KafkaConfig(bootstrap_servers=address))
    return caught.value


def test_every_address_is_tried_and_named() -> None:
    """A list of dead brokers names all of them, and says that they refused the connection. What librdkafka cannot ask
    is asked again."""
    dead = [f"127.0.0.1:{port}" for port in free_ports()]
    error = unreachable(",".join(dead))
    assert all(said in error.message for said in (*dead, "refused"))
    with pytest.raises(RetryableError, match="'orders' is not available right now"):
        TargetTopics(KafkaConfig(bootstrap_servers=dead[0], request_timeout_ms=500)).ready("orders", None, -1)


def test_one_living_address_is_enough(kafka: KafkaConfig) -> None:
    """A dead broker in the list does not keep the others from answering."""
    config = KafkaConfig(bootstrap_servers=f"127.0.0.1:{free_ports().client},{kafka.bootstrap_servers}")
    with ShareGroupAdmin(config) as admin:
        assert admin.broker_ids()


@pytest.mark.parametrize(("answer", "said"), [(None, "no answer"), (b"HTTP/1.1 400 Bad Request\r\n\r\n", "protocol")])
def test_a_server_that_is_no_broker_is_unreachable(answer: bytes | None, said: str) -> None:
    """A broker that was just killed takes connections and does not answer; another server answers HTTP."""
    with no_broker(answer=answer) as address, pytest.raises(Unreachable, match=said):
        ShareGroupAdmin(KafkaConfig(bootstrap_servers=address), bootstrap_timeout_s=1.0)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "two..dots", "long" * 16])
def test_a_name_that_does_not_resolve_is_unreachable(host: str) -> None:
    """Said as such, also of what can be no name."""
    assert "does not resolve" in unreachable(f"{host}:9092").message


def test_a_broker_that_went_away_is_told_without_the_clients_words() -> None:
    """However often it is asked again: the reason and the hint are about the broker and the network, and none is the
    name of an exception of the client."""
    with fake_kafka() as fake:
        admin = ShareGroupAdmin(fake.config(), bootstrap_timeout_s=0.5)
    said = set()
    with admin:
        for ask in [admin.topics, admin.list_groups, lambda: admin.describe_groups(["a"])] * 3:
            with pytest.raises(AcktrailError) as caught:
                ask()
            said.add(caught.value.with_hint)
    assert not [text for text in said if re.search(r"Error|node_id|NotReady|security\.protocol", text)], said


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (kafka_errors.NodeNotReadyError("No node_id provided"), "the last connection failed"),
        (kafka_errors.KafkaConnectionError(kafka_errors.NodeNotReadyError(1)), "the last connection failed"),
        (kafka_errors.KafkaConnectionError("Node not connected"), "it closed the connection"),
        (kafka_errors.KafkaConnectionError("Connection closed during connect"), "it closed the connection"),
        (kafka_errors.KafkaConnectionError("closed"), "it closed the connection"),
        (kafka_errors.KafkaConnectionError(), "it closed the connection"),
        (kafka_errors.KafkaConnectionError("an unknown correlation id"), "it does not speak Kafka's protocol"),
        (kafka_errors.RequestTimedOutError(), "no answer in time"),
    ],
)
def test_what_the_client_itself_says_of_a_connection_is_put_in_words(error: Exception, said: str) -> None:
    """Without the name of an exception, also where it has no other text."""
    found = explain(error, "k:1", ClientSettings.from_config(KafkaConfig(bootstrap_servers="k:1")))
    assert found.message == f"no Kafka broker answered at k:1: {said}"


def test_the_controllers_port_is_named_as_what_it_may_be(broker: EmbeddedBroker) -> None:
    """A controller speaks Kafka's protocol and serves no client."""
    properties = dict(
        line.split("=", 1) for line in (broker.folder / "server.properties").read_text().splitlines() if "=" in line
    )
    controller = properties["controller.quorum.voters"].replace("\\", "").partition("@")[2]
    assert "controller" in unreachable(controller).hint


@pytest.mark.parametrize("content", [None, b"\x00 no PEM", b"-----BEGIN CERTIFICATE-----\nrubbish\n"])
def test_a_file_of_authorities_that_cannot_be_used_is_named(tmp_path: Path, content: bytes | None) -> None:
    """A file that is missing, is no PEM or holds no certificate: the property and the file are named."""
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    properties = {"security.protocol": "SSL", "ssl.ca.location": str(file)}
    with pytest.raises(ConfigurationError, match=f"ssl.ca.location: {re.escape(str(file))}"):
        ShareGroupAdmin(KafkaConfig(bootstrap_servers="127.0.0.1:1", properties=properties))


def test_a_login_where_none_is_wanted_is_refused(kafka: KafkaConfig, guarded: GuardedBroker) -> None:
    """The other way round."""
    config = KafkaConfig(bootstrap_servers=kafka.bootstrap_servers, properties=guarded.client_properties("reader"))
    with pytest.raises((ConfigurationError, Unreachable)) as caught:
        ShareGroupAdmin(config)
    assert "PLAINTEXT" in caught.value.hint


def test_missing_rights_on_groups_and_topics_are_named(guarded: GuardedBroker, guarded_workload: Workload) -> None:
    """DESCRIBE on the group, then on its topics: each refusal says which right is missing."""
    with ShareGroupAdmin(guarded.config("reader")) as admin:
        assert admin.list_groups() == ()
        for ask in (lambda: admin.describe_group("g"), lambda: admin.describe_offsets("g")):
            with pytest.raises(NotAuthorized) as caught:
                ask()
            assert (caught.value.operation, caught.value.resource) == ("DESCRIBE", "group g")
        guarded_workload.allow("reader", "DESCRIBE", "GROUP", "g")
        until(admin.list_groups, what="the right to see the group")
        assert admin.describe_group("g").state == "Empty"
        assert admin.describe_offsets("g") == ()
        with pytest.raises(NotAuthorized) as caught:
            admin.describe_offsets("g", {"orders": [0]})
        assert (caught.value.operation, caught.value.resource) == ("DESCRIBE", "topic orders")
        (configs,) = admin.group_configs(["g"])
        assert configs.configs is None
        assert configs.error == "GROUP_AUTHORIZATION_FAILED" or configs.error_code == 30


def test_asking_questions_imports_neither_producer_nor_consumer() -> None:
    """They are a third of the client's import time. The whole package is there for whoever wants it: its names, its
    submodules, and what it does not have, before and after."""
    said = printed(
        sys.executable,
        "-c",
        "import sys, acktrail.kafka.admin\n"
        "print([name for name in ('kafka.producer', 'kafka.consumer', 'pyarrow', 'confluent_kafka')"
        " if name in sys.modules])\n"
        "import kafka\n"
        "print(hasattr(kafka, 'no_such_name'), kafka.KafkaProducer.__name__, kafka.__title__)\n"
        "from kafka import KafkaAdminClient, errors\n"
        "from kafka.consumer import KafkaConsumer\n"
        "print(kafka.KafkaConsumer is KafkaConsumer, errors.__name__, hasattr(kafka, 'no_such_name'))",
    )
    assert said.splitlines() == ["[]", "False KafkaProducer kafka", "True kafka.errors False"]


def test_a_package_that_was_imported_before_is_left_alone() -> None:
    """Another library's import of the client wins."""
    code = "import kafka, acktrail.kafka.admin as a\nprint('__getattr__' in vars(kafka), bool(a))"
    assert printed(sys.executable, "-c", code) == "False True\n"
