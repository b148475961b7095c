"""``cordwood dump``: every kind of file, sound, damaged, or not what it says."""

import itertools
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import cordwood
from cordwood.cli.dump.file_kinds import KINDS, kind_of, plan_dump
from cordwood.cli.dump.lines import DumpOptions, Soundness
from cordwood.format.batch_builder import BatchStyle, ProducerStamp, build_batch
from cordwood.format.batch_header import CONTROL, TRANSACTIONAL
from cordwood.format.control_record import ControlType, EndTransactionMarker, encode_marker
from cordwood.format.index_entry import AbortedTransaction, encode_aborted_transaction
from cordwood.format.record import Record
from cordwood.format.small_files.producer_snapshot import (
    ProducerSnapshotEntry,
    encode_producer_snapshot,
)
from cordwood.quantities import Offset, ProducerId, TimestampMs
from cordwood.storage.files import RealFileSystem
from fakes.command_line import CommandLine

FIRST = "00000000000000000000"
NOW_MS = TimestampMs(1_700_000_000_000)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with sealed segments, key indexes, and a group."""
    path = tmp_path_factory.mktemp("dump") / "data"
    config = {
        "segment.records": 40,
        "index.interval.bytes": 200,
        "key.index": "true",
        "durability": "os",
        "compression.type": "zstd",
        "retention.ms": -1,
    }
    with cordwood.open(path) as store:
        topic = store.create_topic("orders", config=config)
        for n in range(50):
            items = [(b"k%d" % (n % 7), b"value %d" % n), (None, b"\xff\x00"), (b"gone", None)]
            topic.append_many(items)
        store.group("readers").commit({("orders", 0): 12})
        store.maintain()
    return path


@pytest.fixture
def data(written: Path, tmp_path: Path) -> Path:
    path = tmp_path / "data"
    shutil.copytree(written, path)
    return path


@pytest.fixture
def log(data: Path) -> Path:
    return data / "orders-0" / f"{FIRST}.log"


def of_kind(objects: list[Any], kind: str) -> list[Any]:
    return [found for found in objects if found["kind"] == kind]


# --- logs -------------------------------------------------------------------------------------


def test_every_batch_is_shown_and_the_end_says_how_far_it_is_sound(
    cli: CommandLine, log: Path
) -> None:
    objects = cli.ok("dump", str(log), "--json").objects

    batches = of_kind(objects, "batch")
    assert batches[0]["position"] == 0
    assert all(
        after["position"] == before["position"] + before["size"]
        and after["base_offset"] == before["last_offset"] + 1
        for before, after in itertools.pairwise(batches)
    )
    assert {batch["codec"] for batch in batches} == {"zstd"}
    assert all(batch["is_crc_ok"] for batch in batches)
    assert objects[-1] == {
        "file": str(log),
        "kind": "soundness",
        "position": log.stat().st_size,
        "offset": batches[-1]["last_offset"] + 1,
        "problem": None,
        "is_torn": False,
    }


def test_people_get_a_line_for_each_batch(cli: CommandLine, log: Path) -> None:
    lines = cli.ok("dump", str(log)).lines

    assert lines[0] == f"{log}  (log)"
    assert lines[1].split() == [
        "position", "size", "base", "last", "count", "codec", "crc", "newest",
    ]  # fmt: skip
    assert lines[2].split()[2:7] == ["0", "2", "3", "zstd", "ok"]
    assert lines[-2].startswith(f"sound up to position {log.stat().st_size}, offset ")


def test_records_are_shown_by_size_and_with_their_contents(cli: CommandLine, log: Path) -> None:
    sizes = of_kind(cli.ok("dump", str(log), "--records", "-n", "3", "--json").objects, "record")
    values = of_kind(cli.ok("dump", str(log), "--values", "-n", "3", "--json").objects, "record")
    lines = cli.ok("dump", str(log), "--values", "-n", "3").lines

    assert [(r["key_bytes"], r["value_bytes"]) for r in sizes] == [(2, 7), (None, 2), (4, None)]
    assert "value" not in sizes[0]
    assert [r.get("value") for r in values] == ["value 0", None, None]
    assert values[1]["value_base64"] == "/wA="
    assert "key 2 B, value 7 B  key=k0  value=value 0" in lines[3]
    assert lines[4].endswith("no key, value 2 B  value=\\xff\\x00")
    assert lines[5].endswith("tombstone  key=gone")


def test_a_dump_begins_at_an_offset_and_ends_after_so_many(cli: CommandLine, log: Path) -> None:
    objects = cli.ok("dump", str(log), "--from", "7", "-n", "2", "--json").objects
    records = cli.ok("dump", str(log), "--from", "7", "-n", "4", "-r", "--json").objects

    assert [b["base_offset"] for b in of_kind(objects, "batch")] == [6, 9]
    assert objects[-1]["offset"] == 12
    assert [r["offset"] for r in of_kind(records, "record")] == [7, 8, 9, 10]


def test_a_file_that_was_copied_elsewhere_is_dumped_all_the_same(
    cli: CommandLine, data: Path, tmp_path: Path
) -> None:
    sealed = sorted((data / "orders-0").glob("*.log"))[1]
    copy = tmp_path / "evidence.log"
    shutil.copy(sealed, copy)

    objects = cli.ok("dump", str(copy), "--json").objects

    assert of_kind(objects, "batch")[0]["base_offset"] == int(sealed.stem)
    assert objects[-1]["problem"] is None


def test_damage_is_shown_and_what_lies_behind_it_too(cli: CommandLine, log: Path) -> None:
    sound = of_kind(cli.ok("dump", str(log), "--json").objects, "batch")
    content = bytearray(log.read_bytes())
    content[sound[1]["position"] + 70] ^= 0xFF
    log.write_bytes(content)

    ran = cli("dump", str(log), "--json")
    text = cli("dump", str(log))

    assert (ran.code, text.code) == (1, 1)
    batches = of_kind(ran.objects, "batch")
    assert [batch["is_crc_ok"] for batch in batches] == [n != 1 for n in range(len(sound))]
    [trouble] = of_kind(ran.objects, "trouble")
    assert (trouble["offset"], trouble["next_offset"]) == (3, 6)
    assert text.lines[-2] == (
        f"sound up to position {sound[1]['position']}, offset 3; then: the checksum does not match"
    )


def test_a_torn_end_of_the_newest_segment_is_no_damage(cli: CommandLine, data: Path) -> None:
    newest = sorted((data / "orders-0").glob("*.log"))[-1]
    whole = newest.stat().st_size
    (data / "orders-0" / "high-watermark").unlink()
    newest.write_bytes(newest.read_bytes() + newest.read_bytes()[:40])

    ran = cli.ok("dump", str(newest), "--json")
    text = cli.ok("dump", str(newest))

    assert ran.objects[-1]["position"] == whole
    assert ran.objects[-1]["is_torn"]
    assert "torn" in text.lines[-2]


def test_an_end_that_is_missing_is_damage_where_another_segment_follows_or_it_was_durable(
    cli: CommandLine, data: Path
) -> None:
    logs = sorted((data / "orders-0").glob("*.log"))
    for path in (logs[0], logs[-1]):
        path.write_bytes(path.read_bytes()[:-5])

    assert cli("dump", str(logs[0])).code == 1
    assert cli("dump", str(logs[-1])).code == 1


def test_zeros_at_the_end_are_room_that_was_set_aside(cli: CommandLine, log: Path) -> None:
    whole = log.stat().st_size
    log.write_bytes(log.read_bytes() + bytes(5000))

    ran = cli.ok("dump", str(log), "--json")

    assert ran.objects[-1]["position"] == whole
    assert "zeros" in ran.objects[-1]["problem"]


def test_producers_transactions_and_markers_are_told(cli: CommandLine, tmp_path: Path) -> None:
    style = BatchStyle(bytes_max=10_000)
    written = ProducerStamp(
        producer_id=ProducerId(7), producer_epoch=2, base_sequence=5, attributes=TRANSACTIONAL
    )
    ended = ProducerStamp(
        producer_id=ProducerId(7), producer_epoch=2, attributes=TRANSACTIONAL | CONTROL
    )
    key, value = encode_marker(EndTransactionMarker(type=ControlType.ABORT, coordinator_epoch=3))
    batch = bytes(build_batch([Record(b"v")], NOW_MS, style, written).data)
    marker = bytearray(build_batch([Record(value, key)], NOW_MS, style, ended).data)
    marker[:8] = (1).to_bytes(8, "big")
    path = tmp_path / f"{FIRST}.log"
    path.write_bytes(batch + bytes(marker))

    objects = cli.ok("dump", str(path), "--records", "--json").objects
    text = cli.ok("dump", str(path), "--records").out

    first, second = of_kind(objects, "batch")
    assert (first["producer_id"], first["producer_epoch"], first["base_sequence"]) == (7, 2, 5)
    assert (first["is_transactional"], first["is_control"]) == (True, False)
    assert second["is_control"]
    assert of_kind(objects, "record")[1]["control"] == {"type": "ABORT", "coordinator_epoch": 3}
    assert "producer 7 epoch 2  sequence 5 to 5" in text
    assert "ABORT: coordinator_epoch=3" in text


def test_what_groups_keep_is_decoded(cli: CommandLine, data: Path) -> None:
    logs = [p for p in data.glob("__consumer_offsets-*/*.log") if p.stat().st_size]

    objects = cli.ok("dump", "--decode", "groups", *map(str, logs), "--json").objects
    text = cli.ok("dump", "--decode", "groups", *map(str, logs)).out

    [record] = of_kind(objects, "record")
    assert record["decoded"]["type"] == "offset"
    assert record["decoded"]["group"] == "readers"
    assert (record["decoded"]["topic"], record["decoded"]["offset"]) == ("orders", 12)
    assert "offset: group=readers topic=orders" in text


def test_the_state_of_transactions_is_decoded(cli: CommandLine, tmp_path: Path) -> None:
    with cordwood.open(tmp_path / "store") as store:
        store.create_topic("orders", partitions=2)
        with store.transaction("billing") as transaction:
            transaction.append("orders", b"x", partition=0)
            transaction.append("orders", b"y", partition=1)
    file = tmp_path / "store" / "__transaction_state-0" / "00000000000000000000.log"

    lines = cli.ok("dump", "--decode", "transactions", "--json", str(file)).objects

    states = [line["decoded"]["state"] for line in lines if "decoded" in line]
    # "Ongoing" is written only if the housekeeping comes before the decision.
    assert [state for state in states if state != "Ongoing"] == [
        "Empty",
        "PrepareCommit",
        "CompleteCommit",
    ]
    prepared = next(line["decoded"] for line in lines if "decoded" in line and
                    line["decoded"]["state"] == "PrepareCommit")  # fmt: skip
    assert prepared["transactional_id"] == "billing"
    assert prepared["partitions"] == ["orders:0", "orders:1"]
    assert "billing" in cli.ok("dump", "--decode", "transactions", str(file)).out


def test_records_of_another_kind_are_told_when_groups_are_asked_for(
    cli: CommandLine, log: Path
) -> None:
    objects = cli.ok("dump", str(log), "--decode", "groups", "-n", "1", "--json").objects

    assert "undecodable" in of_kind(objects, "record")[0]["decoded"]


def test_an_empty_log_is_sound(cli: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / f"{FIRST}.log"
    path.write_bytes(b"")

    assert "sound up to position 0, offset 0: end of file" in cli.ok("dump", str(path)).out


def test_memory_is_bounded_by_batches_and_not_by_the_file(log: Path, tmp_path: Path) -> None:
    import tracemalloc

    style = BatchStyle(bytes_max=200_000)
    one = bytearray(build_batch([Record(bytes(50_000))], NOW_MS, style).data)
    path = tmp_path / f"{FIRST}.log"
    with path.open("wb") as file:
        for n in range(1000):
            one[:8] = n.to_bytes(8, "big")
            file.write(one)

    tracemalloc.start()
    try:
        count = sum(1 for _ in plan_dump(str(path), None).run(RealFileSystem(), DumpOptions()))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert count == 1000 + 2
    assert peak < 10_000_000 < path.stat().st_size


# --- indexes and small files ------------------------------------------------------------------


def test_indexes_show_their_entries(cli: CommandLine, data: Path) -> None:
    second = sorted((data / "orders-0").glob("*.log"))[1].stem
    directory = data / "orders-0"

    offsets = cli.ok("dump", str(directory / f"{second}.index"), "--json").objects
    times = cli.ok("dump", str(directory / f"{second}.timeindex"), "--json").objects
    keys = cli.ok("dump", str(directory / f"{second}.keyindex"), "--json").objects

    assert all(e["offset"] >= int(second) for e in of_kind(offsets, "entry"))
    assert of_kind(offsets, "entry")
    assert all(e["timestamp_ms"] > 0 for e in of_kind(times, "entry"))
    assert of_kind(keys, "header")[0]["entries"] == len(of_kind(keys, "entry"))
    assert [o[-1]["problem"] for o in (offsets, times, keys)] == [None] * 3


def test_an_index_by_another_name_has_relative_offsets(
    cli: CommandLine, data: Path, tmp_path: Path
) -> None:
    second = sorted((data / "orders-0").glob("*.index"))[1]
    shutil.copy(second, tmp_path / "some.index")

    ran = cli.ok("dump", str(tmp_path / "some.index"))

    assert "relative to the base offset" in ran.lines[1]


def test_slots_that_kafka_sets_aside_are_no_entries(cli: CommandLine, data: Path) -> None:
    path = data / "orders-0" / f"{FIRST}.index"
    count = path.stat().st_size // 8
    path.write_bytes(path.read_bytes() + bytes(80))

    objects = cli.ok("dump", str(path), "--json").objects
    text = cli.ok("dump", str(path)).out

    assert len(of_kind(objects, "entry")) == count
    assert "then 10 unused slots" in text


@pytest.mark.parametrize(
    ("kind", "content", "problem"),
    [
        ("index", bytes([0, 0, 0, 9, 0, 0, 0, 9] * 2), "entries are not in ascending order"),
        ("index", bytes(8) * 3 + b"\x01" * 8, "zeros, followed by an entry at 24"),
        ("index", b"\xff" * 8, "relative offset -1 is outside"),
        ("timeindex", b"\xff" * 12, "timestamp -1 is outside"),
        ("txnindex", b"\x00\x07" + bytes(32), "unsupported transaction index version: 7"),
        ("snapshot", b"\x00\x01" + bytes(8), "checksum"),
        ("keyindex", bytes(40), "not a key index"),
    ],
)
def test_an_index_that_cannot_be_is_told(
    cli: CommandLine, tmp_path: Path, kind: str, content: bytes, problem: str
) -> None:
    path = tmp_path / f"{FIRST}.{kind}"
    path.write_bytes(content)

    ran = cli("dump", str(path), "--json")

    assert ran.code == 1
    assert problem in ran.objects[-1]["problem"]


def test_half_an_entry_at_the_end_is_torn(cli: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / f"{FIRST}.index"
    path.write_bytes(bytes([0, 0, 0, 9, 0, 0, 0, 9, 0]))

    ran = cli.ok("dump", str(path), "--json")

    assert ran.objects[-1]["is_torn"]
    assert ran.objects[-1]["position"] == 8


def test_aborted_transactions_and_producers_are_shown(cli: CommandLine, tmp_path: Path) -> None:
    aborted = AbortedTransaction(
        producer_id=ProducerId(7),
        first_offset=Offset(3),
        last_offset=Offset(9),
        last_stable_offset=Offset(3),
    )
    producer = ProducerSnapshotEntry(
        producer_id=ProducerId(7),
        producer_epoch=2,
        last_sequence=4,
        last_offset=Offset(9),
        offset_delta=1,
        timestamp=NOW_MS,
        current_txn_first_offset=Offset(8),
    )
    (tmp_path / f"{FIRST}.txnindex").write_bytes(encode_aborted_transaction(aborted))
    (tmp_path / f"{FIRST}.snapshot").write_bytes(encode_producer_snapshot([producer]))

    transactions = cli.ok("dump", str(tmp_path / f"{FIRST}.txnindex"), "--json").objects
    producers = cli.ok("dump", str(tmp_path / f"{FIRST}.snapshot"), "--json").objects

    assert transactions[0]["first_offset"] == 3
    assert producers[0]["transaction_first_offset"] == 8


def test_checkpoints_and_metadata_are_shown(cli: CommandLine, data: Path) -> None:
    names = [
        "recovery-point-offset-checkpoint",
        "meta.properties",
        "orders-0/leader-epoch-checkpoint",
        "orders-0/partition.metadata",
        "orders-0/high-watermark",
    ]

    objects = cli.ok("dump", *[str(data / name) for name in names], "--json").objects

    assert any(o["topic"] == "orders" for o in of_kind(objects, "offset"))
    assert of_kind(objects, "epoch")
    assert any(o.get("cluster_id") for o in of_kind(objects, "property"))
    assert of_kind(objects, "partition")[0]["topic_id"]
    marks = {o["name"]: o["offset"] for o in of_kind(objects, "mark")}
    assert marks["high_watermark"] == 150
    assert len(of_kind(objects, "soundness")) == len(names)


def test_of_a_text_that_is_wrong_the_lines_before_are_shown(
    cli: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_bytes(b"0\n2\norders 0 5\norders zero 5\n")

    ran = cli("dump", str(path))

    assert ran.code == 1
    assert "orders 0 5" in ran.lines
    assert ran.lines[-2].startswith("sound up to position 15; then: line 4")


def test_files_that_kafka_wrote_are_sound(cli: CommandLine) -> None:
    golden = Path(__file__).parents[3] / "golden" / "kafka-4.3" / "data"
    files = [str(path) for path in golden.rglob("*") if path.is_file() and kind_of(path.name)]

    objects = cli.ok("dump", "--values", *files, "--json").objects

    assert len(of_kind(objects, "soundness")) == len(files) > 50
    codecs = {batch["codec"] for batch in of_kind(objects, "batch")}
    assert codecs == {"none", "gzip", "snappy", "lz4", "zstd"}
    markers = {r["control"]["type"] for r in of_kind(objects, "record") if "control" in r}
    assert markers == {"COMMIT", "ABORT"}


# --- what is no such file ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["gone.log"], 1, "No such file"),
        (["gone"], 1, "gone: No such file"),
        (["."], 2, "must be a file, not a directory; for example ./*.log"),
        (["notes.txt"], 2, "unknown kind of file"),
        (["notes.txt", "--as", "picture"], 2, "must be one of log, index"),
        (["notes.txt", "--decode", "cats"], 2, "--decode = cats: must be groups"),
        (["notes.txt", "-n", "0"], 2, "-n"),
        ([], 2, "FILE"),
    ],
)
def test_what_cannot_be_dumped_is_told(
    cli: CommandLine, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    (tmp_path / "notes.txt").write_text("not a log at all\n" * 10)

    ran = cli("dump", *arguments)

    assert ran.code == code, ran
    assert message in ran.err
    assert ran.out == "" or code == 1


def test_a_file_may_be_taken_for_what_it_is_not(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a log at all\n" * 10)

    ran = cli("dump", "notes.txt", "--as", "log")

    assert ran.code == 1
    assert ran.lines[-2].startswith("sound up to position 0, offset 0; then: ")


def test_kinds_are_known_by_names() -> None:
    assert kind_of("00000000000000000042.log.deleted") == "log"
    assert kind_of("copy-of-leader-epoch-checkpoint") == "epochs"
    assert kind_of("cleaner-offset-checkpoint") == "checkpoint"
    assert kind_of("log") is None
    assert kind_of("x.jpg") is None


def test_a_reader_that_leaves_ends_the_dump_quietly(log: Path) -> None:
    big = log.with_name("00000000000000000001.log")
    one = bytearray(build_batch([Record(b"v")], NOW_MS, BatchStyle(bytes_max=1000)).data)
    with big.open("wb") as file:
        for n in range(30_000):
            one[:8] = (n + 1).to_bytes(8, "big")
            file.write(one)
    dump = subprocess.Popen(
        [sys.executable, "-m", "cordwood", "dump", str(big)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert dump.stdout is not None
    assert dump.stderr is not None

    first = dump.stdout.readline()
    dump.stdout.close()
    errors = dump.stderr.read()
    dump.stderr.close()

    assert first.startswith(str(big).encode())
    assert dump.wait(60) == 0
    assert errors == b""


# --- rot --------------------------------------------------------------------------------------


def spoil(data: bytes, rot: random.Random) -> bytes:
    """Bits flip, stretches vanish or are overwritten, the end is missing."""
    spoilt = bytearray(data)
    for _ in range(rot.randrange(1, 6)):
        at = rot.randrange(len(spoilt)) if spoilt else 0
        match rot.randrange(4):
            case 0 if spoilt:
                spoilt[at] ^= 1 << rot.randrange(8)
            case 1:
                pattern = (b"\xff" * 8, bytes(8), b"\x7f" + b"\xff" * 7, rot.randbytes(8))
                spoilt[at : at + 8] = rot.choice(pattern)
            case 2:
                del spoilt[at : at + rot.randrange(1, 200)]
            case _:
                del spoilt[at:]
    return bytes(spoilt)


@pytest.mark.parametrize("seed", range(8))
def test_no_rotten_file_makes_a_dump_fail(written: Path, tmp_path: Path, seed: int) -> None:
    rot = random.Random(seed)
    files = [
        path
        for path in sorted(written.rglob("*"))
        if path.is_file() and kind_of(path.name) and path.stat().st_size
    ]

    for _ in range(100):
        path = rot.choice(files)
        copy = tmp_path / path.name
        copy.write_bytes(spoil(path.read_bytes(), rot))
        kind = rot.choice(KINDS) if rot.random() < 0.1 else None
        options = DumpOptions(
            start_offset=rot.choice([0, 0, 20]),
            limit=rot.choice([None, None, 5]),
            shows_records=rot.random() < 0.7,
            shows_values=rot.random() < 0.7,
            decodes_groups=rot.random() < 0.3,
        )

        *lines, end = plan_dump(str(copy), kind).run(RealFileSystem(), options)

        assert isinstance(end, Soundness)
        assert 0 <= end.position <= copy.stat().st_size
        for line in (*lines, end.line()):
            assert not isinstance(line, Soundness)
            assert line.text.isprintable(), line.text
            json.dumps(line.fields)
