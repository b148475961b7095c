"""The table of runs that once failed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crash.io_faults import CallFault, run_fault
from crash.power_cut import run_seed
from simulation.cluster import simulate

TABLE = Path(__file__).with_name("known_seeds.txt")
_KEPT_ALIKE_MAX = 3


@dataclass(frozen=True, slots=True)
class Known:
    """One run: `kind` is "power", "call" or "cluster"."""

    kind: str
    what: str

    def run(self) -> None:
        """Raises what it once raised, if it does so again."""
        if self.kind == "power":
            script, seed = self.what.split()
            run_seed(script, int(seed))
        elif self.kind == "cluster":
            simulate(int(self.what.removeprefix("cluster ")))
        else:
            run_fault(parse_fault(self.what))

    @property
    def replay(self) -> str:
        return f"script/faults replay {self.what}"


def parse_fault(text: str) -> CallFault:
    script, seed, call, kind = text.split("/")
    return CallFault(script, int(seed), int(call), kind)


def read_known() -> list[Known]:
    known = []
    for line in TABLE.read_text().splitlines():
        text = line.partition("#")[0].strip()
        if text:
            kind, _, what = text.partition(" ")
            known.append(Known(kind, " ".join(what.split())))
    return known


def add_known(found: Known, reason: str) -> None:
    """Keep a run that failed, once, and not more than a few that failed alike."""
    alike = f"# {reason}"
    lines = TABLE.read_text().splitlines()
    if found in read_known() or sum(line.endswith(alike) for line in lines) >= _KEPT_ALIKE_MAX:
        return
    with TABLE.open("a") as table:
        table.write(f"{found.kind} {found.what}".ljust(36) + f" {alike}\n")
