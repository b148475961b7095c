"""Which blocks are here stays true when a signal interrupts a change."""

from collections.abc import Callable

import pytest

from cordwood.archive.cache.held_pieces import HeldPiece
from cordwood.archive.cache.kept_blocks import HELD, KeptBlocks
from fakes.interrupter import interrupt, places


class Owner:
    def drop_held(self, piece: HeldPiece) -> None:
        raise AssertionError("nobody needs the room")


def kept_blocks() -> KeptBlocks:
    return KeptBlocks(8)


def a_piece(first: int = 2, end: int = 6) -> HeldPiece:
    piece = HeldPiece(Owner(), first, end, first * 10, bytes(10 * (end - first)))
    piece.note_read(piece.stop)
    return piece


def assert_held_blocks_have_pieces(kept: KeptBlocks, where: str | None) -> None:
    held = [number for number, state in enumerate(kept.blocks) if state == HELD]
    assert [n for n in held if n not in kept.held] == [], where
    found = kept.pieces(0, 8)
    assert [n for n in held if not any(p.first <= n < p.end for p in found)] == [], where


CHANGES: list[Callable[[KeptBlocks, HeldPiece], object]] = [
    KeptBlocks.drop,
    lambda kept, _piece: kept.drop_used_up(0, 80),
]


def test_an_interrupted_hold_leaves_no_held_block_without_its_piece() -> None:
    count = places(lambda: kept_blocks().hold(a_piece()))
    for place in range(1, count + 1):
        kept = kept_blocks()
        piece = a_piece()

        where = interrupt(lambda kept=kept, piece=piece: kept.hold(piece), place)  # type: ignore[misc]

        assert_held_blocks_have_pieces(kept, where)


@pytest.mark.parametrize("change", CHANGES, ids=["drop", "drop_used_up"])
def test_an_interrupted_drop_leaves_no_held_block_without_its_piece(
    change: Callable[[KeptBlocks, HeldPiece], object],
) -> None:
    place = 0
    where: str | None = ""
    while where is not None:
        place += 1
        kept, piece = kept_blocks(), a_piece()
        kept.hold(piece)

        where = interrupt(lambda: change(kept, piece), place)  # noqa: B023

        assert_held_blocks_have_pieces(kept, where)
        kept.drop(piece)
        assert kept.held == {}, where
    assert place > 3


def test_what_an_interrupted_drop_left_does_not_touch_the_next_piece() -> None:
    kept, old, new = kept_blocks(), a_piece(2, 6), a_piece(3, 7)
    kept.hold(old)
    kept.set_state(2, 6, 0)  # as an interrupt leaves it
    kept.hold(new)

    assert not kept.drop(old)

    assert kept.pieces(0, 8) == [new]
    assert_held_blocks_have_pieces(kept, None)
