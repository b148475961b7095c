"""A run against a cluster: three brokers, of which one at a time is killed; then the verdict.

    script/faults transactions --cluster

Workers, histories and the judge are those of a run with one broker (`campaign`). The controllers
are Apache Kafka's. There is no proxy: what is tested is that coordinators and leaders die. After
half of the kills the bytes that the broker did not sync are cut off, as in a power cut. Its
replicas come back with what was on the disk, and vouch for it.
"""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic

from crash.exactly_once.campaign import Campaign, Plan, Report, Role
from crash.exactly_once.final_reading import read_outcome
from crash.exactly_once.history import Outcome
from crash.exactly_once.nursery import Nursery
from crash.exactly_once.power_loss import lose_unsynced
from crash.exactly_once.proxy import NONE
from crash.exactly_once.workload import PARTITIONS, TOPIC
from interop.cluster_members import CordwoodMember
from interop.kafka_peer import KafkaTools
from interop.kraft_controllers import KraftControllers
from interop.transactional_records import create_internal_topics

NODES: Final = (1, 2, 3)
STUCK_S: Final = 90.0
_SETTLE_S: Final = 60.0
_POLL_S: Final = 0.02
_WHOLE_BEFORE_KILL: Final = 0.7  # else the next one dies while a replica catches up
_MARKS_S: Final = 2.0  # followers hear of the high watermark with their next fetch

CLUSTER_ROLES: Final = (
    Role(kind="raw", name="raw-a"),
    Role(kind="raw", name="raw-processor", processes=True),
    Role(kind="confluent", name="confluent-a"),
    Role(kind="confluent", name="confluent-processor", processes=True),
    Role(kind="aiokafka", name="aiokafka-a"),
    Role(kind="reader", name="reader"),
)


class ClusterCampaign(Campaign):
    """One run in a directory of its own. For one thread; `run` once."""

    def __init__(self, plan: Plan, directory: Path, kafka: KafkaTools) -> None:
        super().__init__(plan, directory)
        self._kafka = kafka
        self._members: list[CordwoodMember] = []

    @property
    def _bootstrap(self) -> str:
        return ",".join(member.address for member in self._members)

    def run(self) -> Report:
        started_s = time.monotonic()
        self.directory.mkdir(parents=True, exist_ok=True)
        with ExitStack() as ends:
            controllers = ends.enter_context(
                KraftControllers(self._kafka, self.directory / "controllers")
            )
            for node_id in NODES:
                place = self.directory / f"broker-{node_id}"
                member = CordwoodMember(
                    controllers,
                    place,
                    node_id=node_id,
                    properties={
                        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"
                    },
                )
                if self.plan.plant:
                    member.program = ("-m", "crash.exactly_once.planted_member", self.plan.plant)
                self._members.append(ends.enter_context(member))
            self._prepare()
            self._nursery = Nursery()
            ends.callback(self._nursery.close)
            self._start_workers()
            self._kill_some()
            self._stop_workers()
            outcome = self._outcome()
        self._judge(outcome)
        self.report.seconds = time.monotonic() - started_s
        return self.report

    def _prepare(self) -> None:
        """All topics exist before the first kill, on all brokers."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        topic = NewTopic(
            TOPIC,
            num_partitions=PARTITIONS,
            replication_factor=len(NODES),
            config={"min.insync.replicas": "2", "retention.ms": "-1"},
        )
        admin.create_topics([topic])[TOPIC].result(30)
        create_internal_topics(self._bootstrap)
        self._await_in_sync()

    @property
    def _worker_address(self) -> str:
        return self._bootstrap

    # --- the run -----------------------------------------------------------------------------

    def _kill_some(self) -> None:
        plan, report = self.plan, self.report
        per_kill = max(1, plan.transactions // max(plan.kills, 1))
        while report.broker_kills < plan.kills:
            self._await_ends(self._tally.look() + self._rng.randint(1, 2 * per_kill))
            member = self._rng.choice(self._members)
            member.kill()
            report.broker_kills += 1
            if self._rng.random() < plan.power_cuts:
                report.power_cuts += 1
                report.lost_bytes += lose_unsynced(member.data, self._rng)
            # Before or after another broker leads what it led.
            self._await_ends(self._tally.look() + self._rng.randint(0, per_kill))
            member.launch()
            member.wait_until("is running", 60)
            if self._rng.random() < _WHOLE_BEFORE_KILL:
                self._await_in_sync()
        self._await_ends(plan.transactions)

    def _await_ends(self, target: int) -> None:
        """Until so many transactions have ended."""
        last, since_s = self._tally.look(), time.monotonic()
        while (ended := self._tally.look()) < target:
            if ended > last:
                last, since_s = ended, time.monotonic()
                self._maybe_kill_client()
            assert time.monotonic() - since_s < STUCK_S, f"no transaction for {STUCK_S:.0f} s"
            time.sleep(_POLL_S)

    def _await_in_sync(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        deadline_s = time.monotonic() + _SETTLE_S
        while True:
            topics = admin.list_topics(timeout=20).topics.values()
            partitions = [each for topic in topics for each in topic.partitions.values()]
            if all(len(each.isrs) == len(NODES) for each in partitions):
                return
            assert time.monotonic() < deadline_s, "replicas do not catch up"
            time.sleep(_POLL_S)

    # --- the verdict -------------------------------------------------------------------------

    def _outcome(self) -> Outcome:
        self._await_in_sync()

        def stop() -> None:
            time.sleep(_MARKS_S)
            for member in self._members:
                member.kill()

        chosen = Random(f"{self.plan.seed} outcome").choice(self._members)
        return read_outcome(
            self._bootstrap,
            chosen.data,
            transactional_ids=[r.name for r in self.plan.roles if r.kind != "reader"],
            groups=[f"group-{role.name}" for role in self.plan.roles if role.processes],
            stop_broker=stop,
        )


def cluster_plan(
    seed: int, transactions: int, kills: int, client_kills: int, plant: str = ""
) -> Plan:
    return Plan(
        seed=seed,
        transactions=transactions,
        kills=kills,
        client_kills=client_kills,
        # With a bug, offsets may be pending for ever, and nobody could read them at the end.
        roles=tuple(role for role in CLUSTER_ROLES if not (plant and role.processes)),
        mischief=NONE,
        plant=plant,
    )


def run_cluster_campaign(plan: Plan, directory: Path) -> Report:
    """Run it; remove what it leaves unless a promise was broken."""
    report = ClusterCampaign(plan, directory, KafkaTools.find()).run()
    if not report.broken:
        shutil.rmtree(directory)
    return report
