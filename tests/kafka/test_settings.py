"""One configuration means the same to both clients, and a wrong one is refused before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest

from acktrail.config import KafkaConfig
from acktrail.errors import ConfigurationError
from acktrail.kafka.client.client_settings import ClientCredentials, ClientSettings, addresses_of, to_librdkafka

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
        ({**OAUTH, "sasl_oauthbearer_token_endpoint_url": f"http://idp/?key={SECRET}"}, "is no https URL"),
        ({**OAUTH, "sasl_oauthbearer_token_endpoint_url": f"https://u:{SECRET}@idp/"}, "is no https URL"),
        ({**OAUTH, "sasl_oauthbearer_token_endpoint_url": "https://idp:x/"}, "is no https URL"),
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


def test_unset_properties_are_left_to_the_client() -> None:
    """No property is set to nothing."""
    properties: dict[str, Any] = to_librdkafka(config())
    assert None not in properties.values()
    assert not [name for name in properties if name.startswith(("sasl.", "ssl."))]
