"""A plan of who keeps which partition, and its text: the JSON of Kafka's tool for reassignments.

{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 3]}]}
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeGuard

from cordwood.cluster.operating.cluster_picture import PartitionPicture, Place
from cordwood.errors import ConfigError
from cordwood.value_class import dataclass

PLAN_BYTES_MAX: Final = 64 * 1024 * 1024  # half a million partitions
REPLICAS_MAX: Final = 1_000
_OPTION: Final = "--plan"

Assignment = Mapping[Place, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMove:
    """One partition with other replicas than it has. The first replica is the preferred leader."""

    place: Place
    before: tuple[int, ...]
    after: tuple[int, ...]
    size_bytes: int | None = None

    @property
    def added(self) -> tuple[int, ...]:
        return tuple(node for node in self.after if node not in self.before)

    @property
    def removed(self) -> tuple[int, ...]:
        return tuple(node for node in self.before if node not in self.after)

    @property
    def bytes_to_move(self) -> int | None:
        """What has to be copied; None if the size is not known."""
        if not self.added:
            return 0
        return None if self.size_bytes is None else self.size_bytes * len(self.added)


def moves_of(
    partitions: Iterable[PartitionPicture],
    wanted: Assignment,
    sizes: Mapping[Place, int] | None = None,
) -> list[PlannedMove]:
    """What `wanted` changes, in order."""
    known = sizes or {}
    return [
        PlannedMove(
            place=partition.place,
            before=partition.target,
            after=wanted[partition.place],
            size_bytes=known.get(partition.place),
        )
        for partition in sorted(partitions, key=lambda each: each.place)
        if partition.place in wanted and wanted[partition.place] != partition.target
    ]


def render_plan(assignment: Assignment) -> str:
    """One line, as Kafka's tool prints and reads it."""
    partitions = [
        {"topic": place.topic, "partition": place.partition, "replicas": list(replicas)}
        for place, replicas in sorted(assignment.items())
    ]
    return json.dumps({"version": 1, "partitions": partitions})


def parse_plan(text: str | bytes) -> dict[Place, tuple[int, ...]]:
    """The plan in `text`. Raises `ConfigError`, which says what is wrong in which partition."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(_OPTION, _start_of(text), f"is not JSON: {error}") from error
    if not isinstance(found, dict) or found.get("version") != 1:
        raise ConfigError(_OPTION, _start_of(text), 'must be an object with "version": 1')
    partitions = found.get("partitions")
    if not isinstance(partitions, list) or not partitions:
        raise ConfigError(_OPTION, _start_of(text), 'must have a list "partitions"')
    plan: dict[Place, tuple[int, ...]] = {}
    for item in partitions:
        place, replicas = _parsed(item)
        if place in plan:
            raise ConfigError(_OPTION, str(place), "is there twice")
        plan[place] = replicas
    return plan


def _parsed(item: Any) -> tuple[Place, tuple[int, ...]]:
    if not isinstance(item, dict):
        raise ConfigError(_OPTION, item, "must be an object with topic, partition and replicas")
    topic, partition, replicas = (item.get(key) for key in ("topic", "partition", "replicas"))
    if not isinstance(topic, str) or not topic:
        raise ConfigError(_OPTION, item, "has no topic")
    if not _is_number(partition):
        raise ConfigError(_OPTION, item, "has no partition")
    place = Place(topic, partition)
    if not isinstance(replicas, list) or not all(map(_is_number, replicas)):
        raise ConfigError(_OPTION, str(place), "must have a list of node ids as replicas")
    _check_replicas(place, replicas)
    directories = item.get("log_dirs") or []
    if any(each != "any" for each in directories):
        raise ConfigError(
            _OPTION, str(place), 'names log_dirs; only "any" is possible: a broker chooses itself'
        )
    return place, tuple(replicas)


def _check_replicas(place: Place, replicas: Sequence[int]) -> None:
    if not 0 < len(replicas) <= REPLICAS_MAX:
        raise ConfigError(_OPTION, str(place), f"must have 1 to {REPLICAS_MAX} replicas")
    if len(set(replicas)) != len(replicas):
        raise ConfigError(_OPTION, str(place), f"has a broker twice: {list(replicas)}")


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _start_of(text: str | bytes) -> str:
    start = text[:60]
    return start if isinstance(start, str) else start.decode(errors="replace")
