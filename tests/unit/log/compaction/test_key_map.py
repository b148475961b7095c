"""The map from keys to their newest offsets, in both of its forms."""

from __future__ import annotations

import importlib.util
from array import array
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format import kernel_tables as tables
from cordwood.format import record_scan
from cordwood.format.batch import BatchDecoder, RecordRun
from cordwood.log.compaction import key_map as installed
from cordwood.log.compaction import record_filter
from cordwood.log.compaction.batch_filter import FilterOutput, FilterRules, ParsedBatches
from cordwood.quantities import TimestampMs
from fakes.client_batches import client_batch

SOURCE = Path(__file__).parents[4] / "src" / "cordwood" / "log" / "compaction"
SECRET = bytes(range(16))


def load_plain(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"plain_{name}", SOURCE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not module.COMPILED
    return module


plain = load_plain("key_map")
FORMS: tuple[Any, ...] = (installed, plain)
FILTERS: tuple[Any, ...] = (record_filter, load_plain("record_filter"))
both_forms = pytest.mark.parametrize("form", FORMS, ids=["installed", "plain"])


def records(*keys: bytes | None, base_offset: int = 0) -> RecordRun:
    batch = client_batch(*[b"v"] * len(keys), keys=list(keys), base_offset=base_offset)
    decoder = BatchDecoder()
    decoder.scan(memoryview(batch), 0, len(batch))
    return decoder.parse(0)


def filled(form: Any, run: RecordRun, *, slots: int = 100, limit: int = 90, start: int = 0) -> Any:
    key_map = form.KeyMap(slots, limit, SECRET, start)
    key_map.put(run.data, run.table, run.end)
    return key_map


# --- the hash ---------------------------------------------------------------------------------

# The first of the reference implementation's vectors: key 00..0f, input 00 01 02 ...
VECTORS = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    7: "a1f1ebbed8dbc153c0b84aa61ff08239",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
}


@both_forms
@pytest.mark.parametrize(("size", "expected"), VECTORS.items())
def test_the_hash_is_siphash_with_128_bits(form: Any, size: int, expected: str) -> None:
    low = int.from_bytes(SECRET[:8], "little")
    high = int.from_bytes(SECRET[8:], "little")

    halves = form.hash_key(bytes(range(size)), low, high)

    assert b"".join(half.to_bytes(8, "little") for half in halves).hex() == expected


@given(st.binary(max_size=100), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_both_forms_hash_alike(key: bytes, low: int, high: int) -> None:
    assert installed.hash_key(key, low, high) == plain.hash_key(key, low, high)


# --- the map ----------------------------------------------------------------------------------


@both_forms
def test_the_last_offset_of_a_key_wins(form: Any) -> None:
    key_map = filled(form, records(b"a", b"b", b"a", b"", b"a" * 1000, base_offset=7))

    assert [key_map.get(key) for key in (b"a", b"b", b"", b"a" * 1000)] == [9, 8, 10, 11]
    assert key_map.get(b"c") is None
    assert (key_map.used, key_map.latest) == (4, 11)


@both_forms
def test_records_without_a_key_are_passed_over(form: Any) -> None:
    key_map = filled(form, records(b"a", None, None))

    assert (key_map.used, key_map.latest) == (1, 2)


@both_forms
def test_records_before_the_start_are_not_entered(form: Any) -> None:
    key_map = filled(form, records(b"a", b"b", b"c"), start=2)

    assert [key_map.get(key) for key in (b"a", b"b", b"c")] == [None, None, 2]


@both_forms
def test_a_full_map_stops_before_the_first_key_it_cannot_take(form: Any) -> None:
    run = records(b"a", b"b", b"a", b"c", b"a")

    key_map = filled(form, run, slots=4, limit=2)

    assert key_map.is_full
    assert key_map.latest == 2
    assert (key_map.get(b"a"), key_map.get(b"c")) == (2, None)


@both_forms
@pytest.mark.parametrize(("slots", "limit"), [(1, 1), (10, 10), (10, 0)])
def test_one_slot_must_stay_free(form: Any, slots: int, limit: int) -> None:
    with pytest.raises(ValueError, match="one slot"):
        form.KeyMap(slots, limit, SECRET, 0)


@given(
    st.lists(st.integers(0, 60).map(lambda n: b"%d" % n), min_size=1, max_size=80),
    st.integers(2, 70),
    st.integers(0, 20),
)
def test_both_forms_are_a_dictionary_of_bounded_size(
    keys: list[bytes], slots: int, start: int
) -> None:
    limit = max(slots * 9 // 10, 1)
    run = records(*keys)
    model: dict[bytes, int] = {}
    taken = 0
    for offset, key in enumerate(keys):
        if offset >= start:
            if key not in model and len(model) == min(limit, slots - 1):
                break
            model[key] = offset
        taken += 1

    maps = [
        filled(form, run, slots=slots, limit=min(limit, slots - 1), start=start) for form in FORMS
    ]

    for key_map in maps:
        assert {key: key_map.get(key) for key in model} == model
        assert key_map.used == len(model)
        assert key_map.is_full == (taken < len(keys))
    assert bytes(maps[0].words.cast("B")) == bytes(maps[1].words.cast("B"))


# --- who stays --------------------------------------------------------------------------------

batches = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from([b"a", b"b", b"c", b"", None]),
            st.sampled_from([None, b"", b"value"]),
            st.integers(0, 3),
        ),
        min_size=1,
        max_size=6,
    ),
    min_size=1,
    max_size=5,
)


def joined(drawn: list[list[tuple[bytes | None, bytes | None, int]]]) -> bytes:
    data = bytearray()
    offset = 0
    for number, items in enumerate(drawn):
        data += client_batch(
            *[value for _, value, _ in items],
            keys=[key for key, _, _ in items],
            timestamps=[1000 + time for _, _, time in items],
            attributes=0x40 if number == 2 else 0x08 if number == 3 else 0,
            base_offset=offset,
        )
        offset += len(items)
    return bytes(data)


def filter_with(
    form: Any, data: bytes, *, latest: int, out_bytes: int, now_ms: int
) -> tuple[Any, ...]:
    decoder = BatchDecoder()
    count = decoder.scan(memoryview(data), 0, len(data))
    table = array("q", bytes(8 * tables.RECORD_ROW * 64))
    _, _, end, _ = record_scan.parse_plain_batches(data, decoder.rows, 0, count, table)
    key_map = installed.KeyMap(100, 90, SECRET, 0)
    key_map.put(data, table, end)
    key_map.latest = latest
    parsed = ParsedBatches(
        data=memoryview(data),
        rows=decoder.rows,
        table=table,
        hashes=key_map.hashes_of(data, table, end),
    )
    rules = FilterRules(
        key_map=key_map,
        now_ms=TimestampMs(now_ms),
        new_horizon=TimestampMs(9_999),
        retained=array("q", [3, 5]),
    )
    output = FilterOutput(
        kept=bytearray(end),
        data=bytearray(out_bytes),
        rebuilt=array("q", bytes(64)),
        counts=array("q", bytes(8 * form.COUNT_WORDS)),
    )
    result = form.filter_batches(parsed, 0, count, 0, rules, output)
    return (
        result,
        bytes(output.data),
        bytes(output.kept),
        output.rebuilt.tolist(),
        output.counts.tolist(),
    )


@given(batches, st.integers(-1, 30), st.sampled_from([0, 200, 4000]), st.sampled_from([0, 5000]))
def test_both_forms_filter_alike(
    drawn: list[list[tuple[bytes | None, bytes | None, int]]],
    latest: int,
    out_bytes: int,
    now_ms: int,
) -> None:
    data = joined(drawn)

    first, second = (
        filter_with(form, data, latest=latest, out_bytes=out_bytes, now_ms=now_ms)
        for form in FILTERS
    )

    assert first == second


@both_forms
def test_a_kernel_refuses_tables_that_are_too_small(form: Any) -> None:
    run = records(b"a", b"b")
    key_map = form.KeyMap(10, 9, SECRET, 0)

    with pytest.raises(IndexError):
        form.hash_keys(run.data, run.table, 2, 0, 0, array("Q", bytes(16)))
    with pytest.raises(IndexError):
        form.hash_keys(b"", run.table, 2, 0, 0, array("Q", bytes(32)))
    with pytest.raises(IndexError):
        key_map.put(run.data, array("q"), 1)


@pytest.mark.parametrize("form", FILTERS, ids=["installed", "plain"])
def test_copying_refuses_a_range_outside_the_data(form: Any) -> None:
    run = records(b"a", b"b")

    with pytest.raises(IndexError):
        form.copy_records(run, 0, 10**6, bytearray(2), None, bytearray(9))
