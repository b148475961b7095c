"""The answers to small produces that were received in one turn, and differ in few numbers.

One object has a place in the queue of each of its connections. Each of them owed nothing when its
request was received, so this place is the first. The answers leave in one call, for all connections
that are still in the row (`socket_rows`).
"""

from cordwood.broker.net.answer import Answer, SoleAnswer
from cordwood.broker.net.gathered_frames import Gathering
from cordwood.protocol.api_catalog import ApiKey


class AnswerRow(Answer):
    """One answer for each of `connections`. Belongs to their loop.

    It is never ready: a connection gets its answer from `send`, or is given one of its own
    (`single`) instead.
    """

    __slots__ = ("acks", "connections", "correlation_ids", "version")

    api_key = int(ApiKey.PRODUCE)
    is_alone = False
    is_ready = False
    pause_s = 0.0
    when_left = None

    def __init__(
        self,
        connections: list[Gathering],
        correlation_ids: list[int],
        version: int,
        acks: int,
    ) -> None:
        self.connections = connections
        self.correlation_ids = correlation_ids
        self.version = version
        self.acks = acks
        self.started_s = connections[0].loop.turn_s
        for connection in connections:
            connection.answers.append(self)

    @property
    def count(self) -> int:
        return len(self.connections)

    def client_left(self) -> None:
        """Nothing is waited for but the disk."""

    def send(self, frames: bytearray, size: int) -> list[tuple[int, int]]:
        """Send each connection its frame of `size` bytes; return what is left to be done.

        That is a list of indexes and results as of `socket_rows.SocketRows.send`.
        """
        loop = self.connections[0].loop
        return loop.rows.send(self.connections, frames, size, loop.turn_s)

    def single(self, index: int) -> SoleAnswer:
        """An answer of its own for one of the connections, in place of this one."""
        connection = self.connections[index]
        connection.leave_row()
        queue = connection.answers
        assert not queue or queue[0] is self, queue
        behind = list(queue)[1:]
        queue.clear()  # it is empty already if the connection was closed
        answer = SoleAnswer(connection, self.version, self.correlation_ids[index], self.acks)
        answer.started_s = self.started_s
        queue.extend(behind)
        return answer

    def singles(self) -> list[SoleAnswer]:
        return [self.single(index) for index in range(self.count)]
