"""Secrets by reference, and files of profiles that hold them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acktrail.errors import ConfigurationError
from acktrail.secrets import Providers, is_secret_name, resolve_all

HIDDEN = "hidden-w0rd"
LOOK_ALIKES = ("$", "${}", "${env}", "{env:PROBE}", "$env:PROBE", "${env:PROBE", "$$", "${topic}")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROBE", HIDDEN)


def test_each_kind_of_reference(tmp_path: Path) -> None:
    """A variable, a whole file without its last line break, a key of a file; with text around them."""
    (tmp_path / "whole").write_text(f"{HIDDEN}\n")
    (tmp_path / "pairs").write_text(f"# login\nuser=ann\npassword = {HIDDEN}=\n")
    assert Providers().resolve("${env:PROBE}") == HIDDEN
    assert Providers().resolve(f"${{file:{tmp_path}/whole}}") == HIDDEN
    assert Providers(base=tmp_path).resolve("<${file:pairs:user}>${file:pairs:password}") == f"<ann>{HIDDEN}="


@given(st.text(st.characters(exclude_characters="$")) | st.sampled_from(LOOK_ALIKES))
def test_a_text_without_reference_stays(text: str) -> None:
    """Nothing else in a text means anything; a placeholder of another tool has no provider."""
    assert Providers().resolve(text) == text


def test_what_a_reference_leads_to_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password that looks like a reference is a password."""
    monkeypatch.setenv("PROBE", "${env:HOME}")
    assert Providers().resolve("${env:PROBE}") == "${env:HOME}"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("${evn:PROBE}", "unknown provider", "did you mean ${env"),
        ("${vault:hidden-w0rd}", "unknown provider", "${file:PATH:KEY}"),
        ("${env:}", "incomplete", "${env:NAME}"),
        ("${env:A:B}", "incomplete", "${env:NAME}"),
        ("${file:/a:b:c}", "incomplete", "${file:PATH:KEY}"),
        ("${file:/a:}", "incomplete", "${file:PATH:KEY}"),
        ("${env:NO_SUCH_PROBE}", "${env:NO_SUCH_PROBE}: the variable is not set", "set NO_SUCH_PROBE"),
        ("${file:nowhere}", "${file:nowhere}: cannot read nowhere: No such file", "check the path"),
        ("${file:/}", "/ is not a regular file", "regular file"),
        ("${file:/dev/zero}", "/dev/zero is not a regular file", "regular file"),
    ],
)
def test_a_wrong_reference_is_refused(text: str, message: str, hint: str) -> None:
    """One clear line that shows nothing of the text around the reference, nor of what it might be."""
    with pytest.raises(ConfigurationError) as caught:
        Providers().resolve(f"{HIDDEN} {text} ${{env:PROBE}}")
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert HIDDEN not in caught.value.message + caught.value.hint


def test_wrong_files_are_refused_without_their_content(tmp_path: Path) -> None:
    """A key that is not there, a line without =, bytes that are no text, a huge file, a pipe that nobody writes to."""
    (tmp_path / "pairs").write_text(f"password={HIDDEN}\n")
    (tmp_path / "lines").write_text(HIDDEN)
    (tmp_path / "bytes").write_bytes(b"\xff" + HIDDEN.encode())
    (tmp_path / "huge").write_text(HIDDEN * 100_000)
    os.mkfifo(tmp_path / "pipe")
    for text in ("pairs:pasword", "lines:password", "bytes", "bytes:password", "huge", "huge:password", "pipe"):
        with pytest.raises(ConfigurationError) as caught:
            Providers(base=tmp_path).resolve(f"${{file:{text}}}")
        assert HIDDEN not in caught.value.message + caught.value.hint, text
        assert text.split(":")[0] in caught.value.message


def test_files_outside_the_allowed_folders_are_refused(tmp_path: Path) -> None:
    """Neither a way up nor a link leads out; a folder whose files are links into itself works."""
    allowed = tmp_path / "allowed"
    (allowed / "..data").mkdir(parents=True)
    (allowed / "..data/key").write_text(HIDDEN)
    (allowed / "key").symlink_to("..data/key")
    (tmp_path / "outside").write_text(HIDDEN)
    (allowed / "link").symlink_to("../outside")
    assert Providers(base=allowed, folders=[allowed]).resolve("${file:key}") == HIDDEN
    for path in ("../outside", "link", str(tmp_path / "outside")):
        with pytest.raises(ConfigurationError, match="outside of the allowed folders"):
            Providers(base=allowed, folders=[allowed]).resolve(f"${{file:{path}}}")
    with pytest.raises(ConfigurationError, match="outside of the allowed folders"):
        Providers(base=allowed, folders=[]).resolve("${file:key}")


def test_an_error_names_the_property() -> None:
    """With what it belongs to."""
    with pytest.raises(ConfigurationError, match=r"profile 'p', sasl\.password: .*not set"):
        resolve_all({"sasl.username": HIDDEN, "sasl.password": "${env:NO_SUCH_PROBE}"}, "profile 'p'")


@pytest.mark.parametrize(
    "name",
    [
        *("sasl.password", "ssl.key.password", "sasl.jaas.config", "ssl.key.pem", "ssl.keystore.key"),
        *("aws_secret_access_key", "AWS_SESSION_TOKEN", "azure_storage_account_key", "sasl.oauthbearer.client.secret"),
    ],
)
def test_names_of_secrets(name: str) -> None:
    """Of Kafka's clients and of object storages. What holds no secret may stand in a file of profiles as it is."""
    assert is_secret_name(name)
    plain = ("security.protocol", "sasl.username", "ssl.ca.location", "sasl.oauthbearer.token.endpoint.url", "region")
    assert not any(map(is_secret_name, plain))
