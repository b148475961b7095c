"""Which faults happen when. The seed decides; nothing here touches a process.

    network     isolate, from_controllers, from_brokers, from_clients, halves, one_way, bridge,
                delay, loss
    processes   kill, power, all_power, pause, stop, disk_full, clock
    controllers controller_kill, controller_pause, all_controllers (paused)
    requests    elect

A fault has a beginning and an end. Several faults overlap, also on one broker; a fault that finds
its broker down waits for nothing and does what it can.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import Final

from crash.cluster_processes.virtual_switch import Weather

# How often each kind is chosen, and how long it lasts, in seconds.
KINDS: Final[dict[str, tuple[int, float, float]]] = {
    "isolate": (3, 1, 12),
    "from_controllers": (2, 2, 12),
    "from_brokers": (2, 2, 12),
    "from_clients": (1, 1, 8),
    "halves": (3, 1, 12),
    "one_way": (4, 1, 12),
    "bridge": (2, 2, 12),
    "delay": (2, 2, 10),
    "loss": (2, 2, 10),
    "kill": (6, 0, 6),
    "power": (6, 0, 6),
    "all_power": (2, 0, 4),
    "pause": (5, 0.5, 12),
    "stop": (3, 0, 4),
    "disk_full": (2, 2, 10),
    "clock": (2, 5, 60),  # retention looks every 30 s
    "controller_kill": (2, 0, 8),
    "controller_pause": (2, 1, 10),
    "all_controllers": (1, 1, 10),
    "elect": (2, 0, 0),
}
_OF_CONTROLLERS: Final = ("controller_kill", "controller_pause", "all_controllers")
CLOCK_ERRORS_MS: Final = (
    -10 * 365 * 86_400_000,
    -3_600_000,
    -5_000,
    5_000,
    3_600_000,
    10 * 365 * 86_400_000,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Who is where in the network."""

    brokers: tuple[int, ...]
    controllers: tuple[int, ...]
    clients: int

    @property
    def nodes(self) -> tuple[int, ...]:
        return (*self.brokers, *self.controllers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. `target` is a place; what else there is to know depends on the kind."""

    kind: str
    begin_s: float
    end_s: float
    target: int
    cuts: frozenset[tuple[int, int]] = frozenset()
    delay_ms: float = 0.0
    loss: float = 0.0
    clock_error_ms: int = 0

    def __str__(self) -> str:
        more = f" {sorted(self.cuts)}" if self.cuts else ""
        more += f" {self.delay_ms:.0f} ms" if self.delay_ms else ""
        more += f" {self.loss:.0%}" if self.loss else ""
        more += f" {self.clock_error_ms} ms" if self.clock_error_ms else ""
        return f"{self.kind} at {self.target} for {self.end_s - self.begin_s:.1f} s{more}"


def plan_faults(
    seed: int,
    places: Places,
    *,
    count: int,
    pause_s: float,
    kinds: Collection[str] = tuple(KINDS),
) -> list[Fault]:
    """`count` faults, `pause_s` after each other on average, in order of their beginnings."""
    rng = Random(f"{seed} faults")
    chosen = [kind for kind in KINDS if kind in kinds]
    weights = [KINDS[kind][0] for kind in chosen]
    faults: list[Fault] = []
    now_s = 0.0
    for _ in range(count):
        now_s += rng.uniform(0.2, 2 * pause_s - 0.2)
        kind = rng.choices(chosen, weights)[0]
        faults.append(_fault(rng, kind, now_s, places))
    return faults


def _fault(rng: Random, kind: str, begin_s: float, places: Places) -> Fault:
    _, shortest_s, longest_s = KINDS[kind]
    target = rng.choice(places.controllers if kind in _OF_CONTROLLERS else places.brokers)
    return Fault(
        kind=kind,
        begin_s=begin_s,
        end_s=begin_s + rng.uniform(shortest_s, longest_s),
        target=target,
        cuts=_cuts(rng, kind, target, places),
        delay_ms=rng.choice((20, 100, 400, 1500)) if kind == "delay" else 0.0,
        loss=rng.choice((0.05, 0.2, 0.5)) if kind == "loss" else 0.0,
        clock_error_ms=rng.choice(CLOCK_ERRORS_MS) if kind == "clock" else 0,
    )


def _cuts(rng: Random, kind: str, target: int, places: Places) -> frozenset[tuple[int, int]]:
    others = [place for place in places.nodes if place != target]
    match kind:
        case "isolate":
            away = [*others, places.clients] if rng.random() < 0.5 else others
            return _both_ways([target], away)
        case "from_controllers":
            return _both_ways([target], places.controllers)
        case "from_brokers":
            return _both_ways([target], [each for each in places.brokers if each != target])
        case "from_clients":
            return _both_ways([target], [places.clients])
        case "halves":
            nodes = list(places.nodes)
            rng.shuffle(nodes)
            cut = rng.randint(1, len(nodes) - 1)
            return _both_ways(nodes[:cut], nodes[cut:])
        case "one_way":
            away = rng.sample(others, rng.randint(1, len(others)))
            links = {(target, place) for place in away}
            return frozenset(links if rng.random() < 0.5 else {(b, a) for a, b in links})
        case "bridge":
            rng.shuffle(others)
            cut = rng.randint(1, len(others) - 1)
            return _both_ways(others[:cut], others[cut:])  # only `target` sees both
        case _:
            return frozenset()


def _both_ways(some: Sequence[int], others: Sequence[int]) -> frozenset[tuple[int, int]]:
    return frozenset(product(some, others)) | frozenset(product(others, some))


@dataclass(slots=True)
class Skies:
    """The weather that all network faults that are under way make together."""

    faults: list[Fault] = field(default_factory=list)

    def weather(self) -> Weather:
        delays: dict[int, float] = {}
        losses: dict[int, float] = {}
        for fault in self.faults:
            if fault.delay_ms:
                delays[fault.target] = delays.get(fault.target, 0.0) + fault.delay_ms / 2
            if fault.loss:
                losses[fault.target] = max(losses.get(fault.target, 0.0), fault.loss)
        cuts = frozenset[tuple[int, int]]().union(*(fault.cuts for fault in self.faults))
        return Weather(cuts=cuts, delays_ms=delays, losses=losses)
