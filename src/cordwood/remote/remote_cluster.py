"""The brokers of a cluster: their addresses, their partitions, and a connection to each.

If there is one broker, everything goes to the address that was given: the address that the broker
advertises may be unreachable from here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar
from uuid import UUID

from cordwood.errors import (
    BrokerUnreachableError,
    CordwoodError,
    UnknownPartitionError,
    UnknownTopicError,
)
from cordwood.protocol.api_catalog import ApiKey
from cordwood.remote import api_calls
from cordwood.remote.api_calls import ApiCall, Response
from cordwood.remote.refusals import check, is_passing, refusal
from cordwood.remote.wire_connection import Connector, WireConnection
from cordwood.security.clients.client_security import ClientSecurity
from cordwood.value_class import dataclass, field

if TYPE_CHECKING:
    from cordwood.protocol.schemas import cluster_messages as messages

_ATTEMPTS: Final = 40
_PAUSE_S: Final = 0.25
_NO_LEADER: Final = -1
_GROUP_KEY: Final = 0
_FIRST_FIND_OF_MANY: Final = 4

Address = tuple[str, int]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteReplicas:
    """Which brokers have a partition: all, those in sync, and those that are not alive."""

    all: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteTopic:
    """A topic of the cluster. `leaders` has the broker of each partition; -1: none."""

    name: str
    topic_id: UUID
    is_internal: bool
    leaders: Mapping[int, int]
    replicas: Mapping[int, RemoteReplicas] = field(default_factory=dict)

    @property
    def partitions(self) -> list[int]:
        return sorted(self.leaders)

    def check_partition(self, number: int) -> None:
        if number not in self.leaders:
            raise UnknownPartitionError(self.name, number, count=len(self.leaders))


class RemoteCluster:
    """One or several brokers of one cluster. For one thread.

    `connect` opens connections in another way than `security` says: with other limits.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        *,
        security: ClientSecurity | None = None,
        connect: Callable[[str, int], WireConnection] | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._addresses = list(addresses)
        self._connect = Connector(security) if connect is None else connect
        self._pause = pause
        self._connections: dict[Address, WireConnection] = {}
        self._brokers: dict[int, Address] = {}
        self._controller = _NO_LEADER
        self._coordinators: dict[str, int] = {}
        self._topics: dict[str, RemoteTopic] = {}
        self.cluster_id = ""
        self._home = self._first_to_answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Safe to repeat."""
        for connection in self._connections.values():
            connection.close()

    @property
    def address(self) -> str:
        """The address that answered first."""
        return self.anyone().address

    @property
    def broker_ids(self) -> list[int]:
        """The brokers of the last description, in order."""
        return sorted(self._brokers)

    # --- connections -------------------------------------------------------------------------

    def _first_to_answer(self) -> Address:
        failures: list[BrokerUnreachableError] = []
        for address in self._addresses:
            try:
                self._connection(address)
                return address
            except BrokerUnreachableError as error:
                failures.append(error)
        raise failures[0]

    def find_home(self) -> None:
        """Choose the first address that answers now: a broker may have gone.

        If none of the given ones does, a broker of the last description is taken.
        """
        known = [*self._addresses, *self._brokers.values()]
        for address in dict.fromkeys([self._home, *known]):
            try:
                self._connection(address)
            except BrokerUnreachableError:
                continue
            self._home = address
            return

    def _connection(self, address: Address) -> WireConnection:
        known = self._connections.get(address)
        if known is None or known.is_broken:
            known = self._connections[address] = self._connect(*address)
        return known

    def anyone(self) -> WireConnection:
        """The connection to the address that was given, reopened if it broke."""
        return self._connection(self._home)

    def broker(self, node_id: int) -> WireConnection:
        """The connection to a broker of the metadata."""
        if len(self._brokers) <= 1:
            return self.anyone()
        address = self._brokers.get(node_id)
        if address is None:
            raise BrokerUnreachableError(self.address, f"broker {node_id} is gone")
        return self._connection(address)

    def controller(self) -> WireConnection:
        """A broker that changes topics, or passes the change on to the controllers.

        Where controllers are nodes of their own, every broker passes requests on: the address
        that was given is asked. A broker that cannot be reached is replaced by another.
        """
        if not self._brokers:
            self.describe([])
        failures: list[BrokerUnreachableError] = []
        for address in self._to_controllers():
            try:
                return self._connection(address)
            except BrokerUnreachableError as error:
                failures.append(error)
        raise failures[0]

    def _to_controllers(self) -> list[Address]:
        """Whom to ask for a change, in order."""
        others = list(self._brokers.values()) if len(self._brokers) > 1 else []
        named = self._brokers.get(self._controller)
        if not others or named is None or self._passes_on(self._home):
            return list(dict.fromkeys([self._home, *others]))
        return list(dict.fromkeys([named, self._home, *others]))

    def _passes_on(self, address: Address) -> bool:
        known = self._connections.get(address)
        return known is not None and known.speaks(ApiKey.DESCRIBE_QUORUM)

    def coordinator(self, group: str) -> WireConnection:
        """The broker that coordinates a group."""
        if not self._brokers:
            self.describe([])
        if len(self._brokers) <= 1:
            return self.anyone()
        if group not in self._coordinators:
            self._coordinators[group] = self._find_coordinator(group)
        return self.broker(self._coordinators[group])

    def everyone(self) -> list[WireConnection]:
        """All brokers of the cluster."""
        if not self._brokers:
            self.describe([])
        return [self.broker(node_id) for node_id in sorted(self._brokers)] or [self.anyone()]

    def _find_coordinator(self, group: str) -> int:
        version = self.anyone().version_of(ApiKey.FIND_COORDINATOR)
        request: messages.FindCoordinatorRequestDict = {"key_type": _GROUP_KEY}
        if version >= _FIRST_FIND_OF_MANY:
            request["coordinator_keys"] = [group]
        else:
            request["key"] = group
        answer = self.anyone().call(api_calls.FIND_COORDINATOR(request))
        found = answer.coordinators[0] if version >= _FIRST_FIND_OF_MANY else answer
        check(found.error_code, f"find group {group!r}", message=found.error_message)
        return found.node_id

    # --- metadata ----------------------------------------------------------------------------

    def describe(self, names: Iterable[str] | None = None) -> dict[str, RemoteTopic]:
        """The topics with these names, or all topics. Unknown names are left out."""
        answer = self.anyone().call(
            api_calls.METADATA(
                {
                    "topics": None if names is None else [{"name": name} for name in names],
                    "allow_auto_topic_creation": False,
                }
            ),
        )
        check(answer.error_code, "describe the cluster")
        self._note(answer)
        found: dict[str, RemoteTopic] = {}
        for topic in answer.topics:
            described = _described(topic)
            if described is not None:
                found[described.name] = described
        self._topics |= found
        return found

    def _note(self, answer: messages.MetadataResponse) -> None:
        self._brokers = {b.node_id: (b.host, b.port) for b in answer.brokers}
        self._controller = answer.controller_id
        self.cluster_id = answer.cluster_id or ""

    def topic(self, name: str) -> RemoteTopic:
        """A topic, from the first description of it. Raises `UnknownTopicError`."""
        known = self._topics.get(name)
        if known is not None:
            return known
        found = self.describe([name]).get(name)
        if found is None:
            raise UnknownTopicError(name, known=self.describe(None))
        return found

    def forget(self) -> None:
        """Forget the metadata: something has moved."""
        self._topics.clear()
        self._coordinators.clear()
        self._brokers.clear()

    def by_leader(
        self, topic: str, partitions: Iterable[int]
    ) -> list[tuple[WireConnection, list[int]]]:
        """The partitions, grouped by the broker that leads them."""
        known = self.topic(topic)
        nodes: dict[int, list[int]] = {}
        for partition in partitions:
            known.check_partition(partition)
            leader = known.leaders[partition]
            if leader == _NO_LEADER:
                raise refusal(5, f"reach {topic}-{partition}", message="it has no leader")
            nodes.setdefault(leader, []).append(partition)
        return [(self.broker(node_id), numbers) for node_id, numbers in nodes.items()]

    def retried(self, attempt: Callable[[], T]) -> T:
        """The result of `attempt`, which is retried for ten seconds while a retry may succeed."""
        for number in range(_ATTEMPTS):
            try:
                return attempt()
            except CordwoodError as error:
                if not is_passing(error) or number == _ATTEMPTS - 1:
                    raise
                self.forget()
                self._pause(_PAUSE_S)
        raise AssertionError("not reached")

    def admin(self, call: ApiCall[Response], *, timeout_s: float | None = None) -> Response:
        """Send a request to the controllers."""
        return self.controller().call(call, timeout_s=timeout_s)


def _described(topic: messages.MetadataResponseTopics) -> RemoteTopic | None:
    """None for an unknown topic. A partition without a leader does not raise."""
    if topic.error_code == 3:
        return None
    name = topic.name or ""
    check(topic.error_code, f"describe topic {name!r}", topic=name)
    return RemoteTopic(
        name=name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        leaders={p.partition_index: p.leader_id for p in topic.partitions},
        replicas={
            p.partition_index: RemoteReplicas(
                all=tuple(p.replica_nodes),
                in_sync=tuple(p.isr_nodes),
                offline=tuple(p.offline_replicas),
            )
            for p in topic.partitions
        },
    )
