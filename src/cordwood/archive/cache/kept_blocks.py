"""Which blocks of an archived file are here: in a local file, in memory, or on their way.

MISSING  nobody has it
QUEUED   a thread will fetch it; a reader that needs it can fetch it first
COMING   one thread fetches it, or writes it to the file
HERE     in the file
HELD     in memory, not in the file
"""

from typing import Final
from weakref import WeakSet

from cordwood.archive.cache.claims import Claim
from cordwood.archive.cache.held_pieces import HeldPiece

MISSING: Final = 0
QUEUED: Final = 1
COMING: Final = 2
HERE: Final = 3
HELD: Final = 4


class BlockClaim(Claim):
    """The blocks that one call fetches, or writes to the file."""

    __slots__ = ("end", "first")

    def __init__(self) -> None:
        super().__init__()
        self.first = 0
        self.end = 0


class KeptBlocks:
    """The states of all blocks. Owned by a `PartialFile`, whose lock guards it.

    `blocks` has one state for each block; `held` has the piece of each block that is `HELD`,
    and after an interrupt maybe pieces of other blocks, which nobody reads.
    """

    __slots__ = ("_claims", "blocks", "held")

    def __init__(self, count: int) -> None:
        self.blocks = bytearray(count)
        self.held: dict[int, HeldPiece] = {}
        self._claims: WeakSet[BlockClaim] = WeakSet()

    def set_state(self, first: int, end: int, state: int) -> None:
        self.blocks[first:end] = bytes([state]) * (end - first)

    def are_ready(self, first: int, end: int) -> bool:
        """Whether all of the blocks are in the file or in memory."""
        blocks = self.blocks
        return blocks.count(HERE, first, end) + blocks.count(HELD, first, end) == end - first

    def runs(self, first: int, end: int, state_max: int, piece: int) -> list[tuple[int, int]]:
        """Blocks in [first, end) in no state above `state_max`, as runs of at most a piece."""
        runs: list[tuple[int, int]] = []
        start = first
        for number in range(first, end + 1):
            is_wanted = number < end and self.blocks[number] <= state_max
            if start < number and (not is_wanted or number % piece == 0):
                runs.append((start, number))
                start = number
            if not is_wanted:
                start = number + 1
        return runs

    def end_of_run(self, first: int, end: int) -> int:
        """Where the blocks end, from `first` on, that have the same state."""
        state, stop = self.blocks[first], first
        while stop < end and self.blocks[stop] == state:
            stop += 1
        return stop

    def claim(self, claim: BlockClaim, first: int, end: int) -> None:
        # The state comes last: no block may be `COMING` of which no claim knows.
        claim.first = first
        claim.end = end
        claim.is_open = True
        self._claims.add(claim)
        self.set_state(first, end, COMING)

    def give_up(self, claim: BlockClaim) -> None:
        """Those of the blocks that did not come are missing."""
        first, end = claim.first, claim.end
        self.blocks[first:end] = self.blocks[first:end].replace(bytes([COMING]), bytes([MISSING]))
        claim.is_open = False

    def give_up_void(self, first: int, end: int) -> bool:
        """Those of the blocks that are claimed by nobody any more are missing.

        False if there are none.
        """
        claims = [claim for claim in self._claims if not claim.is_void]
        void = [
            number
            for number in range(first, end)
            if self.blocks[number] == COMING
            and not any(claim.first <= number < claim.end for claim in claims)
        ]
        for number in void:
            self.blocks[number] = MISSING
        return bool(void)

    def unqueue(self, first: int, end: int) -> None:
        """Nobody will fetch those of the blocks that are queued."""
        self.blocks[first:end] = self.blocks[first:end].replace(bytes([QUEUED]), bytes([MISSING]))

    # --- in memory ---------------------------------------------------------------------------

    def hold(self, piece: HeldPiece) -> None:
        # The state comes last: an interrupt must not leave a `HELD` block without its piece.
        self.held.update(dict.fromkeys(range(piece.first, piece.end), piece))
        self.set_state(piece.first, piece.end, HELD)

    def pieces(self, first: int, end: int) -> list[HeldPiece]:
        """The pieces in memory that have some of the blocks [first, end), in order."""
        if not self.held:
            return []
        held = [n for n in range(first, end) if self.blocks[n] == HELD]
        return list(dict.fromkeys(self.held[n] for n in held))

    def drop(self, piece: HeldPiece) -> bool:
        """False if it was dropped before."""
        is_held = False
        for number in range(piece.first, piece.end):
            if self.held.get(number) is piece:
                if self.blocks[number] == HELD:
                    is_held = True
                    self.blocks[number] = MISSING  # first: see `hold`
                self.held.pop(number, None)
        return is_held

    def drop_used_up(self, start: int, stop: int) -> list[HeldPiece]:
        """Drop the pieces in bytes [start, stop) that were read to their end; return them."""
        inside = [
            piece
            for piece in dict.fromkeys(self.held.values())
            if piece.is_used_up and start <= piece.position and piece.stop <= stop
        ]
        for piece in inside:
            self.drop(piece)
        return inside
