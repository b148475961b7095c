"""How many replicas and leaders each broker would have, while a plan is made."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from cordwood.cluster.operating.cluster_picture import Place


class ReplicaLoads:
    """An assignment that is being changed, and the numbers of each broker. Owned by one plan.

    `racks` are the brokers that may get replicas, `other_racks` those that only have some.
    Invariant: no partition has a broker twice.
    """

    def __init__(
        self,
        assignment: Mapping[Place, Sequence[int]],
        racks: Mapping[int, str | None],
        other_racks: Mapping[int, str | None] | None = None,
    ) -> None:
        self.racks = dict(racks)
        self._known_racks = {**(other_racks or {}), **self.racks}
        self.assignment = {place: list(replicas) for place, replicas in assignment.items()}
        self.places: dict[int, set[Place]] = {node_id: set() for node_id in racks}
        self.leads: dict[int, int] = dict.fromkeys(racks, 0)
        for place, replicas in self.assignment.items():
            assert len(set(replicas)) == len(replicas), (place, replicas)
            for node_id in replicas:
                self.places.setdefault(node_id, set()).add(place)
            if replicas:
                self.leads[replicas[0]] = self.leads.get(replicas[0], 0) + 1
        self._rack_count = len(set(self.racks.values())) if self._has_racks else 1

    @property
    def _has_racks(self) -> bool:
        """Racks count only if every broker has one, as in Kafka."""
        return bool(self.racks) and all(rack is not None for rack in self.racks.values())

    def load(self, node_id: int) -> int:
        return len(self.places[node_id])

    def set(self, place: Place, replicas: Sequence[int]) -> None:
        assert len(set(replicas)) == len(replicas), (place, replicas)
        before = self.assignment[place]
        for node_id in before:
            self.places[node_id].discard(place)
        for node_id in replicas:
            self.places.setdefault(node_id, set()).add(place)
        if before:
            self.leads[before[0]] -= 1
        if replicas:
            self.leads[replicas[0]] = self.leads.get(replicas[0], 0) + 1
        self.assignment[place] = list(replicas)

    def replace(self, place: Place, old: int, new: int) -> None:
        """`new` takes the position of `old`."""
        self.set(place, [new if node == old else node for node in self.assignment[place]])

    # --- racks -------------------------------------------------------------------------------

    def rack_spread(self, replicas: Iterable[int]) -> int:
        """On how many racks the replicas are; 1 for all if racks do not count."""
        if not self._has_racks:
            return 1
        return len({self._known_racks.get(node_id) for node_id in replicas})

    def wanted_spread(self, count: int) -> int:
        """On how many racks `count` replicas should be."""
        return min(count, self._rack_count)

    def keeps_spread(self, replicas: Sequence[int]) -> bool:
        return self.rack_spread(replicas) >= self.wanted_spread(len(replicas))

    # --- choices -----------------------------------------------------------------------------

    def best_for(
        self, others: Sequence[int], may: Callable[[int], bool] = lambda _node: True
    ) -> int | None:
        """The broker that a replica is best added to, beside those on `others`.

        A rack that none of them is on comes first, then the least load.
        """
        candidates = [node for node in self.racks if node not in others and may(node)]
        if not candidates:
            return None
        return min(
            candidates,
            key=lambda node: (-self.rack_spread([*others, node]), self.load(node), node),
        )

    def lead_by_least(self, place: Place) -> None:
        """Let the broker that leads least be preferred, if that evens the numbers out."""
        replicas = self.assignment[place]
        eligible = [node for node in replicas if node in self.racks]
        if not eligible:
            return
        first = replicas[0]
        least = min(eligible, key=lambda node: (self.leads[node] - (node == first), node != first))
        if least != first and (
            first not in self.racks or self.leads[first] - self.leads[least] >= 2
        ):
            self.set(place, [least, *(node for node in replicas if node != least)])
