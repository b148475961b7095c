"""Whether a cluster is healthy, in one sentence and in numbers.

Unhealthy is what an operator must act on: brokers that are not alive, partitions that nobody leads
or that have too few replicas in sync, controllers that do not follow. Partitions that move, and
leaders that are not the preferred ones, are told, but they are not unhealthy.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from cordwood.cluster.operating.cluster_picture import (
    NO_LEADER,
    BrokerPicture,
    BrokerState,
    ClusterPicture,
    PartitionPicture,
    QuorumPicture,
    with_missing,
)
from cordwood.value_class import dataclass

VOTER_LAG_MAX_MS: Final = 10_000  # several fetches of a follower, and an election
_NAMES_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHealth:
    """The numbers behind the sentence. Partitions are listed in order."""

    brokers: tuple[BrokerPicture, ...]
    partition_count: int
    leaders: Mapping[int, int]
    replicas: Mapping[int, int]
    offline: tuple[PartitionPicture, ...]
    under_replicated: tuple[PartitionPicture, ...]
    under_min_isr: tuple[PartitionPicture, ...]
    moving: tuple[PartitionPicture, ...]
    not_preferred: tuple[PartitionPicture, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def is_healthy(self) -> bool:
        return not self.problems

    @property
    def sentence(self) -> str:
        alive = sum(broker.is_alive for broker in self.brokers)
        if self.problems:
            text = f"Not healthy: {'; '.join(self.problems)}."
        else:
            text = (
                f"Healthy: {_counted(alive, 'broker')} alive, "
                f"{_counted(self.partition_count, 'partition')}, all replicas in sync."
            )
        return f"{text} {' '.join(self.notes)}".rstrip()


def health_of(picture: ClusterPicture) -> ClusterHealth:
    brokers = with_missing(picture)
    partitions = sorted(picture.partitions, key=lambda partition: partition.place)
    offline = tuple(each for each in partitions if each.is_offline)
    behind = tuple(each for each in partitions if each.is_under_replicated)
    too_few = tuple(each for each in partitions if each.is_under_min_isr)
    moving = tuple(each for each in partitions if each.is_moving)
    not_preferred = tuple(
        each for each in partitions if not each.has_preferred_leader and not each.is_offline
    )
    problems = [
        *_broker_problems(brokers),
        *_listed(offline, "without a leader"),
        *_listed(too_few, "with too few replicas in sync for acks=all"),
        *_listed(behind, "with replicas that are not in sync"),
        *_quorum_problems(picture),
    ]
    notes = []
    if moving:
        notes.append(f"{_counted(len(moving), 'partition')} {_verb(moving)} being moved.")
    if not_preferred:
        verb = "is" if len(not_preferred) == 1 else "are"
        notes.append(
            f"{_counted(len(not_preferred), 'partition')} {verb} not led by the preferred broker "
            "(`cordwood cluster elect`)."
        )
    return ClusterHealth(
        brokers=brokers,
        partition_count=len(partitions),
        leaders=Counter(each.leader for each in partitions if each.leader != NO_LEADER),
        replicas=Counter(node for each in partitions for node in each.replicas),
        offline=offline,
        under_replicated=behind,
        under_min_isr=too_few,
        moving=moving,
        not_preferred=not_preferred,
        problems=tuple(problems),
        notes=tuple(notes),
    )


def _broker_problems(brokers: Sequence[BrokerPicture]) -> list[str]:
    found = []
    for state, text in (
        (BrokerState.FENCED, "not alive"),
        (BrokerState.MISSING, "named as a replica, but not registered"),
    ):
        ids = [str(broker.node_id) for broker in brokers if broker.state is state]
        if ids:
            verb = "is" if len(ids) == 1 else "are"
            noun = "broker" if len(ids) == 1 else "brokers"
            found.append(f"{noun} {_some(ids)} {verb} {text}")
    if not any(broker.is_alive for broker in brokers):
        found.append("no broker is alive")
    return found


def _listed(partitions: Sequence[PartitionPicture], what: str) -> list[str]:
    if not partitions:
        return []
    names = _some([str(each.place) for each in partitions])
    return [f"{_counted(len(partitions), 'partition')} {what} ({names})"]


def _quorum_problems(picture: ClusterPicture) -> list[str]:
    quorum = picture.quorum
    if quorum is None:
        return [] if picture.quorum_problem is None else [picture.quorum_problem]
    if quorum.leader_id < 0:
        return ["the controllers have no leader"]
    late = [str(each.node_id) for each in quorum.voters if _is_late(quorum, each.node_id)]
    if not late:
        return []
    noun = "controller" if len(late) == 1 else "controllers"
    verb = "does" if len(late) == 1 else "do"
    return [f"{noun} {_some(late)} {verb} not follow the active one"]


def _is_late(quorum: QuorumPicture, node_id: int) -> bool:
    voter = next(each for each in quorum.voters if each.node_id == node_id)
    if node_id == quorum.leader_id:
        return False
    lag_ms = quorum.lag_ms(voter)
    if lag_ms is None:  # it has never fetched, or the version does not tell times
        return voter.log_end < 0 or (
            voter.last_caught_up_ms < 0 and (quorum.leader is not None and _tells_times(quorum))
        )
    return lag_ms > VOTER_LAG_MAX_MS


def _tells_times(quorum: QuorumPicture) -> bool:
    return any(voter.last_caught_up_ms >= 0 for voter in quorum.voters)


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _verb(items: Sequence[object]) -> str:
    return "is" if len(items) == 1 else "are"
