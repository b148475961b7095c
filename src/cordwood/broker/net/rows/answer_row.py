"""The answers to small produces that are appended together, and differ in few numbers.

One object has a place in the queue of each of its connections. Each of them owed nothing when its
request was received, so this place is the first. The answers leave in one call, or in two, for all
connections that are still in the row (`socket_rows`).
"""

from bisect import bisect_right
from math import inf

from cordwood.broker.net.requests.answer import Answer, SoleAnswer
from cordwood.broker.net.rows.gathered_frames import Gathering
from cordwood.protocol.api_catalog import ApiKey


class AnswerRow(Answer):
    """One answer for each of `connections`. Belongs to their loop.

    It is never ready: a connection gets its answer from `send`, or is given one of its own
    (`single`) instead. The first `answered` of them have theirs.
    """

    __slots__ = ("_starts", "acks", "answered", "connections", "correlation_ids", "version")

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
        self.answered = 0
        self.started_s = connections[0].loop.turn_s
        # When requests came, by the index of the first of each turn.
        self._starts = [(0, self.started_s)]
        for connection in connections:
            connection.answers.append(self)

    def extend(self, connections: list[Gathering], correlation_ids: list[int]) -> None:
        """Add requests that were received later, for the same version and acks."""
        turn_s = connections[0].loop.turn_s
        if turn_s != self._starts[-1][1]:
            self._starts.append((len(self.connections), turn_s))
        self.connections += connections
        self.correlation_ids += correlation_ids
        for connection in connections:
            connection.answers.append(self)

    @property
    def count(self) -> int:
        return len(self.connections)

    def client_left(self) -> None:
        """Nothing is waited for but the disk."""

    def send(self, frames: bytearray, size: int, stop: int) -> list[tuple[int, int]]:
        """Send each connection up to `stop` its frame of `size` bytes.

        `frames` begins with the frame of the first that was not answered before. Returns what is
        left to be done: indexes and results as of `socket_rows.SocketRows.send`.
        """
        first, connections = self.answered, self.connections
        self.answered = stop
        turn_s, rows = connections[0].loop.turn_s, connections[0].rows
        if not first and stop == len(connections):
            return rows.send(connections, frames, size, turn_s)
        unusual = rows.send(connections[first:stop], frames, size, turn_s)
        return [(first + index, result) for index, result in unusual] if unusual else unusual

    def starts(self, first: int, stop: int) -> list[tuple[int, float]]:
        """When requests from `first` to `stop` came: how many of them, and in which turn.

        Each turn occurs once.
        """
        if len(self._starts) == 1:
            return [(stop - first, self.started_s)]
        ends = [*(begin for begin, _ in self._starts[1:]), len(self.connections)]
        parts = [
            (min(end, stop) - max(begin, first), started_s)
            for (begin, started_s), end in zip(self._starts, ends, strict=True)
        ]
        return [(count, started_s) for count, started_s in parts if count > 0]

    def single(self, index: int) -> SoleAnswer:
        """An answer of its own for one of the connections, in place of this one."""
        connection = self.connections[index]
        connection.leave_row()
        queue = connection.answers
        assert not queue or queue[0] is self, queue
        behind = list(queue)[1:]
        queue.clear()  # it is empty already if the connection was closed
        answer = SoleAnswer(connection, self.version, self.correlation_ids[index], self.acks)
        _, answer.started_s = self._starts[bisect_right(self._starts, (index, inf)) - 1]
        queue.extend(behind)
        return answer

    def singles(self) -> list[SoleAnswer]:
        """An answer of its own for each connection that has none yet."""
        first, self.answered = self.answered, self.count
        return [self.single(index) for index in range(first, self.count)]
