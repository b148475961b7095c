"""A run: a broker, workers and a proxy, all of which die or misbehave by chance; then the verdict.

`script/faults transactions` runs many. All choices come from the seed: which worker does what, when
a process is killed, what the proxy does. The processes run by themselves, though, so a seed replays
the plan and not each moment of it.
What a run leaves behind (data, histories, logs) is kept if it failed.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import cordwood
from crash.exactly_once.analysis import Violation, judge
from crash.exactly_once.final_reading import read_outcome
from crash.exactly_once.history import (
    Began,
    Ended,
    HistoryWriter,
    Outcome,
    Read,
    Stored,
    SymptomError,
    read_events,
)
from crash.exactly_once.nursery import BrokerOrder, Nursery, is_alive, kill
from crash.exactly_once.power_loss import lose_unsynced
from crash.exactly_once.proxy import NONE, SOME, Mischief, Proxy
from crash.exactly_once.workload import PARTITIONS, TOPIC, Assignment

READY_TIMEOUT_S: Final = 60.0
STUCK_S: Final = 60.0
STOP_S: Final = 5.0
QUIET_S: Final = 2.0
_POLL_S: Final = 0.005
_CALLS_PER_TRANSACTION: Final = 8  # writes and syncs of a broker, more or less


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A worker process: its client, and whether it processes records or writes its own."""

    kind: str
    name: str
    processes: bool = False


ROLES: Final = (
    Role(kind="raw", name="raw-a"),
    Role(kind="raw", name="raw-processor", processes=True),
    Role(kind="confluent", name="confluent-a"),
    Role(kind="confluent", name="confluent-b"),
    Role(kind="confluent", name="confluent-processor", processes=True),
    Role(kind="aiokafka", name="aiokafka-a"),
    Role(kind="reader", name="reader"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run is to do. `kills` are those of brokers; clients are killed beside."""

    seed: int
    transactions: int
    kills: int
    client_kills: int = 0
    roles: tuple[Role, ...] = ROLES
    mischief: Mischief = SOME
    power_cuts: float = 0.5  # of the kills
    plant: str = ""

    @property
    def text(self) -> str:
        """For `script/faults replay exactly-once`."""
        return f"{self.seed}/{self.transactions}/{self.kills}/{self.client_kills}"


@dataclass(slots=True, kw_only=True)
class Report:
    """What a run did, and what it found."""

    transactions: int = 0
    committed: int = 0
    aborted: int = 0
    broker_kills: int = 0
    power_cuts: int = 0
    lost_bytes: int = 0
    client_kills: int = 0
    records: int = 0
    reads: int = 0
    mischief: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def broken(self) -> list[Violation]:
        """Violations without an excuse."""
        return [violation for violation in self.violations if not violation.is_known_hole]

    @property
    def holes(self) -> Counter[str]:
        """The known hole of version 1, by how it showed."""
        return Counter(one.kind for one in self.violations if one.is_known_hole)

    def __str__(self) -> str:
        mischief = ", ".join(f"{count} {what}" for what, count in sorted(self.mischief.items()))
        holes = ", ".join(f"{count} {kind}" for kind, count in sorted(self.holes.items()))
        return (
            f"{self.transactions} transactions ({self.committed} committed, {self.aborted} "
            f"aborted), {self.records} records, {self.reads} reads; {self.broker_kills} brokers "
            f"killed, {self.power_cuts} of them with a power cut ({self.lost_bytes} bytes lost), "
            f"{self.client_kills} clients killed; requests: {mischief}; "
            f"{len(self.broken)} violations; known hole of version 1: {holes or 'none'}; "
            f"{self.seconds:.0f} s"
        )


class Tally:
    """Counts the ends in the histories while they grow."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}
        self.ended = 0

    def look(self) -> int:
        for path in self._directory.glob("history-*"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                data = file.read()
            whole = data.rfind(b"\n") + 1
            self._read[path] = self._read.get(path, 0) + whole
            self.ended += data[:whole].count(b'["Ended"')
        return self.ended


class Campaign:
    """One run in a directory of its own. For one thread; `run` once."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self.plan = plan
        self.directory = directory
        self.data = directory / "data"
        self.report = Report()
        self._rng = Random(f"{plan.seed} campaign")
        self._tally = Tally(directory)
        self._workers: dict[str, int] = {}
        self._lives: Counter[str] = Counter()
        self._client_kills_left = plan.client_kills
        self._starts = 0
        self._broker = 0
        self._nursery: Nursery
        self._proxy: Proxy

    def run(self) -> Report:
        started_s = time.monotonic()
        self.directory.mkdir(parents=True, exist_ok=True)
        with cordwood.open(self.data) as store:
            store.create_topic(TOPIC, partitions=PARTITIONS)
        with ExitStack() as ends:
            history = HistoryWriter(self.directory / "history-proxy")
            ends.callback(history.close)
            self._nursery = Nursery()
            ends.callback(self._nursery.close)
            rng = Random(f"{self.plan.seed} proxy")
            self._proxy = Proxy(rng, self.plan.mischief, history)
            self._proxy.start()
            ends.callback(self._proxy.stop)
            self._misbehave()
            self._stop_workers()
            self._proxy.mischief = NONE
            outcome = self._outcome()
        self.report.mischief = self._proxy.counts
        self._judge(outcome)
        self.report.seconds = time.monotonic() - started_s
        return self.report

    # --- the run -----------------------------------------------------------------------------

    def _misbehave(self) -> None:
        plan, report = self.plan, self.report
        per_kill = max(1, plan.transactions // max(plan.kills, 1))
        while report.broker_kills < plan.kills or self._tally.look() < plan.transactions:
            is_last = report.broker_kills >= plan.kills
            by_call = not is_last and self._rng.random() < 0.5
            count = self._rng.randint(0, 2 * per_kill)
            die_at = self._rng.randint(1, max(2, 2 * per_kill * _CALLS_PER_TRANSACTION))
            loses_power = self._rng.random() < plan.power_cuts
            if not self._start_broker(die_at if by_call else 0):
                self._died(loses_power)
                continue
            self._start_workers()
            target = plan.transactions if is_last else self._tally.look() + count
            self._await_end(target if not by_call else sys.maxsize, by_call=by_call)
            if is_last and self._tally.look() >= plan.transactions:
                return
            self._died(loses_power)

    def _await_end(self, target: int, *, by_call: bool) -> None:
        """Until so many transactions have ended, or the broker has died by itself."""
        last, since_s = self._tally.look(), time.monotonic()
        while is_alive(self._broker):
            ended = self._tally.look()
            if ended >= target:
                return
            if ended > last:
                last, since_s = ended, time.monotonic()
                self._maybe_kill_client()
            idle_s = time.monotonic() - since_s
            if by_call and idle_s > QUIET_S:
                return  # nothing more happens that it could die of
            if idle_s > STUCK_S:
                raise SymptomError(f"no transaction ended for {STUCK_S:.0f} s")
            time.sleep(_POLL_S)

    def _died(self, loses_power: bool) -> None:
        self._proxy.upstream_port = 0
        kill(self._broker)
        self.report.broker_kills += 1
        if loses_power:
            self.report.power_cuts += 1
            self.report.lost_bytes += lose_unsynced(self.data, self._rng)

    def _start_broker(self, die_at: int = 0) -> bool:
        """Whether it came up; otherwise it died before, as it was told to."""
        self._starts += 1
        ready = self.directory / f"ready-{self._starts}"
        self._broker = self._nursery.start_broker(
            BrokerOrder(
                directory=str(self.data),
                port=0,
                advertised_port=self._proxy.port,
                ready_file=str(ready),
                log_file=str(self.directory / "broker.log"),
                die_at=die_at,
                plant=self.plan.plant,
            )
        )
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while not ready.exists():
            if not is_alive(self._broker):
                if die_at:
                    return False
                raise AssertionError(f"the broker died: see {self.directory}/broker.log")
            assert time.monotonic() < deadline_s, "the broker does not come up"
            time.sleep(_POLL_S)
        self._proxy.upstream_port = int(ready.read_text().rsplit(":", 1)[1])
        return True

    def _start_workers(self) -> None:
        for role in self.plan.roles:
            pid = self._workers.get(role.name)
            if pid is None or not is_alive(pid):
                self._start_worker(role)

    @property
    def _worker_address(self) -> str:
        return f"127.0.0.1:{self._proxy.port}"

    def _start_worker(self, role: Role) -> None:
        assignment = Assignment(
            kind=role.kind,
            name=role.name,
            life=self._lives[role.name],
            seed=self.plan.seed,
            address=self._worker_address,
            directory=str(self.directory),
            processes=role.processes,
        )
        self._lives[role.name] += 1
        self._workers[role.name] = self._nursery.start_worker(asdict(assignment))

    def _maybe_kill_client(self) -> None:
        left = self._client_kills_left
        if not left:
            return
        remaining = max(1, self.plan.transactions - self._tally.ended)
        if self._rng.random() < left / remaining:
            self._client_kills_left -= 1
            role = self._rng.choice(self.plan.roles)
            kill(self._workers[role.name])
            self.report.client_kills += 1
            self._start_worker(role)

    def _stop_workers(self) -> None:
        (self.directory / "stop").touch()
        deadline_s = time.monotonic() + STOP_S
        while time.monotonic() < deadline_s and any(map(is_alive, self._workers.values())):
            time.sleep(_POLL_S)
        for pid in self._workers.values():
            kill(pid)

    # --- the verdict -------------------------------------------------------------------------

    def _outcome(self) -> Outcome:
        if not is_alive(self._broker):
            self._start_broker()
        return read_outcome(
            f"127.0.0.1:{self._proxy.upstream_port}",
            self.data,
            transactional_ids=[r.name for r in self.plan.roles if r.kind != "reader"],
            groups=[f"group-{role.name}" for role in self.plan.roles if role.processes],
            stop_broker=lambda: kill(self._broker),
        )

    def _judge(self, outcome: Outcome) -> None:
        report = self.report
        events = list(read_events(sorted(self.directory.glob("history-*"))))
        ends = [event for event in events if isinstance(event, Ended)]
        report.committed = sum(end.is_commit for end in ends)
        report.aborted = len(ends) - report.committed
        report.transactions = sum(isinstance(event, Began) for event in events)
        report.records = sum(isinstance(event, Stored) for event in events)
        report.reads = sum(isinstance(event, Read) for event in events)
        report.violations = judge(events, outcome)


def run_campaign(plan: Plan, directory: Path) -> Report:
    """Run it; remove what it leaves unless a promise was broken."""
    report = Campaign(plan, directory).run()
    if not report.broken:
        shutil.rmtree(directory)
    return report


def pieces(plan: Plan, size: int) -> Iterator[Plan]:
    """The same as several runs, each with a broker and a log of its own, and the next seed."""
    count = max(1, -(-plan.transactions // size))
    for index in range(count):
        yield Plan(
            seed=plan.seed + index,
            transactions=plan.transactions // count,
            kills=_share(plan.kills, index, count),
            client_kills=_share(plan.client_kills, index, count),
            roles=plan.roles,
            mischief=plan.mischief,
            power_cuts=plan.power_cuts,
            plant=plan.plant,
        )


def _share(total: int, index: int, count: int) -> int:
    return total * (index + 1) // count - total * index // count
