"""Rows of Arrow become the batches that the same records become one by one."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from cordwood.errors import RecordTooLargeError
from cordwood.format import column_kernels, record_encoding
from cordwood.format.batch import BatchDecoder
from cordwood.format.batch_builder import BatchStyle, build_batch
from cordwood.format.column_batches import ChosenPlaces, ColumnBatches, PlaceRule, RecordColumns
from cordwood.format.compression import Codec
from cordwood.format.record import Record
from cordwood.quantities import MIB, TimestampMs

NOW = TimestampMs(1_700_000_000_000)
STYLE = BatchStyle(bytes_max=MIB)
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

Rows = list[dict[str, Any]]


def arrow(rows: Rows, kind: str = "binary") -> dict[str, Any]:
    """The rows as columns, with nulls where a row lacks something."""
    binary = {"binary": pa.binary(), "large": pa.large_binary(), "view": pa.binary_view()}[kind]
    return {
        "value": pa.array([row.get("value") for row in rows], binary),
        "key": pa.array([row.get("key") for row in rows], binary),
        "timestamp": pa.array(
            [None if "ms" not in row else row["ms"] * 1000 for row in rows],
            pa.timestamp("us", "UTC"),
        ),
        "headers": pa.array(
            [
                None
                if "headers" not in row
                else [{"key": name, "value": value} for name, value in row["headers"]]
                for row in rows
            ],
            HEADERS,
        ),
    }


def records(rows: Rows) -> list[Record]:
    return [
        Record(
            row.get("value"),
            row.get("key"),
            tuple(row.get("headers", ())),
            row.get("ms"),
        )
        for row in rows
    ]


def encode(
    columns: dict[str, Any], places: list[int], style: BatchStyle = STYLE, target: int = MIB
) -> dict[int, list[bytes]]:
    """The batches of each place."""
    found: dict[int, list[bytes]] = {}
    batches = ColumnBatches(
        lambda place, data: found.setdefault(place, []).append(bytes(data)),
        batch_bytes_target=target,
    )
    chosen = ChosenPlaces(array("i", places), max(places, default=0) + 1)
    batches.add(RecordColumns.of(**columns, now_ms=NOW), chosen, lambda _place: style)
    batches.finish()
    return found


def decode(batches: list[bytes]) -> list[Record]:
    decoder = BatchDecoder()
    found = []
    for batch in batches:
        assert decoder.scan(memoryview(batch), 0, len(batch)) == 1
        decoder.check_checksum(0)
        found += decoder.parse(0).records()
    return found


def random_rows(rng: Random, count: int) -> Rows:
    rows: Rows = []
    for _ in range(count):
        row: dict[str, Any] = {}
        if rng.random() < 0.8:
            row["key"] = rng.randbytes(rng.choice((0, 1, 3, 40)))
        if rng.random() < 0.9:
            row["value"] = rng.randbytes(rng.choice((0, 1, 63, 64, 8191, 300)))
        if rng.random() < 0.7:
            row["ms"] = rng.choice((0, 1, NOW, NOW + rng.randrange(10**9)))
        if rng.random() < 0.3:
            row["headers"] = [
                ("é" * rng.randrange(3), rng.choice((None, b"", b"some")))
                for _ in range(rng.randrange(4))
            ]
        rows.append(row)
    return rows


@pytest.mark.parametrize("seed", range(12))
def test_a_batch_of_columns_is_byte_for_byte_that_of_the_same_records(seed: int) -> None:
    rows = random_rows(Random(seed), 30)

    [batch] = encode(arrow(rows), [0] * len(rows))[0]

    assert batch == bytes(build_batch(records(rows), NOW, STYLE).data)


@pytest.mark.parametrize("kind", ["large", "view"])
def test_columns_of_other_layouts_are_taken_too(kind: str) -> None:
    rows = random_rows(Random(5), 20)

    [batch] = encode(arrow(rows, kind), [0] * len(rows))[0]

    assert batch == bytes(build_batch(records(rows), NOW, STYLE).data)


def test_strings_are_written_as_utf_8() -> None:
    columns = {"value": pa.array(["grün", None]), "key": pa.array(["ä", "b"])}

    found = decode(encode(columns, [0, 0])[0])

    assert [(record.key, record.value) for record in found] == [
        ("ä".encode(), "grün".encode()),
        (b"b", None),
    ]


def test_a_part_of_a_larger_array_is_only_that_part() -> None:
    rows = random_rows(Random(9), 40)
    columns = {name: column.slice(7, 20) for name, column in arrow(rows).items()}

    [batch] = encode(columns, [0] * 20)[0]

    assert batch == bytes(build_batch(records(rows[7:27]), NOW, STYLE).data)


def test_rows_go_to_their_places_in_their_order() -> None:
    rng = Random(3)
    rows = random_rows(rng, 200)
    places = [rng.randrange(7) for _ in rows]

    found = encode(arrow(rows), places)

    for place in range(7):
        mine = [row for row, chosen in zip(rows, places, strict=True) if chosen == place]
        assert b"".join(found[place]) == bytes(build_batch(records(mine), NOW, STYLE).data)


@pytest.mark.parametrize("target", [200, 1000, 5000])
def test_batches_are_cut_at_the_size_wanted_and_lose_nothing(target: int) -> None:
    rows = random_rows(Random(target), 100)

    batches = encode(arrow(rows), [0] * len(rows), target=target)[0]

    assert len(batches) > 1
    assert all(len(batch) <= 61 + target or _count(batch) == 1 for batch in batches)
    expected = [(row.get("key"), row.get("value"), row.get("ms", NOW)) for row in rows]
    found = [(record.key, record.value, record.timestamp_ms) for record in decode(batches)]
    assert found == expected


def _count(batch: bytes) -> int:
    return int.from_bytes(batch[57:61], "big")


def test_a_place_goes_on_with_its_batch_in_the_next_call() -> None:
    rows = random_rows(Random(2), 60)
    found: list[bytes] = []
    batches = ColumnBatches(lambda _place, data: found.append(bytes(data)))

    for start in range(0, 60, 10):
        columns = RecordColumns.of(**arrow(rows[start : start + 10]), now_ms=NOW)
        batches.add(columns, ChosenPlaces(array("i", [0] * 10), 1), lambda _place: STYLE)
    batches.finish()

    assert found == [bytes(build_batch(records(rows), NOW, STYLE).data)]


def test_batches_are_compressed_as_the_topic_wants() -> None:
    rows = [{"value": b"the same again " * 20, "ms": NOW} for _ in range(50)]
    style = BatchStyle(bytes_max=MIB, codec=Codec.ZSTD)

    [batch] = encode(arrow(rows), [0] * 50, style)[0]

    assert len(batch) < 1000
    assert [record.value for record in decode([batch])] == [row["value"] for row in rows]


def test_a_record_that_no_batch_may_hold_is_refused() -> None:
    rows = [{"value": b"x"}, {"value": b"x" * 2000}]

    with pytest.raises(RecordTooLargeError, match="1000"):
        encode(arrow(rows), [0, 0], BatchStyle(bytes_max=1000))


def test_a_record_larger_than_a_usual_batch_is_one_by_itself() -> None:
    rows = [{"value": b"a"}, {"value": b"x" * 9000}, {"value": b"b"}]

    batches = encode(arrow(rows), [0, 0, 0], target=500)[0]

    assert [record.value for record in decode(batches)] == [b"a", b"x" * 9000, b"b"]
    assert [_count(batch) for batch in batches] == [1, 1, 1]


def test_many_places_do_not_hold_more_memory_than_they_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cordwood.format.column_batches._WAITING_BYTES_MAX", 100_000)
    written: list[int] = []
    batches = ColumnBatches(lambda place, _data: written.append(place))
    rows = [{"value": b"v"} for _ in range(50)]

    columns = RecordColumns.of(**arrow(rows), now_ms=NOW)
    batches.add(columns, ChosenPlaces(array("i", range(50)), 50), lambda _place: STYLE)

    assert sorted(written) == list(range(50))


def test_times_before_1970_are_refused() -> None:
    rows = [{"value": b"v", "ms": -5000}]

    with pytest.raises(ValueError, match="before 1970"):
        encode(arrow(rows), [0])


def test_a_header_without_a_key_is_refused() -> None:
    rows: Rows = [{"value": b"v", "headers": [(None, b"x")]}]

    with pytest.raises(ValueError, match="header without a key"):
        encode(arrow(rows), [0])


# --- places --------------------------------------------------------------------------------------


def choose(
    keys: list[bytes | None],
    *,
    given: list[int] | None = None,
    topics: list[int] | None = None,
    counts: list[int],
    turn: int = 0,
    rows_per_turn: int = 2,
    crc_table: Sequence[int] = (),
) -> tuple[list[int], int, int]:
    columns = RecordColumns.of(
        value=pa.array([b""] * len(keys)), key=pa.array(keys, pa.binary()), now_ms=NOW
    )
    firsts = [sum(counts[:topic]) for topic in range(len(counts))]
    places = array("i", bytes(4 * len(keys)))
    rule = PlaceRule(
        first_places=array("q", firsts),
        partition_counts=array("q", counts),
        crc_table=array("I", crc_table),
        turn=turn,
        rows_per_turn=rows_per_turn,
    )
    after, bad = column_kernels.choose_places(
        columns.keys, array("i", given or []), array("i", topics or []), rule, places
    )
    return places.tolist(), after, bad


def test_keys_choose_partitions_as_every_kafka_client_by_default() -> None:
    rng = Random(1)
    keys: list[bytes | None] = [rng.randbytes(rng.randrange(20)) for _ in range(500)]

    places, _, bad = choose(keys, counts=[7])

    assert bad == -1
    assert places == [(record_encoding.murmur2(key or b"") & 0x7FFFFFFF) % 7 for key in keys]


def crc_of_zlib() -> list[int]:
    """The table of CRC-32, by its polynomial."""
    table = list(range(256))
    for _ in range(8):
        table = [word >> 1 ^ (0xEDB88320 if word & 1 else 0) for word in table]
    return table


def test_with_a_table_of_crc_32_keys_choose_partitions_as_librdkafka_does_by_default() -> None:
    rng = Random(2)
    keys: list[bytes | None] = [rng.randbytes(rng.randrange(1, 20)) for _ in range(500)]

    places, turn, bad = choose([*keys, b"", None], counts=[7], turn=4, crc_table=crc_of_zlib())

    assert bad == -1
    assert places == [*(zlib.crc32(key or b"") % 7 for key in keys), 2, 2]
    assert turn == 6


def test_a_table_that_is_too_small_is_refused() -> None:
    with pytest.raises(IndexError):
        choose([b"key"], counts=[2], crc_table=[0] * 255)


def test_rows_without_a_key_take_turns() -> None:
    places, turn, _ = choose([None] * 7, counts=[3], turn=4)

    assert places == [2, 2, 0, 0, 1, 1, 2]
    assert turn == 11


def test_a_partition_that_is_given_wins_over_the_key() -> None:
    places, _, _ = choose([b"key", b"key"], given=[1, -1], counts=[2])

    assert places == [1, (record_encoding.murmur2(b"key") & 0x7FFFFFFF) % 2]


def test_topics_have_their_places_one_behind_the_other() -> None:
    places, _, _ = choose([None] * 4, given=[0, 1, 0, 2], topics=[0, 0, 1, 1], counts=[2, 3])

    assert places == [0, 1, 2, 4]


@pytest.mark.parametrize(("given", "topics"), [([0, 2], [0, 0]), ([0, 0], [0, 1])])
def test_the_first_row_that_has_no_place_is_named(given: list[int], topics: list[int]) -> None:
    _, _, bad = choose([None, None], given=given, topics=topics, counts=[2])

    assert bad == 1
