import cordwood
from cordwood.console.decoding.internal_records import decode_internal


def test_committed_offsets_are_shown_by_their_fields() -> None:
    with cordwood.Broker(topics=["orders"]) as broker:
        broker.store.group("billing").commit({("orders", 0): 0})
        log = broker.store.topic("__consumer_offsets").partition(0)
        [record] = log.read()

    assert record.key is not None
    found = decode_internal("__consumer_offsets", record.key, record.value)

    assert found is not None
    key, value = found
    assert key == {"group": "billing", "topic": "orders", "partition": 0}
    assert isinstance(value, dict)
    assert value["offset"] == 0


def test_other_bytes_are_not_taken_for_internal_records() -> None:
    assert decode_internal("__consumer_offsets", b"\x00\x63xyz", b"abc") is None
    assert decode_internal("orders", b"\x00\x01", b"abc") is None
