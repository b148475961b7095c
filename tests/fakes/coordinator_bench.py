"""A coordinator with its handlers over a store on a simulated disk, without a thread.

Requests are encoded and decoded as on the wire, in any version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

from cordwood.broker.cluster_identity import ClusterIdentity
from cordwood.broker.cluster_view import SoleBroker
from cordwood.broker.groups.classic.group_config import GroupConfig
from cordwood.broker.groups.coordinator import GroupCoordinator
from cordwood.broker.groups.journal.group_loader import ConsumerGroupRestorer, GroupLoader
from cordwood.broker.groups.journal.group_log import Done, append_error
from cordwood.broker.handlers.group_admin import GroupAdminHandler
from cordwood.broker.handlers.group_membership import GroupMembershipHandler
from cordwood.broker.handlers.group_offsets import GroupOffsetsHandler
from cordwood.broker.handlers.offset_fetch import OffsetFetchHandler
from cordwood.broker.net.requests.request import Deferred, RequestContext, Response, Route
from cordwood.errors import CordwoodError
from cordwood.log.rules.producer_state import VerificationGuard
from cordwood.log.store.store import Store
from cordwood.log.topics.committed_offsets import GroupRecord
from cordwood.log.transactions.transaction_metadata import ProducerIdentity
from cordwood.protocol.api_catalog import API_CATALOG, ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.messages import (
    Fields,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from cordwood.protocol.request_header import RequestHeader
from fakes.manual_clock import ManualClock
from fakes.manual_scheduler import ManualScheduler
from fakes.sessions import LOCAL_SESSION
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import open_store

IDENTITY = ClusterIdentity(node_id=7, cluster_id="c", host="broker.example", port=9092)


class InlineExecutor(Executor):
    """Workers that work at once, or when told to."""

    def __init__(self) -> None:
        self.is_held = False
        self._waiting: list[Callable[[], object]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self._waiting.append(lambda: fn(*args, **kwargs))
        if not self.is_held:
            self.release()
        return Future()

    def release(self) -> None:
        waiting, self._waiting = self._waiting, []
        for function in waiting:
            function()


class StoreGroupLog:
    """Satisfies `GroupLog`: appends to the store at once, tells the loop afterwards.

    With `is_held` appends wait for `release`; with `fail_with` they are refused.
    """

    def __init__(self, store: Store, scheduler: ManualScheduler, partitions: int) -> None:
        self._store = store
        self._scheduler = scheduler
        self._partitions = partitions
        self._waiting: list[tuple[str, Sequence[GroupRecord], Done, ProducerIdentity | None]] = []
        self.is_held = False
        self.fail_with: ErrorCode | None = None
        self.refresh_code = ErrorCode.none
        self.refresh_count = 0

    def append(self, group_id: str, records: Sequence[GroupRecord], done: Done) -> None:
        self._put(group_id, records, done, None)

    def append_pending(
        self,
        group_id: str,
        records: Sequence[GroupRecord],
        producer: ProducerIdentity,
        done: Done,
        guard: VerificationGuard | None = None,
    ) -> None:
        self._put(group_id, records, done, producer)

    def _put(
        self,
        group_id: str,
        records: Sequence[GroupRecord],
        done: Done,
        producer: ProducerIdentity | None,
    ) -> None:
        self._waiting.append((group_id, list(records), done, producer))
        if not self.is_held:
            self.release()

    def release(self) -> None:
        waiting, self._waiting = self._waiting, []
        for group_id, records, done, producer in waiting:
            code = self.fail_with or self._append(group_id, records, producer)
            self._scheduler.call_soon(partial(done, code))

    def _append(
        self, group_id: str, records: Sequence[GroupRecord], producer: ProducerIdentity | None
    ) -> ErrorCode:
        try:
            self._store.offsets_topic.ensure(partitions=self._partitions)
            offsets = self._store.committed_offsets
            number = offsets.partition_of(group_id)
            if producer is None:
                offsets.append(number, records)
            else:
                offsets.append_pending(
                    number,
                    records,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                )
        except (CordwoodError, OSError) as error:
            return append_error(error)
        return ErrorCode.none

    def refresh(self, done: Done) -> None:
        self.refresh_count += 1
        if self.refresh_code is ErrorCode.none:
            self._store.committed_offsets.groups()
        self._scheduler.call_soon(lambda: done(self.refresh_code))


class Pending:
    """An answer that may still be to come, as a client would decode it."""

    def __init__(self, api: ApiKey, version: int, result: Response | Deferred) -> None:
        self._api, self._version, self._result = api, version, result

    @property
    def is_done(self) -> bool:
        return not isinstance(self._result, Deferred) or self._result.is_done

    @property
    def answer(self) -> Fields:
        response = self._result.response if isinstance(self._result, Deferred) else self._result
        assert response is not None, "nobody answered yet"
        frame = encode_response(self._api, self._version, 5, response)
        head = 9 if API_CATALOG[self._api].is_flexible(self._version) else 8
        return decode_response(self._api, self._version, frame[head:])

    @property
    def code(self) -> ErrorCode:
        return ErrorCode(self.answer.error_code)


class CoordinatorBench:
    """Everything of groups but the threads and the sockets."""

    def __init__(
        self,
        fs: SimulatedFileSystem | None = None,
        *,
        config: GroupConfig | None = None,
        clock: ManualClock | None = None,
        restore_consumer_groups: ConsumerGroupRestorer = lambda records: [],
        is_started: bool = True,
    ) -> None:
        self.clock = clock or ManualClock()
        self.fs = fs or SimulatedFileSystem(clock=self.clock)
        self.store = open_store(self.fs, clock=self.clock)
        self.scheduler = ManualScheduler(self.clock)
        self.config = config or GroupConfig()
        self.log = StoreGroupLog(self.store, self.scheduler, self.config.offsets_topic_partitions)
        self.workers = InlineExecutor()
        offsets = self.store.committed_offsets
        self.coordinator = GroupCoordinator(
            offsets=offsets,
            group_log=self.log,
            loader=GroupLoader(offsets, restore_consumer_groups),
            scheduler=self.scheduler,
            clock=self.clock,
            config=self.config,
            workers=self.workers,
        )
        view = SoleBroker(IDENTITY, self.store)
        routes: list[Route] = [
            *GroupMembershipHandler(coordinator=self.coordinator, view=view).routes(),
            *GroupOffsetsHandler(coordinator=self.coordinator, view=view).routes(),
            *OffsetFetchHandler(coordinator=self.coordinator, view=view).routes(),
            *GroupAdminHandler(coordinator=self.coordinator).routes(),
        ]
        self._routes = {route.api: route for route in routes}
        if is_started:
            self.coordinator.start()
            self.scheduler.run_ready()

    def restarted(self, *, has_crashed: bool = False, **options: Any) -> CoordinatorBench:
        """The same disk under a new broker; without a crash the old one stopped in order."""
        if not has_crashed:
            self.coordinator.stop()
            self.scheduler.run_ready()
            self.store.close()
        return CoordinatorBench(self.fs.kill(), config=self.config, clock=self.clock, **options)

    def send(self, api: ApiKey, version: int, request: Mapping[str, Any]) -> Pending:
        body = encode_request(api, version, request)
        fields = decode_request(api, version, body)
        header = RequestHeader(
            api_key=api, api_version=version, correlation_id=5, client_id="client"
        )
        context = RequestContext(header=header, session=LOCAL_SESSION)
        result = self._routes[api].handler(context, fields)
        self.scheduler.run_ready()
        return Pending(api, version, result)

    def ask(self, api: ApiKey, version: int, request: Mapping[str, Any]) -> Fields:
        """The answer to what is answered at once."""
        return self.send(api, version, request).answer

    # --- the usual requests ------------------------------------------------------------------

    def join(self, group: str = "billing", member: str = "", **fields: Any) -> Pending:
        version = fields.pop("version", 9)
        request = {
            "group_id": group,
            "member_id": member,
            "session_timeout": 10_000,
            "rebalance_timeout": 60_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\1\0\6orders"}],
            **fields,
        }
        return self.send(ApiKey.JOIN_GROUP, version, request)

    def stable(self, group: str = "billing", **fields: Any) -> str:
        """A group with one member that has its assignment; the member's id."""
        member = str(self.join(group, **fields).answer.member_id)
        joined = self.join(group, member, **fields).answer
        assert joined.error_code == 0, joined
        synced = self.ask(
            ApiKey.SYNC_GROUP,
            4,
            {
                "group_id": group,
                "generation_id": joined.generation_id,
                "member_id": member,
                "assignments": [{"member_id": member, "assignment": b"all"}],
            },
        )
        assert (synced.error_code, synced.assignment) == (0, b"all"), synced
        return member

    def heartbeat(self, member: str, generation: int = 1, group: str = "billing") -> ErrorCode:
        request = {"group_id": group, "generation_id": generation, "member_id": member}
        return self.send(ApiKey.HEARTBEAT, 4, request).code

    def commit(self, group: str = "billing", offset: int = 5, **fields: Any) -> Pending:
        version = fields.pop("version", 9)
        topic = fields.pop("topic", "orders")
        partition = fields.pop("partition", 0)
        metadata = fields.pop("metadata", "")
        topics = [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": partition,
                        "committed_offset": offset,
                        "committed_metadata": metadata,
                    }
                ],
            }
        ]
        request = {"group_id": group, "member_id": "", "topics": topics, **fields}
        return self.send(ApiKey.OFFSET_COMMIT, version, request)

    def committed(self, group: str = "billing", topic: str = "orders", partition: int = 0) -> int:
        request = {
            "groups": [
                {
                    "group_id": group,
                    "topics": [{"name": topic, "partition_indexes": [partition]}],
                }
            ]
        }
        [found] = self.ask(ApiKey.OFFSET_FETCH, 8, request).groups
        assert found.error_code == 0, found
        return int(found.topics[0].partitions[0].committed_offset)


def commit_code(pending: Pending) -> ErrorCode:
    """What became of the one partition of a commit."""
    return ErrorCode(pending.answer.topics[0].partitions[0].error_code)
