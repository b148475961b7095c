"""Plans in the JSON of Kafka's tool."""

from __future__ import annotations

import json

import pytest

from cordwood.cluster.operating.cluster_picture import PartitionPicture, Place
from cordwood.cluster.operating.reassignment import moves_of, parse_plan, render_plan
from cordwood.errors import ConfigError


def test_a_plan_survives_being_written_and_read() -> None:
    plan = {Place("orders", 1): (1, 2), Place("orders", 0): (3,)}

    assert parse_plan(render_plan(plan)) == plan


def test_what_kafka_prints_is_read() -> None:
    text = (
        '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[3,1],'
        '"log_dirs":["any","any"]}]}'
    )

    assert parse_plan(text) == {Place("orders", 0): (3, 1)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", '"version": 1'),
        ('{"version": 2, "partitions": []}', '"version": 1'),
        ('{"version": 1, "partitions": []}', 'a list "partitions"'),
        ('{"version": 1, "partitions": [7]}', "must be an object"),
        (json.dumps({"version": 1, "partitions": [{"partition": 0}]}), "has no topic"),
        (
            json.dumps(
                {"version": 1, "partitions": [{"topic": "t", "partition": True, "replicas": [1]}]}
            ),
            "has no partition",
        ),
        (
            json.dumps(
                {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}
            ),
            "t-0: must have a list of node ids",
        ),
        (
            json.dumps(
                {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}
            ),
            "has a broker twice",
        ),
        (
            json.dumps(
                {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}] * 2}
            ),
            "is there twice",
        ),
        (
            json.dumps(
                {
                    "version": 1,
                    "partitions": [
                        {"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/d"]}
                    ],
                }
            ),
            "names log_dirs",
        ),
    ],
)
def test_a_wrong_plan_is_refused_with_its_place(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_plan(text)


def test_moves_name_what_is_copied_and_how_much() -> None:
    partition = PartitionPicture(
        place=Place("orders", 0), leader=1, replicas=(1, 2), in_sync=(1, 2)
    )

    [move] = moves_of([partition], {partition.place: (2, 3, 4)}, {partition.place: 100})

    assert move.added == (3, 4)
    assert move.removed == (1,)
    assert move.bytes_to_move == 200
    assert moves_of([partition], {partition.place: (1, 2)}) == []
    [order] = moves_of([partition], {partition.place: (2, 1)})
    assert order.bytes_to_move == 0
