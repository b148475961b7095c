import pytest

from cordwood.errors import FormatError, TruncatedInputError, UnsupportedFormatError
from cordwood.format.control_record import (
    ControlKey,
    ControlType,
    EndTransactionMarker,
    decode_control_key,
    decode_marker,
    encode_control_key,
    encode_marker,
)


@pytest.mark.parametrize(
    ("control_type", "key"),
    [
        (ControlType.ABORT, "00000000"),
        (ControlType.COMMIT, "00000001"),
        (ControlType.LEADER_CHANGE, "00000002"),
        (ControlType.SNAPSHOT_HEADER, "00000003"),
        (ControlType.SNAPSHOT_FOOTER, "00000004"),
        (ControlType.KRAFT_VERSION, "00000005"),
        (ControlType.KRAFT_VOTERS, "00000006"),
    ],
)
def test_a_key_is_a_version_and_a_type(control_type: ControlType, key: str) -> None:
    encoded = encode_control_key(control_type)

    assert encoded.hex() == key
    assert decode_control_key(encoded) == ControlKey(version=0, type=control_type)


@pytest.mark.parametrize("type_id", ["0007", "7fff", "ffff", "8000"])
def test_a_type_added_later_is_unknown(type_id: str) -> None:
    key = decode_control_key(bytes.fromhex("0000" + type_id))

    assert key.type is ControlType.UNKNOWN


def test_a_newer_key_is_read_as_far_as_it_is_known() -> None:
    key = decode_control_key(bytes.fromhex("0003 0001 deadbeef"))

    assert key == ControlKey(version=3, type=ControlType.COMMIT)


def test_a_negative_key_version_is_refused() -> None:
    with pytest.raises(UnsupportedFormatError, match="key version: -1"):
        decode_control_key(bytes.fromhex("ffff0000"))


@pytest.mark.parametrize("size", range(4))
def test_a_short_key_is_truncated(size: int) -> None:
    with pytest.raises(TruncatedInputError, match=f"needs 4 bytes, got {size}"):
        decode_control_key(bytes(size))


def test_a_marker_is_a_key_and_a_versioned_coordinator_epoch() -> None:
    marker = EndTransactionMarker(type=ControlType.COMMIT, coordinator_epoch=258)

    key, value = encode_marker(marker)

    assert (key.hex(), value.hex()) == ("00000001", "000000000102")
    assert decode_marker(key, value) == marker


def test_a_newer_marker_is_read_as_far_as_it_is_known() -> None:
    marker = decode_marker(bytes.fromhex("00000000"), bytes.fromhex("0009 00000005 cafe"))

    assert marker == EndTransactionMarker(type=ControlType.ABORT, coordinator_epoch=5)


def test_a_negative_marker_version_is_refused() -> None:
    with pytest.raises(UnsupportedFormatError, match="marker version: -2"):
        decode_marker(bytes.fromhex("00000000"), bytes.fromhex("fffe00000005"))


@pytest.mark.parametrize("size", range(6))
def test_a_short_marker_is_truncated(size: int) -> None:
    with pytest.raises(TruncatedInputError, match=f"needs 6 bytes, got {size}"):
        decode_marker(bytes(4), bytes(size))


@pytest.mark.parametrize("key", ["00000002", "00000063"])
def test_other_control_records_are_no_markers(key: str) -> None:
    with pytest.raises(FormatError, match="is not a transaction marker"):
        decode_marker(bytes.fromhex(key), bytes(6))
