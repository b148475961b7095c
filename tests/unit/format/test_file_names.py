import pytest

from cordwood.errors import FormatError, InvalidTopicNameError
from cordwood.format.file_names import (
    CLEANED,
    DELETED,
    INTERNAL_TOPICS,
    NO_SUFFIX,
    SWAP,
    DirectoryState,
    FileKind,
    PartitionDirectory,
    SegmentFileName,
    check_topic_name,
    deleted_directory_name,
    metric_name,
    parse_directory_name,
    parse_segment_file_name,
    partition_directory_name,
    segment_file_name,
)
from cordwood.quantities import INT32_MAX, INT64_MAX, Offset

UNIQUE = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("base_offset", "kind", "suffix", "name"),
    [
        (0, FileKind.LOG, NO_SUFFIX, "00000000000000000000.log"),
        (42, FileKind.INDEX, NO_SUFFIX, "00000000000000000042.index"),
        (42, FileKind.TIMEINDEX, CLEANED, "00000000000000000042.timeindex.cleaned"),
        (42, FileKind.TXNINDEX, SWAP, "00000000000000000042.txnindex.swap"),
        (42, FileKind.SNAPSHOT, DELETED, "00000000000000000042.snapshot.deleted"),
        (INT64_MAX, FileKind.KEYINDEX, NO_SUFFIX, "09223372036854775807.keyindex"),
    ],
)
def test_a_segment_file_is_named_by_base_offset_kind_and_suffix(
    base_offset: int, kind: FileKind, suffix: str, name: str
) -> None:
    assert segment_file_name(Offset(base_offset), kind, suffix) == name
    assert parse_segment_file_name(name) == SegmentFileName(
        base_offset=Offset(base_offset), kind=kind, suffix=suffix
    )


@pytest.mark.parametrize(
    "name",
    [
        "",
        "leader-epoch-checkpoint",
        "0.log",
        "0000000000000000042.log",
        "000000000000000000042.log",
        "00000000000000000042",
        "00000000000000000042.txt",
        "00000000000000000042.log.tmp",
        "00000000000000000042.log.swap.deleted",
        "00000000000000000042.log\n",
        "-0000000000000000042.log",
        "09223372036854775808.log",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٤٢.log",
        "00000000000000000042-0000000001.checkpoint",
    ],
)
def test_a_foreign_file_is_no_segment_file(name: str) -> None:
    assert parse_segment_file_name(name) is None


@pytest.mark.parametrize("topic", ["a", "orders", "A.b_c-9", "...", "-", "x" * 249])
def test_a_topic_name_may_be(topic: str) -> None:
    check_topic_name(topic)


@pytest.mark.parametrize("topic", ["", ".", "..", "x" * 250, "a b", "a/b", "é", "a\n", "a\0", "１"])
def test_a_topic_name_may_not_be(topic: str) -> None:
    with pytest.raises(InvalidTopicNameError):
        check_topic_name(topic)


def test_internal_topics_have_valid_names() -> None:
    for topic in INTERNAL_TOPICS:
        check_topic_name(topic)


@pytest.mark.parametrize(
    ("one", "other", "collide"),
    [("a.b", "a_b", True), ("a.b_c", "a_b.c", True), ("a", "a", True), ("a-b", "a_b", False)],
)
def test_dots_and_underscores_collide(one: str, other: str, collide: bool) -> None:
    assert (metric_name(one) == metric_name(other)) is collide


@pytest.mark.parametrize(
    ("name", "topic", "partition"),
    [
        ("orders-0", "orders", 0),
        ("a-b-12", "a-b", 12),
        ("a--1", "a-", 1),
        ("a.b.c-3", "a.b.c", 3),
        ("x-delete-1", "x-delete", 1),
        (f"orders-{INT32_MAX}", "orders", INT32_MAX),
    ],
)
def test_a_live_directory_is_named_by_topic_and_partition(
    name: str, topic: str, partition: int
) -> None:
    assert partition_directory_name(topic, partition) == name
    assert parse_directory_name(name) == PartitionDirectory(
        topic=topic, partition=partition, state=DirectoryState.LIVE
    )


@pytest.mark.parametrize("state", [state for state in DirectoryState if state != "live"])
def test_a_marked_directory_says_what_it_is_for(state: DirectoryState) -> None:
    directory = parse_directory_name(f"a.b-c-7.{UNIQUE}-{state}")

    assert directory == PartitionDirectory(topic="a.b-c", partition=7, state=state)


def test_a_deleted_directory_keeps_topic_and_partition() -> None:
    name = deleted_directory_name("orders", 3, UNIQUE)

    assert name == f"orders-3.{UNIQUE}-delete"
    assert parse_directory_name(name) == PartitionDirectory(
        topic="orders", partition=3, state=DirectoryState.DELETE
    )


@pytest.mark.parametrize("partition", [0, 12345, INT32_MAX])
def test_a_deleted_directory_of_a_long_topic_still_fits_a_file_name(partition: int) -> None:
    name = deleted_directory_name("x" * 249, partition, UNIQUE)

    assert len(name) == 255
    assert parse_directory_name(name).partition == partition


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "has no '-'"),
        ("orders", "has no '-'"),
        ("lost+found", "has no '-'"),
        ("-0", "has no topic"),
        ("orders-", "has no partition"),
        ("orders-x", "partition 'x' must be a number"),
        ("remote-log-index-cache", "partition 'cache' must be a number"),
        ("orders-+1", "must be a number"),
        ("orders-01", "must be a number"),
        ("orders-2147483648", "must be a number"),
        ("orders-١", "must be a number"),
        ("orders-1\n", "must be a number"),
        ("ord ers-1", "must contain only"),
        ("..-1", "must not be '.' or '..'"),
        ("orders-delete", "must be <topic>-<partition>.<unique id>-delete"),
        ("orders-1-delete", "must be <topic>-<partition>.<unique id>-delete"),
        ("orders-1.-future", "must be <topic>-<partition>.<unique id>-future"),
        (f"orders.{UNIQUE}-stray", "must be <topic>-<partition>.<unique id>-stray"),
        (f"orders-x.{UNIQUE}-delete", "partition 'x' must be a number"),
    ],
)
def test_any_other_directory_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(FormatError) as raised:
        parse_directory_name(name)

    assert reason in str(raised.value)
