"""How one key reads, refuses and renders its values."""

import pytest

from cordwood.errors import ConfigError
from cordwood.log.rules.config_key import ConfigKey, ConfigKind, ConfigValue
from cordwood.quantities import MIB


def key(kind: ConfigKind, *, default: str = "1", none_text: str | None = None) -> ConfigKey:
    return ConfigKey(
        name="some.key", kind=kind, default_text=default, doc="For a test.", none_text=none_text
    )


SIZE = ConfigKey(
    name="some.bytes",
    kind=ConfigKind.SIZE,
    default_text="1048576",
    doc="",
    minimum=MIB,
    maximum=4 * MIB,
)
POLICY = ConfigKey(
    name="some.policy",
    kind=ConfigKind.LIST,
    default_text="",
    doc="",
    choices=("compact", "delete"),
)


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        (ConfigKind.SIZE, "64KiB", 65536),
        (ConfigKind.SIZE, 65536, 65536),
        (ConfigKind.DURATION, "7d", 604_800_000),
        (ConfigKind.DURATION, "250", 250),
        (ConfigKind.INTEGER, "17", 17),
        (ConfigKind.RATIO, "0.25", 0.25),
        (ConfigKind.RATIO, 1, 1.0),
        (ConfigKind.BOOLEAN, "TRUE", True),
        (ConfigKind.BOOLEAN, False, False),
        (ConfigKind.TEXT, "any text", "any text"),
        (ConfigKind.LIST, "", ()),
        (ConfigKind.LIST, "a, b,a", ("a", "b")),
        (ConfigKind.LIST, ["a", "b"], ("a", "b")),
    ],
)
def test_a_value_is_read_as_people_write_it(
    kind: ConfigKind, raw: object, value: ConfigValue
) -> None:
    read = key(kind).parse(raw)

    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (ConfigKind.SIZE, "64 parsecs"),
        (ConfigKind.SIZE, 1.5),
        (ConfigKind.SIZE, True),
        (ConfigKind.SIZE, None),
        (ConfigKind.SIZE, 2**63),
        (ConfigKind.DURATION, "soon"),
        (ConfigKind.INTEGER, "1KiB"),
        (ConfigKind.INTEGER, "1.0"),
        (ConfigKind.RATIO, "nan"),
        (ConfigKind.RATIO, "half"),
        (ConfigKind.RATIO, True),
        (ConfigKind.BOOLEAN, "yes"),
        (ConfigKind.BOOLEAN, 1),
        (ConfigKind.TEXT, 5),
        (ConfigKind.LIST, 5),
        (ConfigKind.LIST, [5]),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(kind: ConfigKind, raw: object) -> None:
    with pytest.raises(ConfigError) as caught:
        key(kind).parse(raw)

    assert caught.value.key == "some.key"
    assert caught.value.value == raw


@pytest.mark.parametrize("raw", ["1MiB", "4MiB", MIB])
def test_both_ends_of_a_range_belong_to_it(raw: object) -> None:
    assert SIZE.render(SIZE.parse(raw)) in {"1048576", "4194304"}


@pytest.mark.parametrize("raw", ["1023KiB", "4194305", -1])
def test_a_value_out_of_range_is_refused_as_it_was_typed(raw: object) -> None:
    with pytest.raises(ConfigError) as caught:
        SIZE.parse(raw)

    assert str(caught.value) == f"some.bytes = {raw}: must be 1 MiB to 4 MiB"


@pytest.mark.parametrize("raw", ["keep", "compact,keep", "Compact"])
def test_a_choice_that_is_none_is_refused_with_the_choices(raw: str) -> None:
    with pytest.raises(ConfigError, match="items from compact, delete"):
        POLICY.parse(raw)


@pytest.mark.parametrize("raw", ["-1", -1, " -1 ", None])
def test_none_has_a_text_of_its_own(raw: object) -> None:
    limit = key(ConfigKind.SIZE, none_text="-1")

    assert limit.parse(raw) is None
    assert limit.render(None) == "-1"
    assert limit.rule == "must be at least 0, or -1 for none"


@pytest.mark.parametrize(
    ("kind", "raw", "text"),
    [
        (ConfigKind.SIZE, "1MiB", "1048576"),
        (ConfigKind.DURATION, "1h", "3600000"),
        (ConfigKind.RATIO, 0.5, "0.5"),
        (ConfigKind.BOOLEAN, True, "true"),
        (ConfigKind.LIST, ["a", "b"], "a,b"),
    ],
)
def test_a_value_is_rendered_as_kafka_prints_it_and_reads_back(
    kind: ConfigKind, raw: object, text: str
) -> None:
    value = key(kind).parse(raw)

    assert key(kind).render(value) == text
    assert key(kind).parse(text) == value


def test_checking_refuses_what_parsing_would_not_return() -> None:
    SIZE.check(MIB)
    for value in (MIB - 1, "1MiB", None, float(MIB)):
        with pytest.raises(ConfigError):
            SIZE.check(value)
