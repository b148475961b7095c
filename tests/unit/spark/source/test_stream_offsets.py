"""Offsets in a checkpoint: stable text, topic ids, and the start of the first batch."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.errors import FormatError
from cordwood.spark.source.stream_offsets import StreamOffset

partitions = st.tuples(st.sampled_from(["a", "b.c", "Z-1"]), st.integers(0, 200))
positions = st.dictionaries(partitions, st.integers(0, 2**63 - 1), max_size=8)


@given(positions, st.booleans(), st.none() | positions)
def test_an_offset_reads_back_as_it_was(
    found: dict[tuple[str, int], int],
    is_initial: bool,
    first: dict[tuple[str, int], int] | None,
) -> None:
    offset = StreamOffset(
        positions=found,
        topic_ids={topic: f"id of {topic}" for topic, _ in found},
        is_initial=is_initial,
        first=first,
    )

    text = json.dumps(offset.to_json())

    assert StreamOffset.from_json(json.loads(text)) == offset


@given(positions)
def test_equal_offsets_are_equal_text_whatever_order_they_came_in(
    found: dict[tuple[str, int], int],
) -> None:
    backwards = dict(reversed(found.items()))

    one = StreamOffset(positions=found, topic_ids={"a": "1", "b": "2"})
    other = StreamOffset(positions=backwards, topic_ids={"b": "2", "a": "1"})

    assert json.dumps(one.to_json()) == json.dumps(other.to_json())


def test_partitions_are_in_the_order_of_their_numbers() -> None:
    offset = StreamOffset(positions={("a", 10): 1, ("a", 9): 2})

    assert json.dumps(offset.to_json()) == '{"a": {"9": 2, "10": 1}}'


def test_the_text_is_that_of_sparks_kafka_source_with_ours_beside_it() -> None:
    offset = StreamOffset(positions={("orders", 0): 23}, topic_ids={"orders": "x"})

    assert offset.to_json() == {"orders": {"0": 23}, "@ids": {"orders": "x"}}


@pytest.mark.parametrize(
    "text",
    [
        '{"index": 5}',
        '{"a": {"x": 5}}',
        '{"a": {"0": -1}}',
        '{"a": {"0": true}}',
        '{"a": {}}',
        '{"@ids": 3}',
        '{"@ids": {"a": 3}}',
        '{"@from": []}',
        "5",
        "[]",
        "null",
    ],
)
def test_a_checkpoint_of_another_source_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="not one of this source"):
        StreamOffset.from_json(json.loads(text))
