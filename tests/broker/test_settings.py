"""One configuration means the same to both clients, and a wrong one is refused before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest

from acktrail.broker.client.client_settings import ClientSettings, addresses_of
from acktrail.broker.client.librdkafka import to_librdkafka
from acktrail.config import KafkaConfig
from acktrail.errors import ConfigurationError

SECRET = 'pass"word\\ 1'


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


def test_unset_properties_are_left_to_the_client() -> None:
    """No property is set to nothing."""
    properties: dict[str, Any] = to_librdkafka(config())
    assert None not in properties.values()
    assert not [name for name in properties if name.startswith(("sasl.", "ssl."))]
