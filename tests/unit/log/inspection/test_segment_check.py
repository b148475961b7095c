"""What is wrong with a segment is found and named with its place; what is right is not."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import crc32c
import pytest

import cordwood
from cordwood.format.batch_builder import BatchStyle, build_batch
from cordwood.format.record import Record
from cordwood.log.beside.last_file import LastFile
from cordwood.log.beside.read_only_log import ReadOnlyLog
from cordwood.log.inspection.index_check import ascends
from cordwood.log.inspection.segment_check import PROBLEMS_MAX, SegmentFindings, check_segment
from cordwood.log.inspection.small_file_check import check_small_files
from cordwood.quantities import Offset, TimestampMs
from cordwood.storage.files import RealFileSystem

CONFIG = {
    "internal.segment.bytes": 6000,
    "index.interval.bytes": 500,
    "durability": "os",
    "retention.ms": -1,
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("check") / "data"
    with cordwood.open(path) as store:
        topic = store.create_topic("orders", config={**CONFIG, "key.index": "true"})
        for n in range(200):
            topic.append(b"v%d" % n, key=b"k%d" % (n % 9), timestamp_ms=1_700_000_000_000 + n)
        store.maintain()
        users = store.create_topic("users", config={**CONFIG, "cleanup.policy": "compact"})
        for n in range(200):
            users.append(b"v%d" % n, key=b"k%d" % (n % 9))
        store.compact("users", force=True)
    return path


@pytest.fixture
def data(sound: Path, tmp_path: Path) -> Path:
    path = tmp_path / "data"
    shutil.copytree(sound, path)
    return path


def findings(path: Path, topic: str = "orders") -> list[SegmentFindings]:
    with cordwood.open(path, read_only=True) as store:
        log = store.topic(topic).partition(0)
        checked = [check_segment(log, s.base_offset) for s in log.view().segments]
        assert None not in checked
        return [found for found in checked if found is not None]


def overwrite(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


@pytest.mark.parametrize("topic", ["orders", "users"])
def test_a_sound_log_has_no_problems_and_every_record_is_counted(sound: Path, topic: str) -> None:
    found = findings(sound, topic)

    assert [f.problems for f in found] == [[]] * len(found)
    with cordwood.open(sound, read_only=True) as store:
        assert sum(f.records for f in found) == sum(
            1 for _ in store.topic(topic).partition(0).read()
        )


def test_a_log_is_checked_beside_its_writer(data: Path) -> None:
    with cordwood.open(data) as store:
        store.topic("orders").append(b"new", key=b"k")

        found = findings(data)

    assert sum(f.records for f in found) == 201
    assert not any(f.problems for f in found)


def test_damage_is_named_with_file_position_and_offsets(data: Path) -> None:
    log = data / "orders-0" / "00000000000000000000.log"
    overwrite(log, 100, b"\xee")

    [problem] = findings(data)[0].problems

    assert problem.file == str(log)
    assert problem.reason == "the checksum does not match"
    assert problem.offset == 1
    assert problem.next_offset == 2
    assert problem.position is not None
    assert str(problem) == f"byte {problem.position}: the checksum does not match"


def test_index_entries_for_damaged_batches_are_no_problem_of_their_own(data: Path) -> None:
    log = data / "orders-0" / "00000000000000000000.log"
    content = bytearray(log.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 1000] = bytes(1000)
    log.write_bytes(content)

    problems = findings(data)[0].problems

    assert {problem.file for problem in problems} == {str(log)}


def test_batches_behind_damage_are_checked_too(data: Path) -> None:
    log = data / "orders-0" / "00000000000000000000.log"
    overwrite(log, 100, b"\xee")
    overwrite(log, log.stat().st_size - 3, b"\xee")

    found = findings(data)[0]

    assert len(found.problems) == 2
    assert found.records == findings(data)[0].next_offset - 1


@pytest.mark.parametrize(
    ("kind", "position", "content", "reason"),
    [
        ("index", 4, (7).to_bytes(4, "big"), "the offset index says that offset"),
        ("index", 0, (1 << 30).to_bytes(4, "big"), "entries of the offset index do not ascend"),
        ("timeindex", 0, (1_600_000_000_000).to_bytes(8, "big"), "the time index says 16000"),
        ("timeindex", 0, b"\x7f", "entries of the time index do not ascend"),
        ("txnindex", 0, b"\x00", "the index of aborted transactions"),
    ],
)
def test_an_index_that_says_something_wrong_is_a_problem(
    data: Path, kind: str, position: int, content: bytes, reason: str
) -> None:
    path = data / "orders-0" / f"00000000000000000000.{kind}"
    if not path.exists():
        path.write_bytes(b"")
    overwrite(path, position, content)

    [problem] = findings(data)[0].problems

    assert problem.reason.startswith(reason)
    assert problem.file == str(path)


@pytest.mark.parametrize("kind", ["index", "timeindex", "txnindex", "keyindex"])
def test_a_missing_index_is_no_problem(data: Path, kind: str) -> None:
    for path in (data / "orders-0").glob(f"*.{kind}"):
        path.unlink()

    assert not any(f.problems for f in findings(data))


def test_offsets_that_are_missing_are_a_problem_unless_compaction_took_them(data: Path) -> None:
    log = sorted((data / "orders-0").glob("*.log"))[0]
    batch_size = int.from_bytes(log.read_bytes()[8:12], "big") + 12
    log.write_bytes(log.read_bytes()[batch_size:])

    problems = findings(data)[0].problems

    assert any("offsets" in p.reason for p in problems)


def test_records_that_cannot_be_parsed_are_a_problem_though_the_checksum_fits(
    tmp_path: Path,
) -> None:
    with cordwood.open(tmp_path) as store:
        log = store.create_topic("t", config={"durability": "os"}).partition(0)
        log.append(b"one")
        path = Path(log.segments()[0].path)
    batch = bytearray(
        build_batch([Record(b"two", b"k")], TimestampMs(5), BatchStyle(bytes_max=1000)).data
    )
    batch[61] = 0x7E  # the size of its only record
    batch[17:21] = crc32c.crc32c(batch[21:]).to_bytes(4, "big")
    batch[:8] = (1).to_bytes(8, "big")
    path.write_bytes(path.read_bytes() + batch)
    (path.parent / "high-watermark").unlink()

    [found] = findings(tmp_path, "t")

    assert found.records == 1
    [problem] = found.problems
    assert problem.reason.startswith("the batch at offset 1: ")
    assert (problem.offset, problem.next_offset) == (1, 2)


def test_only_so_many_problems_are_listed(data: Path) -> None:
    log = data / "orders-0" / "00000000000000000000.log"
    content = bytearray(log.read_bytes())
    for at in range(75, len(content), 150):
        content[at] ^= 0xFF
    log.write_bytes(content)

    assert len(findings(data)[0].problems) == PROBLEMS_MAX


def test_a_segment_that_is_taken_away_meanwhile_is_passed_over(data: Path) -> None:
    with cordwood.open(data, read_only=True) as store:
        log = store.topic("orders").partition(0)
        first = log.view().segments[0]
        for path in (data / "orders-0").glob("00000000000000000000.*"):
            path.unlink()

        found = check_segment(log, first.base_offset)

    assert found is None


def test_a_segment_that_was_replaced_meanwhile_is_looked_at_again(data: Path) -> None:
    with cordwood.open(data, read_only=True) as store:
        log = store.topic("users").partition(0)
        assert isinstance(log, ReadOnlyLog)
        last = log.view().segments[len(log.view().segments) - 1]
        assert isinstance(last.extent, LastFile)
        last.extent.file_size -= (
            5  # as if it had been looked at before it was replaced by a longer one
        )

        found = check_segment(log, Offset(last.base_offset))

    assert found is not None
    assert found.problems == []


def test_numbers_ascend_or_do_not() -> None:
    assert ascends([1, 2, 5])
    assert not ascends([1, 1])
    assert ascends([1, 1], strictly=False)
    assert ascends([])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("orders-0/leader-epoch-checkpoint", b"0\n7\n"),
        ("orders-0/partition.metadata", b"version: 0\ntopic_id: ?"),
        ("recovery-point-offset-checkpoint", b"\xff\xff"),
        ("meta.properties", b"version=9\n"),
        ("orders-0/00000000000000000042.snapshot", b"short"),
    ],
)
def test_a_small_file_that_is_damaged_is_a_problem(
    data: Path, name: str, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cordwood.log.inspection.small_file_check._PAUSE_S", 0)
    (data / name).write_bytes(content)

    [problem] = check_small_files(RealFileSystem(), str((data / name).parent))

    assert problem.file == str(data / name)
    assert problem.position is not None


def test_a_small_file_that_is_being_written_is_no_problem(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = data / "orders-0" / "leader-epoch-checkpoint"
    whole = path.read_bytes()
    path.write_bytes(whole[:3])
    pause = SimpleNamespace(sleep=lambda seconds: path.write_bytes(whole))
    monkeypatch.setattr("cordwood.log.inspection.small_file_check.time", pause)

    assert list(check_small_files(RealFileSystem(), str(path.parent))) == []


def test_a_rotten_page_of_a_key_index_is_a_problem(data: Path) -> None:
    path = next((data / "orders-0").glob("*.keyindex"))
    overwrite(path, path.stat().st_size - 2, b"\xff\xff")

    [problem] = check_small_files(RealFileSystem(), str(path.parent))

    assert problem.file == str(path)
    assert "checksum" in problem.reason


def test_small_files_of_a_sound_store_are_sound(sound: Path) -> None:
    for directory in (sound, sound / "orders-0", sound / "users-0", sound / "gone"):
        assert list(check_small_files(RealFileSystem(), str(directory))) == []
