"""A transactional producer of version 2, request by request, that tries again as Java's does.

It has one connection and one request under way. If the connection breaks, it sends the same request
again: the same batch with the same sequence, the same end with the same epoch. So everything that
it does is done once, or its transaction is aborted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cordwood.format.batch import BatchDecoder
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.messages import decode_response, encode_request
from crash.exactly_once.cluster_routes import ClusterRoutes, Target
from fakes.client_batches import client_batch
from wire.raw_client import RawClient
from wire.record_requests import Wanted, fetch_body, produce_body, receive_fetched, receive_produced

PRODUCE, FETCH = 12, 12
PAUSE_S: Final = 0.02
ANSWER_TIMEOUT_S: Final = 5.0  # then the connection is given up, and another one tried
PATIENCE_S: Final = 60.0
_AGAIN: Final = frozenset(
    {
        ErrorCode.concurrent_transactions,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.offset_not_available,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.not_leader_or_follower,
        ErrorCode.request_timed_out,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unstable_offset_commit,
        ErrorCode.kafka_storage_error,
    }
)


class RefusedError(Exception):
    """The broker refused a request for good."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class StoppedError(Exception):
    """The run is over, or nothing answers any more."""


class Link:
    """Connections that are made again whenever they break.

    With the addresses of several brokers, each request goes to the one that it is for.
    """

    def __init__(self, address: str, client_id: str, should_stop: Callable[[], bool]) -> None:
        addresses = address.split(",")
        self._address = addresses[0]
        self._routes = ClusterRoutes(addresses) if len(addresses) > 1 else None
        self._client_id = client_id
        self._should_stop = should_stop
        self._clients: dict[str, RawClient] = {}

    def close(self) -> None:
        for client in self._clients.values():
            client.socket.close()
        self._clients.clear()
        if self._routes is not None:
            self._routes.forget()

    def insist(
        self,
        ask: Callable[[RawClient], Any],
        code_of: Callable[[Any], int],
        target: Target | None = None,
    ) -> Any:
        """The answer to a request, sent until it is answered with something definite."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            if time.monotonic() > deadline_s:
                raise StoppedError
            try:
                answer = ask(self._connected(target))
            except (OSError, EOFError):
                self.close()
                if self._should_stop():
                    raise StoppedError from None
                time.sleep(PAUSE_S)
                continue
            code = ErrorCode(code_of(answer))
            if code is ErrorCode.none:
                return answer
            if code not in _AGAIN:
                raise RefusedError(code)
            if self._should_stop():
                raise StoppedError
            if self._routes is not None:
                self._routes.forget()
            time.sleep(PAUSE_S)

    def call(
        self,
        api: ApiKey,
        version: int,
        request: dict[str, Any],
        code_of: Callable[[Any], int] = lambda answer: int(answer.error_code),
        target: Target | None = None,
    ) -> Any:
        body = encode_request(api, version, request)

        def ask(client: RawClient) -> Any:
            sent = client.send(api, version, body, self._client_id)
            return _answer(client, api, version, sent)

        return self.insist(ask, code_of, target)

    def _connected(self, target: Target | None) -> RawClient:
        address = self._address if self._routes is None else self._routes.find(target)
        client = self._clients.get(address)
        if client is None:
            client = self._clients[address] = RawClient(address)
            client.socket.settimeout(ANSWER_TIMEOUT_S)
        return client

    @property
    def client_id(self) -> str:
        return self._client_id


def _answer(client: RawClient, api: ApiKey, version: int, sent: int) -> Any:
    correlation_id, body = client.receive(api, version)
    assert correlation_id == sent
    return decode_response(api, version, body)


@dataclass(slots=True)
class RawProducer:
    """One transactional id. `init` first; then `produce`, `commit_offset` and `end`, by turns."""

    link: Link
    transactional_id: str
    timeout_ms: int = 10_000
    producer_id: int = -1
    epoch: int = -1
    _sequences: dict[int, int] = field(default_factory=dict)

    def init(self) -> None:
        answer = self.link.call(
            ApiKey.INIT_PRODUCER_ID,
            5,
            {"transactional_id": self.transactional_id, "transaction_timeout": self.timeout_ms},
            target=("id", self.transactional_id),
        )
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()

    def produce(self, topic: str, partition: int, values: Sequence[bytes]) -> int:
        """Send one batch; return its base offset."""
        sequence = self._sequences.get(partition, 0)
        batch = client_batch(
            *values,
            timestamps=[time.time_ns() // 1_000_000] * len(values),
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            sequence=sequence,
            transactional=True,
        )
        body = produce_body(
            PRODUCE, [(topic, partition, bytes(batch))], transactional_id=self.transactional_id
        )

        def ask(client: RawClient) -> Any:
            client.send(ApiKey.PRODUCE, PRODUCE, body, self.link.client_id)
            (answer,) = receive_produced(client, PRODUCE).responses
            return answer.partition_responses[0]

        target = ("partition", topic, partition)
        part = self.link.insist(ask, lambda answer: int(answer.error_code), target)
        self._sequences[partition] = sequence + len(values)
        return int(part.base_offset)

    def commit_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        self.link.call(
            ApiKey.TXN_OFFSET_COMMIT,
            5,
            {
                "transactional_id": self.transactional_id,
                "group_id": group,
                "producer_id": self.producer_id,
                "producer_epoch": self.epoch,
                "topics": [
                    {
                        "name": topic,
                        "partitions": [{"partition_index": partition, "committed_offset": offset}],
                    }
                ],
            },
            lambda answer: int(answer.topics[0].partitions[0].error_code),
            ("group", group),
        )

    def end(self, *, is_commit: bool) -> None:
        answer = self.link.call(
            ApiKey.END_TXN,
            5,
            {
                "transactional_id": self.transactional_id,
                "producer_id": self.producer_id,
                "producer_epoch": self.epoch,
                "committed": is_commit,
            },
            target=("id", self.transactional_id),
        )
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()


def committed_position(link: Link, group: str, topic: str, partition: int) -> int:
    """The stable committed offset of a group; -1 if it has none."""
    answer = link.call(
        ApiKey.OFFSET_FETCH,
        9,
        {
            "groups": [
                {"group_id": group, "topics": [{"name": topic, "partition_indexes": [partition]}]}
            ],
            "require_stable": True,
        },
        lambda answer: int(
            answer.groups[0].error_code or answer.groups[0].topics[0].partitions[0].error_code
        ),
        ("group", group),
    )
    return int(answer.groups[0].topics[0].partitions[0].committed_offset)


def read_committed(
    link: Link, topic: str, partition: int, offset: int, *, max_wait_ms: int = 100
) -> tuple[list[tuple[int, str]], int]:
    """One fetch: the committed records from `offset` on, and where the next one begins."""

    def ask(client: RawClient) -> Any:
        body = fetch_body(
            FETCH,
            [Wanted(topic=topic, partition=partition, offset=offset, max_bytes=1 << 16)],
            isolation_level=1,
            max_wait_ms=max_wait_ms,
        )
        client.send(ApiKey.FETCH, FETCH, body, link.client_id)
        return receive_fetched(client, FETCH)

    def code_of(answer: Any) -> int:
        if answer.error_code:
            return int(answer.error_code)
        return int(answer.responses[0].partitions[0].error_code)

    target = ("partition", topic, partition)
    part = link.insist(ask, code_of, target).responses[0].partitions[0]
    return _without_aborted(part, offset)


def _without_aborted(part: Any, offset: int) -> tuple[list[tuple[int, str]], int]:
    """As consumers do it: by the list of aborted transactions, and the markers in between."""
    data = memoryview(bytes(part.records or b""))
    aborted = sorted(
        ((one.first_offset, one.producer_id) for one in part.aborted_transactions or ()),
        reverse=True,
    )
    skipped: set[int] = set()
    decoder = BatchDecoder()
    found: list[tuple[int, str]] = []
    reached = offset
    count = decoder.scan(data, 0, len(data))
    for index in range(count):
        batch = decoder.batch(index)
        reached = batch.next_offset
        while aborted and aborted[-1][0] < batch.next_offset:
            skipped.add(aborted.pop()[1])
        if batch.is_control:
            skipped.discard(batch.producer_id)
            continue
        if batch.producer_id in skipped:
            continue
        for run in decoder.runs(index, index + 1, start_offset=offset):
            found += (
                (int(record.offset), (record.value or b"").decode()) for record in run.records()
            )
    return found, reached
