"""The answer to one request, on its way back to the connection the request came from."""

from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from cordwood.broker.net.outbox import Piece
from cordwood.protocol.request_header import RequestHeader

if TYPE_CHECKING:
    from cordwood.broker.net.client_connection import ClientConnection


class Answer:
    """One place in a connection's queue: answers leave in the order the requests came.

    `give` and `abandon` may be called from any thread, once.
    """

    __slots__ = (
        "allows_next",
        "body_at",
        "connection",
        "header",
        "is_ready",
        "pieces",
        "started_s",
    )

    def __init__(
        self,
        connection: "ClientConnection",
        header: RequestHeader,
        body_at: int,
        *,
        allows_next: bool,
    ) -> None:
        self.connection = connection
        self.header = header
        self.body_at = body_at  # where in the frame the tags of the header, or the body, begin
        self.started_s = perf_counter()
        self.is_ready = False
        self.pieces: Sequence[Piece] = ()
        # Whether requests of its kind that follow may be started before it is answered.
        self.allows_next = allows_next

    def give(self, pieces: Sequence[Piece]) -> None:
        """Send `pieces`, when all before it were sent. No pieces: the client wants no answer."""
        loop = self.connection.loop
        if loop.is_current:
            self.give_here(pieces)
        else:
            loop.call_soon(lambda: self.give_here(pieces))

    def give_here(self, pieces: Sequence[Piece]) -> None:
        """As `give`, by a caller that runs in the connection's loop."""
        self.pieces = pieces
        self.is_ready = True
        self.connection.answered(self)

    def abandon(self, reason: str) -> None:
        """There will be no answer: close the connection."""
        connection = self.connection
        connection.loop.call_soon(lambda: connection.close(reason))
