import pytest

from cordwood.console.decoding.masking import MASK, Masking
from cordwood.console.decoding.value_decoders import decode
from cordwood.errors import ConfigError
from cordwood.format.record import Record


def test_a_field_is_hidden_and_the_rest_is_shown() -> None:
    masking = Masking.parse(["value.card.number"]).of_topic("payments")

    shown = masking.value(decode(b'{"card": {"number": "4111", "name": "A"}, "sum": 3}'))

    assert shown.content == {"card": {"number": MASK, "name": "A"}, "sum": 3}
    assert "4111" not in shown.text


def test_lists_are_looked_into_and_a_star_is_any_name() -> None:
    masking = Masking.parse(["value.*.email"]).of_topic("t")

    shown = masking.value(decode(b'{"users": [{"email": "a@b"}, {"email": "c@d"}]}'))

    assert shown.content == {"users": [{"email": MASK}, {"email": MASK}]}


def test_a_rule_may_be_for_some_topics() -> None:
    masking = Masking.parse(["pay*:key"])

    assert masking.of_topic("payments").hides_keys
    assert not masking.of_topic("orders")


def test_a_value_that_cannot_be_parsed_is_hidden_whole() -> None:
    masking = Masking.parse(["value.card"]).of_topic("t")

    assert masking.value(decode(b"card=4111")).text == MASK


def test_what_is_hidden_cannot_be_searched() -> None:
    masking = Masking.parse(["value.card", "headers.token"]).of_topic("t")
    record = Record(value=b'{"card": "4111", "x": 1}', headers=[("token", b"secret")], offset=3)

    seen = masking.record(record)

    assert b"4111" not in (seen.value or b"")
    assert seen.headers == [("token", b"***")]


@pytest.mark.parametrize("rule", ["card", "value..x", ":value", ""])
def test_a_rule_that_is_no_path_is_refused(rule: str) -> None:
    with pytest.raises(ConfigError, match="--mask"):
        Masking.parse([rule])
