"""The compiled kernels and the plain ones are one source: same results, same refusals."""

import importlib.util
import random
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format import batch_scan, record_encoding, record_scan, record_table
from cordwood.format import kernel_tables as tables
from cordwood.format.batch import RecordRun
from cordwood.format.record import Record
from cordwood.quantities import INT32_MAX, INT64_MAX
from fakes.client_batches import client_batch, raw_batch, raw_record

pytestmark = pytest.mark.skipif(
    not batch_scan.COMPILED, reason="the kernels are not compiled: there is nothing to compare"
)

SOURCE = Path(__file__).parents[2] / "src" / "cordwood" / "format"
MODULES = (batch_scan, record_scan, record_table, record_encoding)


def load_plain(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"plain_{name}", SOURCE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not module.COMPILED
    return module


def joined(modules: Iterable[ModuleType]) -> SimpleNamespace:
    """The kernels of several modules under one name."""
    found = SimpleNamespace()
    for module in modules:
        vars(found).update((name, f) for name, f in vars(module).items() if callable(f))
    return found


compiled = joined(MODULES)
plain = joined(load_plain(module.__name__.rpartition(".")[2]) for module in MODULES)
FORMS: tuple[Any, ...] = (compiled, plain)


def outcome(call: Callable[[Any], object], form: Any) -> object:
    try:
        return call(form)
    except Exception as error:
        return type(error)


def agreed(call: Callable[[Any], object]) -> object:
    """What both forms say; `call` makes its own buffers, so that each form writes to its own."""
    first, second = (outcome(call, form) for form in FORMS)
    assert first == second
    return first


# --- inputs -------------------------------------------------------------------------------------

small_bytes = st.binary(max_size=12)
maybe_bytes = st.none() | small_bytes
int32s = st.integers(-(2**31), INT32_MAX)
int64s = st.integers(-(2**63), INT64_MAX) | st.sampled_from([-1, 0, INT64_MAX, -(2**63)])
timestamps = st.integers(-1, INT64_MAX)
headers = st.lists(st.tuples(st.text(max_size=4).map(str.encode), maybe_bytes), max_size=3)

raw_records = st.builds(
    raw_record,
    maybe_bytes,
    key=maybe_bytes,
    headers=headers,
    offset_delta=st.integers(-1, 5),
    timestamp_delta=int64s,
)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """One batch whose fields need not be sound."""
    records = draw(st.lists(raw_records, max_size=4))
    payload = b"".join(records)
    return bytes(
        raw_batch(
            payload,
            count=draw(st.just(len(records)) | st.integers(-1, 6)),
            last_offset_delta=draw(st.integers(-1, 6)),
            base_offset=draw(st.integers(0, 9) | int64s),
            leader_epoch=draw(int32s),
            attributes=draw(st.sampled_from([0, 0, 0, 8, 0x10, 0x20, 1, 0x7FFF, -1])),
            base_timestamp=draw(int64s),
            max_timestamp=draw(int64s),
            producer_id=draw(int64s),
            producer_epoch=draw(st.integers(-(2**15), 2**15 - 1)),
            base_sequence=draw(int32s),
            magic=draw(st.sampled_from([2, 2, 2, 2, 1])),
        )
    )


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Several batches, some of their bytes changed, perhaps the end missing."""
    data = bytearray(b"".join(draw(st.lists(batches(), min_size=1, max_size=3))))
    for _ in range(draw(st.integers(0, 4))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: len(data) - draw(st.integers(0, 3))])


@st.composite
def sound_runs(draw: st.DrawFn) -> bytes:
    """Batches that follow each other as in a log."""
    data, offset = b"", draw(st.integers(0, 1000))
    for _ in range(draw(st.integers(1, 4))):
        values = draw(st.lists(maybe_bytes, min_size=1, max_size=4))
        keys = draw(st.lists(maybe_bytes, min_size=len(values), max_size=len(values)))
        times = draw(st.lists(st.integers(0, 99), min_size=len(values), max_size=len(values)))
        data += bytes(client_batch(*values, keys=keys, timestamps=times, base_offset=offset))
        offset += len(values) + draw(st.integers(0, 3))
    return data


def words(count: int) -> "array[int]":
    return array("q", bytes(8 * count))


def scanned(form: Any, data: bytes) -> tuple[tuple[int, int, int], "array[int]"]:
    rows = words(tables.BATCH_ROW * 4)
    return form.scan_headers(data, 0, len(data), 0, INT64_MAX, INT64_MAX, False, rows), rows


def parsed_table(data: bytes) -> tuple["array[int]", int]:
    """The records of a sound run, for kernels that work on a table."""
    (count, _, _), rows = scanned(compiled, data)
    table = words(tables.RECORD_ROW * 32)
    code, _, parsed, _ = compiled.parse_plain_batches(data, rows, 0, count, table)
    assert code == tables.RECORDS_OK
    return table, parsed


# --- headers and checksums ----------------------------------------------------------------------


@given(
    data=mutated(),
    start=st.integers(-1, 70),
    cut=st.integers(-1, 70),
    next_offset_min=int64s,
    stop_offset=int64s,
    offset_limit=int64s,
    is_dense=st.booleans(),
    room=st.integers(0, 3),
)
def test_scanning_headers(
    data: bytes,
    start: int,
    cut: int,
    next_offset_min: int,
    stop_offset: int,
    offset_limit: int,
    is_dense: bool,
    room: int,
) -> None:
    def call(form: Any) -> object:
        rows = words(tables.BATCH_ROW * room)
        found = form.scan_headers(
            data, start, len(data) - cut, next_offset_min, stop_offset, offset_limit, is_dense, rows
        )
        return found, rows

    agreed(call)


@given(data=mutated())
def test_scanning_a_whole_buffer_and_checking_its_checksums(data: bytes) -> None:
    def call(form: Any) -> object:
        (count, at, stop), rows = scanned(form, data)
        sound = form.first_bad_checksum(data, rows, count, memoryview(data), crc32c.crc32c)
        return count, at, stop, rows, sound

    agreed(call)


@given(data=mutated(), offset_min=int64s, offset_max=int64s, room=st.integers(0, 400))
def test_finding_the_next_batch(data: bytes, offset_min: int, offset_max: int, room: int) -> None:
    junk = random.Random(len(data)).randbytes(len(data) % 90)

    agreed(
        lambda form: form.find_batch_start(junk + data, 0, len(data), offset_min, offset_max, room)
    )
    agreed(lambda form: form.find_batch_start(data, 0, len(data), 0, INT64_MAX, len(data)))


@given(data=st.binary(max_size=200))
def test_hashes_and_checksums(data: bytes) -> None:
    agreed(lambda form: form.murmur2(data))
    assert agreed(lambda form: form.crc32c_portable(data)) == crc32c.crc32c(data)


# --- records ------------------------------------------------------------------------------------


@given(
    payload=st.lists(raw_records, max_size=4).map(b"".join), count=st.integers(0, 6), data=st.data()
)
def test_parsing_records_sound_or_not(payload: bytes, count: int, data: st.DataObject) -> None:
    changed = bytearray(payload)
    for _ in range(data.draw(st.integers(0, 3)) if changed else 0):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    batch = bytes(
        raw_batch(
            bytes(changed),
            count=count,
            last_offset_delta=data.draw(st.integers(0, 6)),
            attributes=data.draw(st.sampled_from([0, 8])),
            base_timestamp=data.draw(int64s),
            max_timestamp=data.draw(int64s),
        )
    )

    def call(form: Any) -> object:
        _, rows = scanned(form, batch)
        table = words(tables.RECORD_ROW * 8)
        found = form.parse_records(batch, 61, len(batch), rows, 0, table, 1)
        if found[0] != tables.RECORDS_OK:
            return found
        try:
            records = form.make_records(batch, table, 1, 1 + count, Record)
        except UnicodeDecodeError:
            records = None
        return found, table, records

    agreed(call)


@given(data=mutated(), room=st.integers(0, 9))
def test_parsing_runs_of_plain_batches(data: bytes, room: int) -> None:
    def call(form: Any) -> object:
        (count, _, _), rows = scanned(form, data)
        table = words(tables.RECORD_ROW * room)
        found = form.parse_plain_batches(data, rows, 0, count, table)
        return found, table[: tables.RECORD_ROW * found[2]]

    agreed(call)


@given(
    data=sound_runs(), rows=st.tuples(st.integers(-1, 40), st.integers(0, 40)), target=int64s,
    key=small_bytes,
)  # fmt: skip
def test_searching_record_rows(data: bytes, rows: tuple[int, int], target: int, key: bytes) -> None:
    table, _ = parsed_table(data)

    agreed(lambda form: form.first_row_at(table, *rows, target))
    agreed(lambda form: form.first_row_at_time(table, *rows, target))
    agreed(lambda form: form.find_key(data, table, *rows, key))
    agreed(lambda form: form.header_totals(table, *rows))
    agreed(lambda form: form.make_records(data, table, *rows, Record))


@given(
    data=sound_runs(), oldest=int64s, newest=int64s, needs_key=st.booleans(),
    room=st.integers(0, 6), base=int64s,
)  # fmt: skip
def test_checking_produced_records(
    data: bytes, oldest: int, newest: int, needs_key: bool, room: int, base: int
) -> None:
    table, count = parsed_table(data)

    def call(form: Any) -> object:
        faults = words(room)
        return form.check_produced(table, count, base, oldest, newest, needs_key, faults), faults

    agreed(call)


# --- columns ------------------------------------------------------------------------------------


@given(
    data=sound_runs(), field=st.integers(-1, 8), room=st.integers(0, 80), shift=st.integers(0, 2)
)
def test_gathering_columns(data: bytes, field: int, room: int, shift: int) -> None:
    table, count = parsed_table(data)

    def take_words(form: Any) -> object:
        out = words(room)
        form.take_words(RecordRun(data, table, 0, count), field, out, shift)
        return out

    def take_binary(form: Any) -> object:
        ends, validity, out = array("i", bytes(4 * 40)), bytearray(5), bytearray(room)
        column = SimpleNamespace(ends=ends, validity=validity, data=out, size=0)
        found = form.take_binary(RecordRun(data, table, 0, count), field, column, shift)
        return found, ends, validity, bytes(out)

    agreed(take_words)
    if field in (tables.R_KEY_POSITION, tables.R_VALUE_POSITION, -1, 8):
        agreed(take_binary)


@given(
    records=st.lists(st.builds(raw_record, headers=headers), min_size=1, max_size=4),
    room=st.integers(0, 12),
)
def test_gathering_headers(records: list[bytes], room: int) -> None:
    batch = bytes(raw_batch(b"".join(records), count=len(records)))
    _, rows = scanned(compiled, batch)
    table = words(tables.RECORD_ROW * len(records))
    compiled.parse_records(batch, 61, len(batch), rows, 0, table, 0)

    def call(form: Any) -> object:
        ends, names = array("i", bytes(4 * 8)), words(tables.RECORD_ROW * room)
        return form.take_headers(RecordRun(batch, table, 0, len(records)), ends, names), ends, names

    agreed(call)


@given(
    data=sound_runs(), interval=st.integers(0, 300), position=st.integers(0, 2**31 - 400),
    base=st.integers(0, 1000), state=st.lists(st.integers(-2, 200), min_size=6, max_size=6),
    room=st.integers(0, 4),
)  # fmt: skip
def test_indexing_batches(
    data: bytes, interval: int, position: int, base: int, state: list[int], room: int
) -> None:
    (count, _, _), rows = scanned(compiled, data)

    def call(form: Any) -> object:
        carried = array("q", state)
        offsets, times = bytearray(8 * room), bytearray(12 * room)
        sizes = form.index_batches(rows, count, position, base, interval, carried, offsets, times)
        return sizes, carried, bytes(offsets), bytes(times)

    agreed(call)


# --- writing ------------------------------------------------------------------------------------

odd_values: st.SearchStrategy[object] = st.sampled_from(
    [None, "text", 5, 1.5, bytearray(b"ba"), memoryview(b"mv")]
)
items: st.SearchStrategy[object] = st.one_of(
    st.tuples(maybe_bytes, maybe_bytes),
    st.tuples(maybe_bytes, maybe_bytes).map(list),
    st.builds(
        Record,
        maybe_bytes,
        maybe_bytes,
        st.lists(st.tuples(st.text(max_size=3), maybe_bytes), max_size=2),
        st.none() | timestamps,
    ),
)
odd_items: st.SearchStrategy[object] = st.one_of(
    items,
    st.tuples(odd_values, odd_values),
    st.builds(
        Record,
        odd_values,
        odd_values,
        st.lists(st.tuples(odd_values, odd_values), max_size=2),
        st.sampled_from([None, -2, -(2**63), 2**63, 2**70, -(2**70), 1.5, "1", True]),
    ),
    st.sampled_from([None, 5, b"bytes", "ab", (), (b"k",)]),
)


@given(
    records=st.lists(items, max_size=5) | st.lists(odd_items, max_size=5),
    first=st.integers(-1, 3), now_ms=timestamps,
    size=st.integers(0, 200), start=st.integers(-1, 80),
)  # fmt: skip
def test_encoding_records(
    records: list[object], first: int, now_ms: int, size: int, start: int
) -> None:
    def call(form: Any) -> object:
        out = bytearray(size)
        return form.encode_records(records, first, now_ms, Record, out, start), bytes(out)

    agreed(call)


@given(
    value=maybe_bytes | odd_values,
    key=maybe_bytes | odd_values,
    headers=st.lists(
        st.tuples(st.text(max_size=3) | odd_values, maybe_bytes | odd_values), max_size=2
    ),
    timestamp=st.integers(-3, INT64_MAX + 1),
    attributes=st.integers(0, 0x7FFF),
    size_max=st.integers(0, 300),
)
def test_encoding_a_sole_record(
    value: object, key: object, headers: object, timestamp: int, attributes: int, size_max: int
) -> None:
    def call(form: Any) -> object:
        return form.encode_sole(
            value, key, headers, timestamp, 5, attributes, size_max, crc32c.crc32c
        )

    if outcome(call, compiled) is OverflowError and outcome(call, plain) is TypeError:
        return  # two mistakes: a compiled form converts its numbers first
    agreed(call)


@given(records=st.lists(items | odd_items, max_size=8), partitions=st.integers(1, 5))
def test_sorting_by_key(records: list[object], partitions: int) -> None:
    agreed(lambda form: form.split_by_key(records, Record, partitions, partitions - 1))


@given(records=st.lists(items, max_size=5) | st.lists(odd_items, max_size=5))
def test_surveying_records(records: list[object]) -> None:
    agreed(lambda form: form.survey_records(records, Record))


def test_both_forms_offer_the_same_kernels() -> None:
    kernels = [
        name
        for name, value in vars(plain).items()
        if isinstance(value, FunctionType)
        and value.__module__.startswith("plain_")
        and not name.startswith("_")
    ]

    assert kernels
    assert [name for name in kernels if not hasattr(compiled, name)] == []


# --- one record ------------------------------------------------------------------------------


@given(
    data=mutated() | sound_runs(),
    first=st.integers(-1, 9),
    last=st.integers(0, 12),
    offset=st.integers(0, 12) | st.integers(0, INT64_MAX),
)
def test_the_batch_of_an_offset(data: bytes, first: int, last: int, offset: int) -> None:
    agreed(lambda form: form.find_batch(data, 0, len(data), first, last, offset))


@given(data=mutated() | sound_runs(), offset=st.integers(0, 12) | int64s)
def test_the_record_of_an_offset(data: bytes, offset: int) -> None:
    def call(form: Any) -> object:
        row = array("q", bytes(8 * tables.RECORD_ROW))
        code = form.find_record(data, 0, len(data), offset, row)
        return code, row.tolist() if code == tables.RECORDS_OK else None

    agreed(call)


@given(
    entries=st.lists(st.tuples(st.integers(0, 50), st.integers(0, INT32_MAX)), max_size=12),
    wanted=st.integers(-1, 60) | st.integers(-1_000, INT64_MAX - 1_000),
)
def test_the_entry_at_or_below_an_offset(entries: list[tuple[int, int]], wanted: int) -> None:
    entries.sort()
    data = b"".join(a.to_bytes(4, "big") + b.to_bytes(4, "big") for a, b in entries)

    found = agreed(lambda form: form.floor_entry(data, wanted))

    below = [entry for entry in entries if entry[0] <= wanted]
    assert found == (below[-1] if below else (-1, 0))
    around = agreed(lambda form: form.entries_around(data, 1_000, 1_000 + wanted))
    above = entries[len(below) :]
    last, position = below[-1] if below else (0, 0)
    next_last, next_position = above[0] if above else (0, 0)
    beyond = above[1][1] if len(above) > 1 else 0
    assert around == (1_000 + last, position, 1_000 + next_last, next_position, beyond)
