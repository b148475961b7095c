"""NATS' protocol as bytes: publishing to a stream, reading from it, and the responses.

A line ends in ``\\r\\n``. A message to the client is a line ``MSG subject sid [reply] size`` and a
line of payload. Neither acknowledgements nor the values of these rows contain line ends, so
counting line ends counts messages. Apart from that the server only sends an occasional ``PING``.
"""

import json
from typing import Final

STREAM: Final = "bench"
SUBJECT: Final = "bench.records"
CONNECT: Final = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
PING: Final = b"PING\r\n"
PONG: Final = b"PONG\r\n"

_REFUSED: Final = (
    b'"error"',
    b"-ERR",
    b"NATS/1.0",
)  # the last begins a status, which we never request
_LINES_PER_MESSAGE: Final = 2


class NatsError(Exception):
    """The server refused a request; the message has its text."""


def subscribe(inbox: str) -> bytes:
    return b"SUB %b 1\r\n" % inbox.encode()


def publish(subject: str, payload: bytes, *, inbox: str) -> bytes:
    """A message whose acknowledgement goes to `inbox`."""
    return b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), inbox.encode(), len(payload), payload)


def create_stream(inbox: str) -> bytes:
    """One replica, in files, no limits."""
    config = {
        "name": STREAM,
        "subjects": [SUBJECT],
        "retention": "limits",
        "storage": "file",
        "num_replicas": 1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
    }
    return publish(f"$JS.API.STREAM.CREATE.{STREAM}", json.dumps(config).encode(), inbox=inbox)


def delete_stream(inbox: str) -> bytes:
    return publish(f"$JS.API.STREAM.DELETE.{STREAM}", b"", inbox=inbox)


def create_consumer(consumer: str, inbox: str) -> bytes:
    """A pull consumer without acknowledgements."""
    config = {
        "durable_name": consumer,
        "deliver_policy": "all",
        "ack_policy": "none",
        "replay_policy": "instant",
    }
    request = json.dumps({"stream_name": STREAM, "config": config}).encode()
    return publish(f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.{consumer}", request, inbox=inbox)


def next_messages(consumer: str, count: int, inbox: str) -> bytes:
    """A request for the next `count` messages, which must exist."""
    request = json.dumps({"batch": count, "expires": 60_000_000_000}).encode()
    return publish(f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{consumer}", request, inbox=inbox)


def get_message(sequence: int, inbox: str) -> bytes:
    """A request for the message with that number; the first is 1."""
    request = json.dumps({"seq": sequence}).encode()
    return publish(f"$JS.API.STREAM.MSG.GET.{STREAM}", request, inbox=inbox)


def is_acknowledged(answer: bytes) -> bool:
    """Whether one whole message has arrived; a refusal raises `NatsError`."""
    if any(word in answer for word in _REFUSED):
        raise NatsError(answer[:400].decode(errors="replace"))
    return answer.count(b"\n") - answer.count(PING) >= _LINES_PER_MESSAGE


class MessageCounter:
    """Counts the messages that end in its input, which may come in any portions.

    `pings` counts the PINGs so far; each needs a PONG. A refusal raises `NatsError`. When values
    are read back, `is_checked` is off, because their bytes may look like an error.
    """

    def __init__(self, *, is_checked: bool = True) -> None:
        self.pings = 0
        self._rest = b""
        self._lines = 0
        self._is_checked = is_checked

    def feed(self, data: bytes) -> int:
        """The number of messages completed by `data`."""
        data = self._rest + data
        whole = data.rfind(b"\n") + 1
        self._rest = data[whole:]
        lines = data.count(b"\n")
        if self._is_checked and any(word in data for word in _REFUSED):
            raise NatsError(data[:400].decode(errors="replace"))
        # Only at the start of a line: a PING may come between any two lines.
        if PING in data[:whole]:
            pings = sum(line == PING.rstrip() for line in data[:whole].split(b"\r\n"))
            self.pings += pings
            lines -= pings
        self._lines += lines
        messages, self._lines = divmod(self._lines, _LINES_PER_MESSAGE)
        return messages
