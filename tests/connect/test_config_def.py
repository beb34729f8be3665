"""What holds for every configuration: of any keys, with any texts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acktrail.connect.config_def import (
    NON_EMPTY,
    ConfigDef,
    ConfigKey,
    ConfigType,
    Password,
    between,
    one_of,
    reference,
    text_of,
)
from acktrail.connect.plugins import definition_of, installed
from acktrail.errors import InvalidConfiguration

PARSED = {
    ConfigType.BOOLEAN: st.booleans(),
    ConfigType.STRING: st.text().map(lambda text: text.strip("".join(map(chr, range(33))))),
    ConfigType.INT: st.integers(-(2**31), 2**31 - 1),
    ConfigType.LONG: st.integers(-(2**63), 2**63 - 1),
    ConfigType.LIST: st.lists(st.text("abc.", min_size=1)),
    ConfigType.PASSWORD: st.text("abc", min_size=1).map(Password),
}
VALIDATORS = {
    ConfigType.INT: between(least=0, most=9),
    ConfigType.STRING: one_of("a", "b"),
    ConfigType.CLASS: NON_EMPTY,
}
TEXTS = st.one_of(st.none(), st.text(), st.integers(), st.booleans(), st.floats(), st.lists(st.text()), st.binary())
OPTIONAL: dict[str, Any] = {"default": None}
KEYS = [
    ConfigKey(name=f"{kind.value}.{wanted}", type=kind, documentation="", validator=VALIDATORS.get(kind), **more)
    for kind in ConfigType
    for wanted, more in (
        ("required", {}),
        ("optional", {"default": None} if kind is not ConfigType.INT else {"default": 1}),
    )
    if (kind, wanted) != (ConfigType.STRING, "optional")
]
DEFINITION = ConfigDef(KEYS, {"open.": "anything"})
NAMES = st.one_of(st.sampled_from([*DEFINITION.keys, "open.x", "unknown"]), st.text())


@given(texts=st.dictionaries(NAMES, TEXTS, max_size=12))
def test_validation_never_raises_and_says_what_parse_does(texts: dict[str, Any]) -> None:
    """Each key and each given name has one value; the configuration is parsed where there is no error, to the values
    that the validation shows, and else refused with exactly its errors."""
    values = DEFINITION.validate(texts)
    assert [value.name for value in values] == [
        *DEFINITION.keys,
        *(name for name in texts if name not in DEFINITION.keys),
    ]
    errors = {value.name: value.errors for value in values if value.errors}
    if not errors:
        assert DEFINITION.parse(texts).keys() == {value.name for value in values}
        return
    with pytest.raises(InvalidConfiguration) as refused:
        DEFINITION.parse(texts)
    assert refused.value.errors == errors


@pytest.mark.parametrize("kind", PARSED)
@given(data=st.data())
def test_a_value_is_parsed_from_its_text(kind: ConfigType, data: Any) -> None:
    """The text of any value of a type gives that value."""
    value = data.draw(PARSED[kind])
    text = text_of(kind, value, hidden=False)
    (found,) = ConfigDef([ConfigKey(name="k", type=kind, documentation="")]).validate({"k": text})
    assert (found.errors, found.value) == ((), value)


@pytest.mark.parametrize("plugin", [each.name for each in installed()])
def test_the_reference_says_what_is_valid_in_words(plugin: str) -> None:
    """No validator shows as Python shows a function or an object."""
    for key in definition_of(plugin).keys.values():
        text = "" if key.validator is None else key.validator.text
        assert "<" not in text, (key.name, text)
    assert "| key |" in reference(definition_of(plugin))
