"""The rows of a task: staged for the partitions they belong to, or refused with a reason."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import cordwood
from cordwood.errors import (
    ConfigError,
    InvalidRecordError,
    RecordTooLargeError,
    UnknownPartitionError,
    UnknownTopicError,
)
from cordwood.format.batch import BatchDecoder
from cordwood.format.record import Record
from cordwood.log.inbox.change_inbox import inbox_directory, staging_directory
from cordwood.log.topics.topic import partition_for
from cordwood.spark.sink.sink_columns import SinkColumns
from cordwood.spark.sink.sink_options import SinkOptions
from cordwood.spark.sink.task_output import StagedRows, stage_rows
from cordwood.storage.files import RealFileSystem
from cordwood.storage.small_files.staged_file import StagedFile
from fakes.client_batches import NOW
from fakes.manual_clock import ManualClock

ORDER = ("value", "key", "headers", "topic", "partition", "timestamp")
TYPES = {
    "value": pa.binary(),
    "key": pa.binary(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    "topic": pa.string(),
    "partition": pa.int32(),
    "timestamp": pa.timestamp("us", "UTC"),
}


@pytest.fixture
def path(tmp_path: Path) -> str:
    with cordwood.open(tmp_path / "store") as store:
        store.create_topic("orders", partitions=4, config={"max.message.bytes": 5000})
        store.create_topic("state", partitions=2, config={"cleanup.policy": "compact"})
    return str(tmp_path / "store")


def stage(path: str, *batches: dict[str, list[Any]], **options: Any) -> StagedRows:
    names = [name for name in ORDER if batches and name in batches[0]]
    columns = SinkColumns(**{name: index for index, name in enumerate(names)})
    arrow = [
        pa.RecordBatch.from_arrays(
            [pa.array(batch[name], TYPES[name]) for name in names], names=names
        )
        for batch in batches
    ]
    return stage_rows(
        arrow,
        SinkOptions(paths=(path,), **options),
        columns if names else SinkColumns(value=0),
        fs=RealFileSystem(),
        clock=ManualClock(),
        first_turn=0,
        query_id=None,
    )


def staged(path: str, rows: StagedRows) -> dict[tuple[str, int], list[Record]]:
    assert rows.file is not None
    directory = staging_directory(path, rows.file.staging_id)
    found: dict[tuple[str, int], list[Record]] = {}
    file_path = os.path.join(directory, rows.file.name)
    with StagedFile(RealFileSystem(), file_path, size=rows.file.size) as file:
        for place in file.sizes():
            for batch in file.batches(place, size_max=10**6):
                decoder = BatchDecoder()
                assert decoder.scan(batch, 0, len(batch)) == 1
                decoder.check_checksum(0)
                found.setdefault(place, []).extend(decoder.parse(0).records())
    return found


def left(path: str) -> list[str]:
    try:
        return os.listdir(inbox_directory(path))
    except FileNotFoundError:
        return []


def test_rows_go_where_their_keys_belong(path: str) -> None:
    keys = [b"key %d" % number for number in range(50)]

    rows = stage(path, {"value": keys, "key": keys}, topic="orders")

    found = staged(path, rows)
    assert rows.row_count == 50
    for (topic, partition), records in found.items():
        assert topic == "orders"
        assert all(partition_for(record.key or b"", 4) == partition for record in records)
    assert sum(map(len, found.values())) == 50


def test_columns_decide_where_the_options_do_not(path: str) -> None:
    rows = stage(
        path,
        {
            "value": [b"1", b"2", b"3"],
            "key": [b"a", b"b", b"c"],
            "topic": ["orders", "state", "orders"],
            "partition": [3, 0, None],
        },
    )

    found = staged(path, rows)
    assert [record.value for record in found["orders", 3]][:1] == [b"1"]
    assert [record.value for record in found["state", 0]] == [b"2"]
    assert found["orders", partition_for(b"c", 4)][-1].value == b"3"


def test_the_option_wins_over_the_column_of_topics(path: str) -> None:
    rows = stage(path, {"value": [b"1"], "topic": ["nowhere"], "partition": [0]}, topic="orders")

    assert list(staged(path, rows)) == [("orders", 0)]


def test_headers_and_times_are_written_and_missing_times_are_now(path: str) -> None:
    rows = stage(
        path,
        {
            "value": [b"1", None],
            "key": [b"a", b"a"],
            "headers": [[{"key": "h", "value": b"x"}, {"key": "g", "value": None}], None],
            "timestamp": [NOW * 1000 + 999, None],
        },
        topic="orders",
    )

    [(first, second)] = staged(path, rows).values()
    assert list(first.headers) == [("h", b"x"), ("g", None)]
    assert first.timestamp_ms == NOW
    assert (second.value, second.timestamp_ms) == (None, ManualClock().now_ms())


def test_rows_without_a_key_are_spread_in_large_pieces(path: str) -> None:
    rows = stage(path, {"value": [b"%d" % number for number in range(5000)]}, topic="orders")

    found = staged(path, rows)
    assert [len(found["orders", partition]) for partition in range(4)] == [2000, 1000, 1000, 1000]


def test_batches_of_the_stream_are_put_together(path: str) -> None:
    parts = [{"value": [b"%d" % n], "key": [b"same"]} for n in range(100)]

    rows = stage(path, *parts, topic="orders")

    [records] = staged(path, rows).values()
    assert [record.value for record in records] == [b"%d" % n for n in range(100)]
    assert rows.file is not None
    assert rows.file.size < 3000


def test_a_topic_that_is_not_there_is_refused_or_put_down_to_be_created(path: str) -> None:
    batch: dict[str, list[Any]] = {"value": [b"1"], "topic": ["new"]}

    with pytest.raises(UnknownTopicError):
        stage(path, batch)
    rows = stage(path, batch, partitions=3)

    assert rows.topics == {"new": 3}
    assert len(left(path)) == 1


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        ({"value": [b"1"], "topic": [None]}, InvalidRecordError),
        ({"value": [b"1"], "topic": ["__consumer_offsets"]}, ConfigError),
        ({"value": [b"1"], "topic": ["orders"], "partition": [4]}, UnknownPartitionError),
        ({"value": [b"1"], "topic": ["orders"], "partition": [-1]}, InvalidRecordError),
        ({"value": [b"1"], "topic": ["state"]}, InvalidRecordError),
        ({"value": [b"1", b"2"], "key": [b"k", None], "topic": ["orders", "state"]},
         InvalidRecordError),
        ({"value": [b"x" * 6000], "topic": ["orders"]}, RecordTooLargeError),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_written_leave_nothing_staged(
    path: str, batch: dict[str, list[Any]], error: type[Exception]
) -> None:
    with pytest.raises(error):
        stage(path, {"value": [b"ok"], "topic": ["orders"], **batch})

    assert left(path) == []


def test_rows_without_a_key_may_go_to_other_topics_beside_a_compacted_one(path: str) -> None:
    rows = stage(path, {"value": [b"1", b"2"], "key": [None, b"k"], "topic": ["orders", "state"]})

    assert rows.row_count == 2


def test_a_task_without_rows_stages_nothing(path: str) -> None:
    rows = stage(path, {"value": []}, topic="orders")

    assert rows.file is None
    assert left(path) == []
