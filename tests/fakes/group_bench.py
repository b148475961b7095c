"""A classic group under test, with its loop, its clock and its log in the test's hand."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from cordwood.broker.groups.classic.classic_group import ClassicGroup
from cordwood.broker.groups.classic.classic_member import JoinRequest, SyncRequest
from cordwood.broker.groups.classic.group_config import GroupConfig
from cordwood.broker.groups.classic.metadata_budget import MetadataBudget
from cordwood.broker.net.requests.request import Deferred
from cordwood.format.groups.group_metadata import (
    GroupMetadata,
    decode_group_metadata,
    encode_group_metadata,
)
from cordwood.protocol.error_code import ErrorCode
from fakes.manual_clock import ManualClock
from fakes.manual_scheduler import ManualScheduler
from fakes.memory_group_log import MemoryGroupLog

GROUP = "billing"
SESSION_MS = 10_000
REBALANCE_MS = 60_000


def subscription(*topics: str) -> bytes:
    """What a Java consumer joins with, as far as the broker looks at it."""
    names = b"".join(struct.pack(">h", len(t.encode())) + t.encode() for t in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


RANGE = (("range", subscription("orders")),)


def answer_of(reply: Deferred) -> Mapping[str, Any]:
    assert reply.is_done, "nobody answered yet"
    assert reply.response is not None
    return reply.response


def code_of(reply: Deferred) -> ErrorCode:
    return ErrorCode(answer_of(reply)["error_code"])


class GroupBench:
    """One group. What it saves goes to `log` under its own name."""

    def __init__(self, config: GroupConfig | None = None) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.log = MemoryGroupLog(self.scheduler)
        self.config = config or GroupConfig()
        self.abandoned: list[ClassicGroup] = []
        self.budget = MetadataBudget(bytes_max=1_000)
        self.group = self.new_group()

    def new_group(self) -> ClassicGroup:
        return ClassicGroup(
            GROUP,
            scheduler=self.scheduler,
            clock=self.clock,
            config=self.config,
            budget=self.budget,
            persist=lambda value, done: self.log.append(
                GROUP, [(GROUP.encode(), encode_group_metadata(value))], done
            ),
            abandoned=self.abandoned.append,
        )

    @property
    def saved(self) -> GroupMetadata:
        value = self.log.table[GROUP.encode()]
        assert value is not None
        return decode_group_metadata(value)

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 9,
        client_id: str = "client",
    ) -> Deferred:
        reply = Deferred()
        self.group.join(
            JoinRequest(
                member_id=member_id,
                group_instance_id=instance,
                client_id=client_id,
                client_host="/127.0.0.1",
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=rebalance_ms,
                protocol_type=protocol_type,
                protocols=protocols,
                needs_known_member_id=version >= 4,
                can_skip_assignment=version >= 9,
            ),
            reply,
        )
        self.scheduler.run_ready()
        return reply

    def join_anew(self, **options: Any) -> tuple[str, Deferred]:
        """The two steps of a new dynamic member; its id and the answer to the second."""
        member_id = answer_of(self.join(**options))["member_id"]
        return member_id, self.join(member_id, **options)

    def sync(
        self,
        member_id: str,
        generation: int | None = None,
        *,
        instance: str | None = None,
        assignments: Mapping[str, bytes] | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> Deferred:
        reply = Deferred()
        self.group.sync(
            SyncRequest(
                member_id=member_id,
                group_instance_id=instance,
                generation=self.group.generation if generation is None else generation,
                protocol_type=protocol_type,
                protocol_name=protocol_name,
                assignments=assignments or {},
            ),
            reply,
        )
        self.scheduler.run_ready()
        return reply

    def heartbeat(
        self, member_id: str, generation: int | None = None, *, instance: str | None = None
    ) -> ErrorCode:
        known = self.group.generation if generation is None else generation
        code = self.group.heartbeat(member_id, known, instance)
        self.scheduler.run_ready()
        return code

    def leave(self, *leaving: tuple[str, str | None]) -> list[ErrorCode]:
        codes = self.group.leave(list(leaving))
        self.scheduler.run_ready()
        return codes

    def stable(self, count: int = 1, *, instances: tuple[str, ...] = ()) -> list[str]:
        """A group in which `count` dynamic members and all `instances` have an assignment."""
        members: list[str] = []
        for number in range(count + len(instances)):
            name = instances[number - count] if number >= count else None
            # All of the others join again, or the newcomer would have to wait.
            reply = self.join(instance=name)
            if name is None:
                members.append(answer_of(reply)["member_id"])
                self.join(members[-1])
            for member_id in members[: number if name is None else None]:
                self.join(member_id, instance=self._instance(member_id))
            if name is not None:
                members.append(answer_of(reply)["member_id"])
        leader = self.group.leader_id
        assert leader is not None
        given = {member: f"for-{index}".encode() for index, member in enumerate(members)}
        self.sync(leader, instance=self._instance(leader), assignments=given)
        for member_id in members:
            self.sync(member_id, instance=self._instance(member_id))
        assert self.group.state_name == "Stable", self.group.state_name
        return members

    def _instance(self, member_id: str) -> str | None:
        return next(
            (m.group_instance_id for m in self.group.members() if m.member_id == member_id), None
        )
