"""What holds for every configuration: of any keys, with any texts; values and texts of errors are those of Kafka's own
``ConfigDef``."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle.kafka_classes import compiled

from acktrail.errors import InvalidConfiguration
from acktrail_connect.config_def import NAME, NON_EMPTY, ConfigDef, ConfigKey, ConfigType, between, one_of, text_of

VALIDATORS = {
    ConfigType.INT: between(least=0, most=9),
    ConfigType.STRING: one_of("a", "b"),
    ConfigType.CLASS: NON_EMPTY,
}
TEXTS = st.one_of(st.none(), st.text(), st.integers(), st.booleans(), st.floats(), st.lists(st.text()), st.binary())
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


KAFKA_VALIDATORS: dict[str, Any] = {
    "none": None,
    "between": between(least=1, most=10),
    "least": between(least=0),
    "one": one_of("a", "b c"),
    "nonempty": NON_EMPTY,
    "name": NAME,
}
NUMBERS = (ConfigType.INT, ConfigType.LONG)
OF_TYPE = dict.fromkeys(NUMBERS, ("none", "between", "least")) | {
    ConfigType.BOOLEAN: ("none",),
    ConfigType.LIST: ("none",),
    ConfigType.STRING: ("none", "one", "nonempty", "name"),
    ConfigType.PASSWORD: ("none",),
}
TEXTS: tuple[str | None, ...] = (
    None,
    *json.loads(
        r"""["", " ", "a", "b c", " a ", "\u00a0a", "a\nb", "a\u0000", "\u007f", "\u0085x", "true", "TRUE ",
        "fal\u017fe", "yes", "1", "0", "10", "11", "-1", "+5", "+", "-", "1.0", "1e3", ".5", ".", "1_0",
        "\u0661\u0662", "\uff11", "\ud835\udfd9", "0x10", "2147483647", "2147483648", "-2147483648", "-2147483649",
        "9223372036854775807", "9223372036854775808", "a,b", "a , b", ",", "a,,b", "a\u2003,b", "\u001f5\u0000",
        "[hidden]", "null", "1 2", "1,2", "\u00df", "\ud83d\ude00", "--1", "0b1"]"""
    ),
)


def made_up(source: random.Random) -> str:
    """A text of the characters that parsers look at."""
    return "".join(source.choices("0123456789+-.eE, \t\nxXpPfFdDaNtrue_\u00a0\u0663", k=source.randint(1, 6)))


@pytest.mark.broker
def test_values_and_errors_are_kafkas(tmp_path: Path) -> None:
    """For every type and validator, over texts at the edges and made-up ones, as parsed by the release's own class."""
    program = compiled(("KafkaConfigDef.java",), "KafkaConfigDef", "4.3.1", tmp_path)
    source = random.Random(7)
    cases: list[dict[str, Any]] = []
    for kind, validators in OF_TYPE.items():
        for validator in validators:
            cases.append({"type": kind.value, "validator": validator})
            texts = [*TEXTS, *(made_up(source) for _ in range(400))]
            cases += [{"type": kind.value, "validator": validator, "text": text} for text in texts]
    told = [json.loads(line) for line in program.run("".join(json.dumps(case) + "\n" for case in cases))]
    different = [(case, own, kafka) for case, kafka in zip(cases, told, strict=True) if (own := ours(case)) != kafka]
    assert not different, f"{len(different)} of {len(cases)}: {different[:8]}"


def ours(case: dict[str, Any]) -> dict[str, Any]:
    kind = ConfigType(case["type"])
    key = ConfigKey(name="key", type=kind, documentation="", validator=KAFKA_VALIDATORS[case["validator"]])
    (value,) = ConfigDef([key]).validate({"key": case["text"]} if "text" in case else {})
    return {"value": text_of(kind, value.value), "errors": list(value.errors)}
