"""Records of ``__transaction_state``: the bytes are Kafka's."""

import pytest

from cordwood.errors import FormatError, UnsupportedFormatError
from cordwood.format.transaction_records import (
    TransactionState,
    TransactionValue,
    decode_transaction_key,
    decode_transaction_value,
    encode_transaction_key,
    encode_transaction_value,
    transaction_partition,
)
from cordwood.quantities import ProducerId, TimestampMs


def value(state: TransactionState, **changes: object) -> TransactionValue:
    fields: dict[str, object] = {
        "producer_id": ProducerId(1000),
        "producer_epoch": 3,
        "timeout_ms": 60_000,
        "state": state,
        "last_update_ms": TimestampMs(1_700_000_000_000),
    }
    return TransactionValue(**{**fields, **changes})  # type: ignore[arg-type]


HEAD = "0001" + "00000000000003e8" + "0003" + "0000ea60"
UPDATED = "0000018bcfe56800"


def test_a_key_is_a_version_and_the_id() -> None:
    assert encode_transaction_key("pay-ü").hex() == "00000006" + "pay-ü".encode().hex()
    assert decode_transaction_key(encode_transaction_key("pay-ü")) == "pay-ü"


def test_partitions_are_null_in_the_state_empty() -> None:
    encoded = encode_transaction_value(value(TransactionState.EMPTY))

    assert encoded.hex() == HEAD + "00" + "00" + UPDATED + "ff" * 8 + "00"


def test_partitions_are_an_empty_array_in_a_complete_state() -> None:
    encoded = encode_transaction_value(
        value(TransactionState.COMPLETE_COMMIT, start_ms=TimestampMs(5))
    )

    assert encoded.hex() == HEAD + "04" + "01" + UPDATED + "0000000000000005" + "00"


def test_partitions_are_grouped_by_topic_and_tags_at_their_default_are_left_out() -> None:
    ongoing = value(
        TransactionState.ONGOING,
        partitions=frozenset({("b", 0), ("a", 2), ("a", 1)}),
        start_ms=TimestampMs(5),
        previous_producer_id=ProducerId(1000),
        client_version=2,
    )

    encoded = encode_transaction_value(ongoing)

    partitions = "03" + "0261" + "03" + "00000001" + "00000002" + "00" + "0262" + "02" + "0" * 8
    tags = "02" + "0008" + "00000000000003e8" + "0202" + "0002"
    assert encoded.hex() == (HEAD + "01" + partitions + "00" + UPDATED + "0000000000000005" + tags)
    assert decode_transaction_value(encoded) == ongoing


def test_all_fields_survive() -> None:
    prepared = value(
        TransactionState.PREPARE_ABORT,
        producer_epoch=32767,
        partitions=frozenset({("t", 0)}),
        previous_producer_id=ProducerId(1),
        next_producer_id=ProducerId(2),
        client_version=2,
    )

    assert decode_transaction_value(encode_transaction_value(prepared)) == prepared


def test_version_0_is_read() -> None:
    old = bytes.fromhex(
        "0000" + "00000000000003e8" + "0003" + "0000ea60" + "01"
        "00000001" + "000161" + "00000001" + "00000007" + UPDATED + UPDATED
    )  # fmt: skip

    found = decode_transaction_value(old)

    assert found.partitions == {("a", 7)}
    assert (found.producer_epoch, found.previous_producer_id, found.client_version) == (3, -1, 0)


def test_null_partitions_of_version_0_are_read() -> None:
    old = bytes.fromhex(
        "0000" + "00000000000003e8" + "0003" + "0000ea60" + "00" + "ffffffff" + UPDATED + "ff" * 8
    )

    assert decode_transaction_value(old).partitions == frozenset()


@pytest.mark.parametrize("position", range(2, 30))
def test_a_value_that_is_cut_off_is_refused(position: int) -> None:
    encoded = encode_transaction_value(value(TransactionState.EMPTY))

    with pytest.raises(FormatError):
        decode_transaction_value(encoded[:position])


def test_unknown_versions_and_states_are_refused() -> None:
    with pytest.raises(UnsupportedFormatError):
        decode_transaction_key(bytes.fromhex("0001") + b"\0\1a")
    with pytest.raises(UnsupportedFormatError):
        decode_transaction_value(b"\0\2")
    damaged = bytearray(encode_transaction_value(value(TransactionState.EMPTY)))
    damaged[16] = 9
    with pytest.raises(FormatError, match="9 is no state"):
        decode_transaction_value(bytes(damaged))


def test_names_of_states_are_those_of_kafka() -> None:
    assert TransactionState.PREPARE_EPOCH_FENCE.kafka_name == "PrepareEpochFence"
    assert TransactionState.ONGOING.kafka_name == "Ongoing"


def test_the_partition_of_an_id_is_that_of_its_hash() -> None:
    assert transaction_partition("my-tx", 50) == abs(hash_of("my-tx")) % 50


def hash_of(text: str) -> int:
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
