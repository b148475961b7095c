"""Records as Arrow columns: the same records, in Arrow's own layout."""

import pyarrow as pa
import pytest

from cordwood.errors import ConfigError
from cordwood.format.arrow_columns import COLUMN_NAMES, ArrowColumns, arrow_schema
from cordwood.format.batch import BatchDecoder
from cordwood.format.compression import Codec
from cordwood.quantities import INT64_MAX
from fakes.client_batches import client_batch, raw_batch, raw_record


def columns_of(
    data: bytes,
    columns: tuple[str, ...] = COLUMN_NAMES,
    *,
    start: int = 0,
    stop: int = INT64_MAX,
) -> pa.RecordBatch:
    decoder = BatchDecoder()
    decoder.scan(memoryview(data), 0, len(data))
    collected = ArrowColumns(columns)
    ready: list[pa.RecordBatch] = []
    for run in decoder.runs(0, decoder.count, start_offset=start, stop_offset=stop):
        ready += collected.add(run)
    [batch] = ready + collected.take()
    batch.validate(full=True)
    return batch


DATA = bytes(
    client_batch(b"a", None, b"", keys=[b"k", None, b""], timestamps=[5, 3, 9])
    + client_batch(b"d" * 300, b"e", base_offset=3, codec=Codec.ZSTD)
)


def test_the_schema_is_that_of_records() -> None:
    schema = arrow_schema()

    assert schema.names == ["offset", "timestamp", "key", "value", "headers"]
    assert schema.field("timestamp").type == pa.timestamp("ms", tz="UTC")
    assert not schema.field("offset").nullable
    assert schema.field("key").nullable


def test_an_unknown_column_is_a_config_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="offset, timestamp, key, value, headers"):
        arrow_schema(["offset", "partition"])


def test_every_record_is_a_row() -> None:
    batch = columns_of(DATA)

    assert batch.column("offset").to_pylist() == [0, 1, 2, 3, 4]
    assert batch.column("key").to_pylist() == [b"k", None, b"", None, None]
    assert batch.column("value").to_pylist() == [b"a", None, b"", b"d" * 300, b"e"]
    times = batch.column("timestamp").cast(pa.int64()).to_pylist()
    assert times[:3] == [5, 3, 9]
    assert batch.column("headers").to_pylist() == [[]] * 5


def test_null_and_empty_are_told_apart() -> None:
    batch = columns_of(DATA)

    assert [value.is_valid for value in batch.column("value")] == [True, False, True, True, True]
    assert batch.column("key").null_count == 3


@pytest.mark.parametrize("start", range(6))
@pytest.mark.parametrize("stop", range(6))
def test_a_part_of_a_run_is_gathered_alone(start: int, stop: int) -> None:
    if start >= stop:
        return
    batch = columns_of(DATA, start=start, stop=stop)

    assert batch.column("offset").to_pylist() == list(range(start, stop))
    whole = columns_of(DATA)
    assert batch.equals(whole.slice(start, stop - start))


def test_headers_are_lists_of_names_and_values() -> None:
    payload = b"".join(
        [
            raw_record(headers=[(b"a", b"1"), ("ü".encode(), None)], offset_delta=0),
            raw_record(offset_delta=1),
            raw_record(headers=[(b"", b"")], offset_delta=2),
        ]
    )

    headers = columns_of(bytes(raw_batch(payload, count=3))).column("headers").to_pylist()

    assert headers == [
        [{"key": "a", "value": b"1"}, {"key": "ü", "value": None}],
        [],
        [{"key": "", "value": b""}],
    ]


def test_a_header_name_that_is_not_utf_8_is_the_same_as_in_a_record() -> None:
    data = bytes(raw_batch(raw_record(headers=[(b"\xffx", b""), (b"n", None)])))

    headers = columns_of(data).column("headers").to_pylist()

    assert headers == [[{"key": "\ufffdx", "value": b""}, {"key": "n", "value": None}]]


@pytest.mark.parametrize("name", COLUMN_NAMES)
def test_one_column_alone_is_the_same_column(name: str) -> None:
    alone = columns_of(DATA, (name,))

    assert alone.schema.names == [name]
    assert alone.column(0).equals(columns_of(DATA).column(name))


def test_columns_come_in_the_order_asked_for() -> None:
    assert columns_of(DATA, ("value", "offset")).schema.names == ["value", "offset"]


def test_no_columns_at_all_are_refused_because_arrow_could_not_count_the_rows() -> None:
    with pytest.raises(ConfigError, match="must be some of"):
        arrow_schema([])


def test_what_was_taken_is_not_handed_out_again() -> None:
    decoder = BatchDecoder()
    decoder.scan(memoryview(DATA), 0, len(DATA))
    collected = ArrowColumns()
    for run in decoder.runs(0, decoder.count):
        collected.add(run)

    assert len(collected.take()) == 1
    assert collected.take() == []


def test_columns_live_on_when_the_bytes_they_came_from_are_overwritten() -> None:
    data = bytearray(client_batch(b"value", keys=[b"key"]))
    decoder = BatchDecoder()
    decoder.scan(memoryview(data), 0, len(data))
    collected = ArrowColumns()
    for run in decoder.runs(0, 1):
        collected.add(run)
    data[:] = bytes(len(data))

    [batch] = collected.take()

    assert batch.column("value").to_pylist() == [b"value"]
    assert batch.column("key").to_pylist() == [b"key"]


def handed_out(data: bytes, columns: tuple[str, ...]) -> tuple[list[int], list[int]]:
    """Rows of the record batches that were ready on the way, and of what was left."""
    decoder = BatchDecoder()
    decoder.scan(memoryview(data), 0, len(data))
    collected = ArrowColumns(columns)
    ready = [batch for run in decoder.runs(0, decoder.count) for batch in collected.add(run)]
    return [batch.num_rows for batch in ready], [batch.num_rows for batch in collected.take()]


@pytest.mark.parametrize(
    ("sizes", "ready", "left"),
    [
        ([1], [], [1]),
        ([1, 1], [], [2]),
        ([70_000], [70_000], []),
        ([10, 70_000, 10], [10, 70_000], [10]),
        ([5_000, 5_000, 10], [10_000], [10]),
    ],
)
def test_small_runs_are_put_together_and_large_ones_handed_on(
    sizes: list[int], ready: list[int], left: list[int]
) -> None:
    data, offset = b"", 0
    for size in sizes:
        data += bytes(client_batch(*[b""] * size, base_offset=offset, codec=Codec.LZ4))
        offset += size

    assert handed_out(data, ("offset",)) == (ready, left)


def test_many_bytes_are_enough_too() -> None:
    data = bytes(client_batch(b"x" * (5 << 20)))

    assert handed_out(data, ("value",)) == ([1], [])
    assert handed_out(data, ("offset",)) == ([], [1])
