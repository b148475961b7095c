"""One record by its offset: the same record that a read finds, or the same error."""

import random
from pathlib import Path

import pytest

import cordwood
from cordwood.errors import CorruptSegmentError, OffsetOutOfRangeError, RecordNotFoundError
from cordwood.format.record import Record
from cordwood.log.reading import single_record


def _fill(topic: cordwood.Topic, sizes: list[int]) -> list[Record]:
    for number, size in enumerate(sizes):
        topic.append_many(
            [Record(b"%d/%d" % (number, n), b"key", [("h", b"x")], 1_000 + n) for n in range(size)]
        )
    return list(topic.partition(0).read())


@pytest.mark.parametrize("codec", ["uncompressed", "lz4", "gzip"])
@pytest.mark.parametrize("per_batch", [1, 7, 500])
def test_every_offset_gives_the_record_that_a_read_gives(
    tmp_path: Path, codec: str, per_batch: int
) -> None:
    config = {"segment.records": 300, "compression.type": codec, "durability": "os"}
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("t", config=config)
        expected = _fill(topic, [per_batch] * (1000 // per_batch))
        log = topic.partition(0)

        assert [log.get(n) for n in range(len(expected))] == expected
    with cordwood.open(tmp_path, read_only=True) as store:
        log_beside = store.topic("t").partition(0)

        assert [log_beside.get(n) for n in range(len(expected))] == expected


def test_batches_of_any_size_in_one_segment(tmp_path: Path) -> None:
    chance = random.Random(7)
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("t", config={"durability": "os"})
        expected = _fill(topic, [chance.choice([1, 2, 30, 3000]) for _ in range(60)])
        log = topic.partition(0)

        for _ in range(2000):
            offset = chance.randrange(len(expected))
            assert log.get(offset) == expected[offset]


@pytest.mark.parametrize("value_size", [10, 1_000])
def test_the_index_and_headers_lead_to_every_record_of_a_sound_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value_size: int
) -> None:
    chance = random.Random(3)
    sizes = [chance.choice([1, 1, 1, 30, 400]) for _ in range(60)]
    with cordwood.open(tmp_path) as store:
        config = {"durability": "os", "segment.bytes": "1MiB"}
        topic = store.create_topic("t", config=config)
        for size in sizes:
            topic.append_many([(None, bytes(value_size))] * size)
        log = topic.partition(0)
        expected = list(log.read())

        def refuse(*_: object) -> None:
            raise AssertionError("a record was searched with the long walk")

        monkeypatch.setattr(single_record, "walk_runs", refuse)

        assert [log.get(n) for n in range(len(expected))] == expected


def test_a_damaged_large_batch_is_an_error_and_its_neighbours_are_not(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        log = store.create_topic("t").partition(0)
        for n in range(6):
            log.append_many([(None, b"%d/%d" % (n, m) + bytes(1_000)) for m in range(100)])
        [segment] = log.segments()
        data = bytearray(Path(segment.path).read_bytes())
        at = data.index(b"3/99")
        with open(segment.path, "r+b") as file:
            file.seek(at)
            file.write(b"rot!")

        for offset in (300, 350, 399):
            with pytest.raises(CorruptSegmentError):
                log.get(offset)
        assert log[299].value[:4] == b"2/99"  # type: ignore[index]
        assert log[400].value[:3] == b"4/0"  # type: ignore[index]


def test_an_index_with_wrong_positions_misleads_nobody(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("t", config={"durability": "os", "segment.records": 500})
        for n in range(20):
            topic.append_many([(None, b"%d/%d" % (n, m) + bytes(1_000)) for m in range(100)])
        expected = list(topic.partition(0).read())
    for path in tmp_path.rglob("*.index"):
        entries = bytearray(path.read_bytes())
        for at in range(4, len(entries), 8):
            entries[at : at + 4] = (at * 7_919 % 600_000).to_bytes(4, "big")
        path.write_bytes(entries)

    with cordwood.open(tmp_path, read_only=True) as store:
        log = store.topic("t").partition(0)
        assert [log.get(n) for n in range(0, 2_000, 37)] == expected[::37]


def test_a_large_record_is_found(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        log = store.create_topic("t", config={"max.message.bytes": "8MiB"}).partition(0)
        log.append(b"small")
        log.append(b"x" * 3_000_000)
        log.append(b"after")

        assert log[1].value == b"x" * 3_000_000
        assert [log[0].value, log[2].value] == [b"small", b"after"]


def test_an_offset_outside_is_an_index_error(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        log = store.create_topic("t").partition(0)
        log.append_many([(None, b"%d" % n) for n in range(10)])
        log.delete_before(4)

        for offset in (3, 10, 2**70):
            with pytest.raises(OffsetOutOfRangeError):
                log.get(offset)
            with pytest.raises(IndexError):
                log[offset]
        with pytest.raises(OffsetOutOfRangeError):
            log.get(-1)
        with pytest.raises(TypeError):
            log.get("4")  # type: ignore[arg-type]


def test_an_offset_that_compaction_removed_has_no_record(tmp_path: Path) -> None:
    config = {"cleanup.policy": "compact", "segment.records": 2}
    with cordwood.open(tmp_path) as store:
        log = store.create_topic("t", config=config).partition(0)
        for n in range(6):
            log.append(b"%d" % n, key=b"same")
        store.compact("t", force=True)

        assert log.get(0) is None
        with pytest.raises(RecordNotFoundError, match="offset 0"):
            log[0]
        assert log[5].value == b"5"


def test_the_marker_of_a_transaction_is_not_a_record(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        log = store.create_topic("t").partition(0)
        with store.transaction("tx") as transaction:
            transaction.append("t", b"paid", partition=0)

        assert log.get(1) is None
        assert log[0].value == b"paid"
        assert log[-1].value == b"paid"


def test_a_damaged_batch_is_an_error_and_its_neighbours_are_not(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        log = store.create_topic("t").partition(0)
        for n in range(100):
            log.append(b"value %02d" % n)
        [segment] = log.segments()
        data = bytearray(Path(segment.path).read_bytes())
        at = data.index(b"value 50")
        with open(segment.path, "r+b") as file:
            file.seek(at)
            file.write(b"VALUE")

        with pytest.raises(CorruptSegmentError):
            log.get(50)
        assert log[49].value == b"value 49"
        assert log[51].value == b"value 51"
