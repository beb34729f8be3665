"""A connection that cannot be made fails soon, with the address and what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from servers.no_broker import no_broker
from servers.real_broker import kill, restart
from servers.workload import Workload, until

from acktrail.config import KafkaConfig
from acktrail.embedded import EmbeddedBroker
from acktrail.embedded.kafka.embedded_broker import free_ports
from acktrail.errors import ConfigurationError, NotAuthorized, RetryableError, Unreachable
from acktrail.kafka.admin import ShareGroupAdmin

pytestmark = pytest.mark.broker


def unreachable(address: str) -> Unreachable:
    """The error for `address`."""
    with pytest.raises(Unreachable) as caught:
        ShareGroupAdmin(KafkaConfig(bootstrap_servers=address))
    return caught.value


def test_every_address_is_tried_and_named() -> None:
    """A list of dead brokers names all of them, and says that they refused the connection."""
    ports = free_ports()
    error = unreachable(f"127.0.0.1:{ports.client},127.0.0.1:{ports.controller}")
    assert all(said in error.message for said in (str(ports.client), str(ports.controller), "refused"))


def test_one_living_address_is_enough(kafka: KafkaConfig) -> None:
    """A dead broker in the list does not keep the others from answering."""
    dead = free_ports().client
    config = KafkaConfig(bootstrap_servers=f"127.0.0.1:{dead},{kafka.bootstrap_servers}")
    with ShareGroupAdmin(config) as admin:
        assert admin.broker_ids()


@pytest.mark.parametrize(("answer", "said"), [(None, "no answer"), (b"HTTP/1.1 400 Bad Request\r\n\r\n", "protocol")])
def test_a_server_that_is_no_broker_is_unreachable(answer: bytes | None, said: str) -> None:
    """A broker that was just killed takes connections and does not answer; another server answers HTTP."""
    with no_broker(answer=answer) as address:
        assert said in unreachable(address).message


def test_a_name_that_does_not_resolve_is_unreachable() -> None:
    """Said as such."""
    assert "resolve" in unreachable("no-such-host.invalid:9092").message


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


def test_a_login_where_none_is_wanted_is_refused(kafka: KafkaConfig, guarded: EmbeddedBroker) -> None:
    """The other way round."""
    config = KafkaConfig(bootstrap_servers=kafka.bootstrap_servers, properties=guarded.client_properties("reader"))
    with pytest.raises((ConfigurationError, Unreachable)) as caught:
        ShareGroupAdmin(config)
    assert "PLAINTEXT" in caught.value.hint


def test_missing_rights_on_groups_and_topics_are_named(guarded: EmbeddedBroker, guarded_workload: Workload) -> None:
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


def test_rights_are_told_without_trying(guarded: EmbeddedBroker, guarded_workload: Workload) -> None:
    """What ACLs allow, by name: all of it for a super user, what was granted to others, none without DESCRIBE."""
    guarded_workload.create_topic("told")
    guarded_workload.allow("exporter", "READ", "TOPIC", "told")
    guarded_workload.allow("exporter", "READ", "GROUP", "g")
    with ShareGroupAdmin(guarded.config("exporter")) as admin:
        until(lambda: admin.rights((), ["told"]).topics["told"] == {"READ", "DESCRIBE"}, what="the rights")
        rights = admin.rights(["g", "absent"], ["told", "orders"])
    assert rights.groups == {"g": frozenset({"READ", "DESCRIBE"}), "absent": frozenset()}
    assert rights.topics["orders"] == frozenset()
    with ShareGroupAdmin(guarded.config("admin")) as admin:
        rights = admin.rights(["g", "absent"], ["told", "absent"])
    assert rights.groups["absent"] is rights.topics["absent"] is None
    assert {"READ", "DELETE", "DESCRIBE"} <= (rights.groups["g"] or frozenset())


@pytest.mark.full  # tests/faults/test_worker_faults.py outlives a broker
def test_a_restarted_broker_is_found_again() -> None:
    """One client lives through a restart of its broker: the next question is answered. A dead one is a
    retryable error."""
    with EmbeddedBroker() as broker, ShareGroupAdmin(broker.config()) as admin:
        before = admin.describe_groups(["g"])
        restart(broker)
        assert [g.error_code for g in admin.describe_groups(["g"])] == [g.error_code for g in before] == [69]
        kill(broker)
        with pytest.raises(RetryableError):
            admin.topics()
