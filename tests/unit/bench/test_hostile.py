"""The suite of hostile clients: attacks are well-formed, and others are measured during them."""

from bench.hostile import row_makers
from bench.hostile_clients import ATTACKS, bomb, framed, giant_frame, many_tags, tiny_records
from cordwood.format.compression import Codec
from cordwood.protocol.api_catalog import ApiKey
from cordwood.quantities import MIB


def test_each_attack_has_a_row() -> None:
    assert list(row_makers()) == [attack.title for attack in ATTACKS]


def test_frames_have_the_size_that_they_announce_except_giant_ones() -> None:
    for request in (many_tags("t"), bomb(Codec.ZSTD, MIB, "t"), framed(ApiKey.METADATA, 4, b"x")):
        assert int.from_bytes(request[:4], "big") == len(request) - 4

    assert int.from_bytes(giant_frame("t")[:4], "big") == 100 * MIB


def test_a_bomb_is_small() -> None:
    assert len(bomb(Codec.ZSTD, 64 * MIB, "t")) < 13_000


def test_a_million_empty_records_are_small() -> None:
    assert len(tiny_records(Codec.ZSTD, 1_000_000, "t")) < 1_000_000
