"""Offsets of which a power cut may take the first bytes: checked against every loss of a sector."""

from __future__ import annotations

from itertools import product

from cordwood.storage.log_file.torn_offset import is_torn_unnoticed, passes_bound, torn_by

SECTOR = 512
POSITIONS = range(SECTOR, 2 * SECTOR)
OFFSETS = (1, 200, 255, 256, 263, 511, 65_535, 65_536, 65_800, 1 << 24, (1 << 24) + 300, 1 << 30)


def torn(position: int, offset: int) -> int:
    """What is read if the sector with the first byte is lost, and the next one is not."""
    in_first_sector = -position % SECTOR
    if not in_first_sector:
        return offset  # there is one sector only
    return int.from_bytes(offset.to_bytes(8, "big")[in_first_sector:].rjust(8, b"\0"), "big")


def test_an_offset_is_what_was_read_or_larger_by_a_multiple_of_what_may_be_lost() -> None:
    for position, offset in product(POSITIONS, OFFSETS):
        in_first_sector = -position % SECTOR
        read = torn(position, offset) if in_first_sector < 12 else offset  # else nothing is found

        unit = torn_by(position, read)

        assert offset == read if not unit else (offset - read) % unit == 0
        assert not torn_by(position, offset) or offset < torn_by(position, offset)


def test_a_torn_offset_is_unnoticed_only_if_it_does_not_go_back() -> None:
    for position, offset in product(POSITIONS, OFFSETS):
        for end in (1, 7, 250, 256, 60_000, 65_536, offset - 1, offset):
            if not 1 <= end <= offset:
                continue
            read = torn(position, offset)

            is_unnoticed = is_torn_unnoticed(position, offset, end)

            assert is_unnoticed == (end <= read < offset)
            assert passes_bound(end, offset) or not is_unnoticed
            assert not is_unnoticed or end < offset
