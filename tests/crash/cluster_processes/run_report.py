"""What a run of a real cluster is to do, and what it found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from crash.cluster_processes.nemesis import KINDS
from crash.cluster_processes.verdict import Violation


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What a run is to do."""

    seed: int
    faults: int
    pause_s: float = 4.0
    controllers: int = 3
    kinds: tuple[str, ...] = tuple(KINDS)
    durability: str = "disk"  # with `os`, a power cut must be found: the run proves itself

    @property
    def text(self) -> str:
        """For `script/faults replay cluster-processes`."""
        return f"{self.seed}/{self.faults}/{self.controllers}"


@dataclass(slots=True, kw_only=True)
class RunReport:
    """What a run did, and what it found.

    ended       brokers that ended by themselves, and what they said last
    trouble     lines of the brokers' logs that nobody should see
    rest_s      how long it took until all replicas were in sync after the last fault
    """

    faults: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    acknowledged: int = 0
    read: int = 0
    commits: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    starts: int = 0
    ended: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    rest_s: float = 0.0
    seconds: float = 0.0

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items()))
        return (
            f"{self.faults.total()} faults ({kinds}); {self.acknowledged} of {self.sent} values "
            f"acknowledged, errors {self.errors}; {self.read} offsets read, {self.commits} looks "
            f"at commits; {self.starts} starts of brokers, {len(self.ended)} ended by themselves, "
            f"{len(self.trouble)} lines of trouble; at rest after {self.rest_s:.0f} s; "
            f"{len(self.violations)} violations; {self.seconds:.0f} s"
        )
