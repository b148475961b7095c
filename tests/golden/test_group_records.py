"""Committed offsets that Kafka wrote: the bytes are those that we would write."""

from pathlib import Path

import cordwood
from cordwood.format.groups.group_offsets import (
    OffsetKey,
    decode_group_key,
    decode_offset_value,
    encode_offset_key,
    encode_offset_value,
    group_partition,
)

DATA = Path(__file__).parent / "kafka-4.3" / "data"


def test_keys_and_values_of_kafka_are_ours() -> None:
    count = 0
    with cordwood.open(DATA, read_only=True) as store:
        for log in store.topic("__consumer_offsets").partitions:
            for record in log.read():
                key = decode_group_key(record.key or b"")
                assert isinstance(key, OffsetKey)
                assert encode_offset_key(key) == record.key
                assert encode_offset_value(decode_offset_value(record.value or b"")) == record.value
                assert group_partition(key.group, 50) == log.partition
                count += 1

    assert count == 15


def test_the_table_is_what_kafka_s_groups_committed_last() -> None:
    with cordwood.open(DATA, read_only=True) as store:
        assert store.groups() == ["billing", "shipping", "versand-ü"]
        detail = store.group("billing").details()["plain", 0]
        assert (detail.offset, detail.metadata, detail.leader_epoch) == (17, "note", -1)
        assert detail.topic_id == store.topic("plain").topic_id
