"""Sends payment events with an ordinary Kafka client, and records the acknowledgements.

The client is librdkafka with the usual settings for payments: acks=all, and idempotent. It resends
unacknowledged records without duplicating or reordering any.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from demo.demo_plan import ACCOUNTS, PAYMENTS
from demo.payment_events import PaymentStream
from demo.recording import Recording

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

_TICK_S: Final = 0.02
_FLUSH_S: Final = 60.0
_HISTORY_MS: Final = 6 * 3_600_000


class EventProducer:
    """One client and the stream that it sends. One thread at a time may send.

    acknowledged   partition and offset of each acknowledged event, by event number
    refused        reasons of records that the client gave up on; empty if all is well
    """

    def __init__(self, address: str, stream: PaymentStream, recording: Recording) -> None:
        from confluent_kafka import Producer

        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.refused: list[str] = []
        self._stream = stream
        self._recording = recording
        self._producer: Producer = Producer(
            {
                "bootstrap.servers": address,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 10,
                "partitioner": "murmur2_random",  # as in Java clients and in our Spark sink
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 250,
                "log_level": 0,  # the demo kills the broker on purpose
                "error_cb": _pass_over,
            }
        )

    @property
    def produced(self) -> int:
        return self._stream.tally.events

    @property
    def in_flight(self) -> int:
        """The number of events that are produced but not acknowledged."""
        return self.produced - len(self.acknowledged)

    def send_history(self, count: int, rate: int) -> None:
        """Send `count` events of the past six hours, `rate` per second."""
        began_ms = int(time.time() * 1000) - _HISTORY_MS
        began_s = time.monotonic()
        for number in range(count):
            self._send(began_ms + _HISTORY_MS * number // count)
            if number % 200 == 0:
                self.settle(number / rate - (time.monotonic() - began_s))

    def send_live(self, rate: int, until: threading.Event) -> None:
        """Send current events, `rate` per second, until `until` is set."""
        due, last_s = 0.0, time.monotonic()
        while not until.is_set():
            now_s = time.monotonic()
            due, last_s = due + min(now_s - last_s, 1.0) * rate, now_s
            at_ms = int(time.time() * 1000)
            while due >= 1:
                self._send(at_ms)
                due -= 1
            self._producer.poll(_TICK_S)

    def settle(self, seconds: float) -> None:
        """Process acknowledgements that have arrived or arrive within `seconds`."""
        end_s = time.monotonic() + seconds
        self._producer.poll(0)
        while (left_s := end_s - time.monotonic()) > 0:
            self._producer.poll(left_s)

    def flush(self) -> int:
        """Wait until all is acknowledged; return how many records are not, after a minute."""
        return int(self._producer.flush(_FLUSH_S))

    def close(self) -> None:
        """Forget what is queued, so that nothing keeps the process from ending."""
        self._producer.purge()
        self._producer.flush(1.0)

    def _send(self, at_ms: int) -> None:
        event = self._stream.next_event(at_ms)
        self._queue(
            PAYMENTS,
            event.key,
            event.value,
            event.timestamp_ms,
            headers=[("source", event.source)],
            number=event.number,
        )
        if event.change is not None:
            self._queue(ACCOUNTS, event.key, event.change, event.timestamp_ms)
        if event.closes:
            self._queue(ACCOUNTS, event.key, None, event.timestamp_ms)

    def _queue(
        self,
        topic: str,
        key: bytes,
        value: bytes | None,
        timestamp_ms: int,
        *,
        headers: list[tuple[str, str | bytes | None]] | None = None,
        number: int | None = None,
    ) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.refused.append(str(error))
                return
            partition, offset = message.partition(), message.offset()
            if number is not None and partition is not None and offset is not None:
                self.acknowledged[number] = (partition, offset)
                self._recording.acknowledged += 1

        while True:
            try:
                self._producer.produce(
                    topic,
                    value,
                    key,
                    timestamp=timestamp_ms,
                    headers=headers or [],
                    on_delivery=delivered,
                )
                return
            except BufferError:
                self._producer.poll(0.1)  # the client's queue is full: wait for acknowledgements


class LiveFlow:
    """Sends current events from its own thread, from `start` to `stop`."""

    def __init__(self, producer: EventProducer, rate: int) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=producer.send_live, args=(rate, self._stop), name="live events", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Safe to repeat."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()


def _pass_over(error: object) -> None:
    """Ignore general errors: each record reports its own in the delivery callback."""
