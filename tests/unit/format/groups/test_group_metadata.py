"""Values of group metadata records.

The examples were put together field by field from Kafka's published message schemas.
"""

import pytest

from cordwood.errors import FormatError, TruncatedInputError, UnsupportedFormatError
from cordwood.format.groups.group_metadata import (
    GroupMetadata,
    MemberMetadata,
    decode_group_metadata,
    encode_group_metadata,
)
from cordwood.quantities import NO_TIMESTAMP, TimestampMs

MEMBER = MemberMetadata(
    member_id="m-1",
    group_instance_id="i",
    client_id="c",
    client_host="/h",
    rebalance_timeout_ms=300_000,
    session_timeout_ms=45_000,
    subscription=b"\x01\x02",
    assignment=b"\x03",
)
GROUP = GroupMetadata(
    protocol_type="consumer",
    generation=7,
    protocol="range",
    leader="m-1",
    current_state_timestamp=TimestampMs(1_760_000_000_000),
    members=(MEMBER,),
)

HEAD = "0008 636f6e73756d6572 00000007 0005 72616e6765 0003 6d2d31"
TIME = "00000199 c82cc000"
ID = "0003 6d2d31"
CLIENT = "0001 63 0002 2f68"
REBALANCE, SESSION = "000493e0", "0000afc8"
BYTES = "00000002 0102 00000001 03"

V0 = f"0000 {HEAD} 00000001 {ID} {CLIENT} {SESSION} {BYTES}"
V1 = f"0001 {HEAD} 00000001 {ID} {CLIENT} {REBALANCE} {SESSION} {BYTES}"
V2 = f"0002 {HEAD} {TIME} 00000001 {ID} {CLIENT} {REBALANCE} {SESSION} {BYTES}"
V3 = f"0003 {HEAD} {TIME} 00000001 {ID} 0001 69 {CLIENT} {REBALANCE} {SESSION} {BYTES}"
V4 = (
    f"0004 09 636f6e73756d6572 00000007 06 72616e6765 04 6d2d31 {TIME} 02"
    f" 04 6d2d31 02 69 02 63 03 2f68 {REBALANCE} {SESSION} 03 0102 02 03 00 00"
)


def test_it_is_written_in_version_3() -> None:
    assert encode_group_metadata(GROUP).hex() == bytes.fromhex(V3).hex()


@pytest.mark.parametrize("data", [V3, V4], ids=["v3", "v4"])
def test_the_newer_versions_say_everything(data: str) -> None:
    assert decode_group_metadata(bytes.fromhex(data)) == GROUP


@pytest.mark.parametrize(
    ("data", "rebalance_timeout_ms", "timestamp"),
    [
        (V0, 45_000, NO_TIMESTAMP),
        (V1, 300_000, NO_TIMESTAMP),
        (V2, 300_000, GROUP.current_state_timestamp),
    ],
    ids=["v0", "v1", "v2"],
)
def test_what_older_versions_lack_gets_its_default(
    data: str, rebalance_timeout_ms: int, timestamp: int
) -> None:
    decoded = decode_group_metadata(bytes.fromhex(data))

    assert decoded.current_state_timestamp == timestamp
    assert decoded.members[0].rebalance_timeout_ms == rebalance_timeout_ms
    assert decoded.members[0].group_instance_id is None
    assert decoded.members[0].assignment == b"\x03"


def test_an_empty_group_has_neither_protocol_nor_leader() -> None:
    empty = GroupMetadata(protocol_type="consumer", generation=8, protocol=None, leader=None)

    assert decode_group_metadata(encode_group_metadata(empty)) == empty


def test_unknown_tags_of_later_writers_are_skipped() -> None:
    tagged = V4[: -len("00 00")] + "01 05 02 abcd 01 09 01 ff"

    assert decode_group_metadata(bytes.fromhex(tagged)) == GROUP


@pytest.mark.parametrize("version", [-1, 5])
def test_other_versions_are_named(version: int) -> None:
    with pytest.raises(UnsupportedFormatError):
        decode_group_metadata(version.to_bytes(2, "big", signed=True) + b"whatever")


@pytest.mark.parametrize("data", [V0, V3, V4], ids=["v0", "v3", "v4"])
def test_every_cut_is_noticed(data: str) -> None:
    whole = bytes.fromhex(data)

    for size in range(len(whole)):
        with pytest.raises(FormatError):
            decode_group_metadata(whole[:size])
    with pytest.raises(FormatError):
        decode_group_metadata(whole + b"\x00")


def test_a_size_beyond_the_input_allocates_nothing() -> None:
    data = bytes.fromhex(f"0003 {HEAD} {TIME} 7fffffff")

    with pytest.raises(TruncatedInputError):
        decode_group_metadata(data)
