"""A member of a classic group, and its requests to join and to sync."""

from collections.abc import Iterable, Mapping
from typing import Final

from cordwood.broker.net.requests.request import Deferred
from cordwood.format.groups.group_metadata import MemberMetadata
from cordwood.value_class import dataclass, field

NO_MEMBER_ID: Final = ""
NO_GENERATION: Final = -1

Protocols = tuple[tuple[str, bytes], ...]  # names with metadata, in order of preference


def metadata_size(protocols: Protocols) -> int:
    return sum(len(name) + len(metadata) for name, metadata in protocols)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A JoinGroup in any version."""

    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_known_member_id: bool = True  # from version 4 on
    can_skip_assignment: bool = True  # from version 9 on


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A SyncGroup in any version. Only the leader sends `assignments`, by member id."""

    member_id: str
    group_instance_id: str | None = None
    generation: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class ClassicMember:
    """One member. Owned by its group; `join_reply` and `sync_reply` are set while it waits.

    `is_new` until its first join is answered: before that it has no id to send heartbeats with.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    join_reply: Deferred | None = None
    sync_reply: Deferred | None = None

    @classmethod
    def joining(cls, member_id: str, request: JoinRequest) -> "ClassicMember":
        return cls(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=request.protocols,
            is_new=True,
        )

    @classmethod
    def restored(cls, saved: MemberMetadata, protocol_type: str, protocol: str) -> "ClassicMember":
        return cls(
            member_id=saved.member_id,
            group_instance_id=saved.group_instance_id,
            client_id=saved.client_id,
            client_host=saved.client_host,
            session_timeout_ms=saved.session_timeout_ms,
            rebalance_timeout_ms=saved.rebalance_timeout_ms,
            protocol_type=protocol_type,
            protocols=((protocol, saved.subscription),),
            assignment=saved.assignment,
        )

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_awaiting_join(self) -> bool:
        return self.join_reply is not None

    @property
    def is_excused(self) -> bool:
        """Whether its session may not expire, because it waits for an answer of ours.

        The client of a new member may be gone, so a new member is not excused.
        """
        return not self.is_new and (self.join_reply is not None or self.sync_reply is not None)

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: Iterable[str]) -> str:
        """The first of its protocols that all members have."""
        return next(name for name, _ in self.protocols if name in candidates)

    def saved(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )
