"""A run: a cluster of real processes under faults of every kind; then rest, and the verdict.

`script/faults cluster-processes` runs many. The seed decides which faults happen when. The
processes run by themselves, though, so a seed replays the plan and not each moment of it. What a
run leaves behind (data, logs, what clients saw) is kept if it failed.

It needs root: namespaces for networks and mounts, loop devices for disks.
"""

from __future__ import annotations

import argparse
import heapq
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from cordwood.format.small_files.partition_metadata import encode_topic_id, new_topic_id
from crash.cluster_processes.client_process import ClientProcess
from crash.cluster_processes.clients import TOPIC, ClientPlan
from crash.cluster_processes.cluster_nodes import (
    BROKER_PORT,
    START_S,
    STOP_S,
    BrokerProcess,
    ControllerProcess,
    Process,
    await_true,
    controller_setup,
    format_all,
    replica_bytes,
)
from crash.cluster_processes.data_disk import leave_mounts
from crash.cluster_processes.ledger import decode_observations
from crash.cluster_processes.member_nursery import MemberNursery
from crash.cluster_processes.nemesis import KINDS, Fault, Places, Skies, plan_faults
from crash.cluster_processes.run_report import RunPlan, RunReport
from crash.cluster_processes.verdict import Violation, compare_replicas, judge
from crash.cluster_processes.virtual_switch import VirtualSwitch, Weather, address_of
from interop.kafka_peer import KafkaTools, KafkaUnavailableError

BROKERS: Final = 3
PARTITIONS: Final = 3
REST_S: Final = 150.0
_TICK_S: Final = 0.05
_TROUBLE: Final = ("Traceback", " ERROR ")
_EXPECTED: Final = ("bytes free; appends are refused", "No space left on device")  # of a full disk


class Campaign:
    """One run in a directory of its own. For one thread; `run` once."""

    def __init__(self, plan: RunPlan, directory: Path, tools: KafkaTools) -> None:
        self.plan = plan
        self.directory = directory
        self.report = RunReport()
        self._tools = tools
        self._skies = Skies()
        self._journal = directory / "faults.log"
        self._began_s = time.monotonic()
        self._held: dict[str, list[Fault]] = {}  # processes that must stay down, and why
        self._pauses: Counter[str] = Counter()
        self._full: Counter[int] = Counter()
        self._switch: VirtualSwitch
        self._clients: ClientProcess
        self._brokers: dict[int, BrokerProcess] = {}
        self._controllers: dict[int, ControllerProcess] = {}

    def run(self) -> RunReport:
        plan, report = self.plan, self.report
        with ExitStack() as ends:
            places = self._set_up(ends)
            faults = plan_faults(
                plan.seed, places, count=plan.faults, pause_s=plan.pause_s, kinds=plan.kinds
            )
            self._misbehave(faults)
            self._rest()
            self._clients.finish()
            self._stop_brokers()
            self._judge()
            self._keep_if_broken()
        report.seconds = time.monotonic() - self._began_s
        return report

    # --- setting up ----------------------------------------------------------------------------

    def _set_up(self, ends: ExitStack) -> Places:
        self.directory.mkdir(parents=True, exist_ok=True)
        fast = Path("/dev/shm")
        images = Path(tempfile.mkdtemp(prefix="cordwood-", dir=fast if fast.is_dir() else None))
        ends.callback(shutil.rmtree, images, ignore_errors=True)
        brokers = tuple(range(1, BROKERS + 1))
        controllers = tuple(range(BROKERS + 1, BROKERS + 1 + self.plan.controllers))
        places = Places(brokers=brokers, controllers=controllers, clients=controllers[-1] + 1)
        self._switch = VirtualSwitch(places.clients)
        ends.callback(self._switch.close)
        networks = self._switch.namespaces
        setup = controller_setup(encode_topic_id(new_topic_id()), list(controllers))
        for place, node in zip(controllers, setup.nodes, strict=True):
            controller = self._controllers[place] = ControllerProcess(
                self._tools,
                self.directory / f"controller-{node.node_id}",
                node=node,
                namespace=networks[place],
                setup=setup,
            )
            ends.callback(controller.kill)
        format_all(list(self._controllers.values()))
        for controller in self._controllers.values():
            controller.start()
        nursery = MemberNursery()
        ends.callback(nursery.close)
        for place in brokers:
            broker = self._brokers[place] = BrokerProcess(
                nursery,
                self.directory / f"broker-{place}",
                images,
                node_id=place,
                namespace=networks[place],
                setup=setup,
                durability=self.plan.durability,
            )
            ends.callback(broker.disk.close)
            ends.callback(broker.kill)
        ready = (controller.is_ready for controller in self._controllers.values())
        assert await_true(lambda: all(ready), START_S), "the controllers do not start"
        for broker in self._brokers.values():
            broker.start()
        self._clients = ClientProcess(
            ClientPlan(
                bootstrap=",".join(f"{address_of(place)}:{BROKER_PORT}" for place in brokers),
                namespace=networks[places.clients],
                seed=self.plan.seed,
                partitions=PARTITIONS,
                producers=3,
                per_second=30.0,
                result_file=str(self.directory / "observations.json"),
            ),
            self.directory / "clients.log",
        )
        ends.callback(self._clients.kill)
        return places

    # --- faults --------------------------------------------------------------------------------

    def _misbehave(self, faults: list[Fault]) -> None:
        """Begin and end each fault in its time; start what ended and need not be down."""
        events: list[tuple[float, int, bool, Fault]] = []
        for number, fault in enumerate(faults):
            heapq.heappush(events, (fault.begin_s, number, True, fault))
            heapq.heappush(events, (fault.end_s, number, False, fault))
        started_s = time.monotonic()
        while events:
            if events[0][0] <= time.monotonic() - started_s:
                _, _, is_begin, fault = heapq.heappop(events)
                self._note(f"{'begin' if is_begin else 'end  '} {fault}")
                if is_begin:
                    self.report.faults[fault.kind] += 1
                    self._begin(fault)
                else:
                    self._end(fault)
            self._supervise()
            time.sleep(_TICK_S)

    def _begin(self, fault: Fault) -> None:
        match fault.kind:
            case "kill" | "power":
                self._take_down([fault.target], fault)
            case "all_power":
                self._take_down(list(self._brokers), fault)
            case "stop":
                self._hold(self._brokers[fault.target], fault)
                self._brokers[fault.target].begin_stop()
            case "pause" | "controller_pause" | "all_controllers":
                for process in self._paused_by(fault):
                    self._pauses[process.name] += 1
                    process.pause()
            case "controller_kill":
                self._hold(self._controllers[fault.target], fault)
                self._controllers[fault.target].kill()
            case "disk_full":
                self._full[fault.target] += 1
                self._brokers[fault.target].disk.fill()
            case "clock":
                self._brokers[fault.target].set_clock_error(fault.clock_error_ms)
            case "elect":
                self._clients.ask("elect")
            case _:
                self._skies.faults.append(fault)
                self._switch.set(self._skies.weather())

    def _end(self, fault: Fault) -> None:
        match fault.kind:
            case "kill" | "power" | "all_power" | "stop" | "controller_kill":
                for held in self._held.values():
                    if fault in held:
                        held.remove(fault)
            case "pause" | "controller_pause" | "all_controllers":
                for process in self._paused_by(fault):
                    self._pauses[process.name] -= 1
                    if not self._pauses[process.name]:
                        process.resume()
            case "disk_full":
                self._full[fault.target] -= 1
                if not self._full[fault.target]:
                    self._brokers[fault.target].disk.free()
            case "clock":
                self._brokers[fault.target].set_clock_error(0)
            case "elect":
                pass
            case _:
                self._skies.faults.remove(fault)
                self._switch.set(self._skies.weather())

    def _take_down(self, places: list[int], fault: Fault) -> None:
        for place in places:
            self._brokers[place].pause()  # all at the same moment
        for place in places:
            broker = self._brokers[place]
            self._hold(broker, fault)
            if fault.kind == "kill":
                broker.kill()
            else:
                broker.cut_power()

    def _hold(self, process: Process, fault: Fault) -> None:
        self._held.setdefault(process.name, []).append(fault)

    def _paused_by(self, fault: Fault) -> list[Process]:
        if fault.kind == "all_controllers":
            return list(self._controllers.values())
        nodes: dict[int, Process] = {**self._brokers, **self._controllers}
        return [nodes[fault.target]]

    def _supervise(self) -> None:
        """Start what is down and need not be, as an operator's supervisor does."""
        for process in (*self._brokers.values(), *self._controllers.values()):
            if process.is_running or self._held.get(process.name):
                continue
            if process.name not in self._held:
                self.report.ended.append(f"{process.name}: {_last_line(process)}")
                self._note(f"ended {self.report.ended[-1]}")
            self._held.pop(process.name, None)
            process.start()
            if self._pauses[process.name]:
                process.pause()
            self.report.starts += isinstance(process, BrokerProcess)

    def _note(self, text: str) -> None:
        with open(self._journal, "a") as file:
            file.write(f"{time.strftime('%H:%M:%S')} {text}\n")

    # --- the end -------------------------------------------------------------------------------

    def _rest(self) -> None:
        """All faults have ended: every partition must have all its replicas in sync again."""
        started_s = time.monotonic()
        self._switch.set(Weather())

        def is_at_rest() -> bool:
            self._supervise()
            return self._clients.ask("lagging") == "0"

        if not await_true(is_at_rest, REST_S):
            self.report.violations.append(
                Violation("stuck", f"{self._clients.ask('lagging')} partitions are not in sync")
            )
        self.report.rest_s = time.monotonic() - started_s

    def _stop_brokers(self) -> None:
        for broker in self._brokers.values():
            broker.begin_stop()
        for broker in self._brokers.values():
            if not await_true(lambda broker=broker: not broker.is_running, STOP_S):  # type: ignore[misc]
                self.report.violations.append(Violation("stuck", f"{broker.name} does not stop"))
                broker.kill()

    def _judge(self) -> None:
        report = self.report
        seen = decode_observations((self.directory / "observations.json").read_text())
        report.sent = sum(map(len, seen.sent.values()))
        report.acknowledged = len(seen.acknowledged)
        report.read = len(seen.read)
        report.commits = len(seen.commits)
        report.errors = seen.errors
        report.violations += judge(seen)
        stores = {node: broker.data for node, broker in self._brokers.items()}
        for number in range(PARTITIONS):
            name = f"{TOPIC}-{number}"
            report.violations += compare_replicas(name, replica_bytes(Path(name), stores))
        for broker in self._brokers.values():
            lines = broker.log.read_text(errors="replace").splitlines()
            report.trouble += [
                f"{broker.name}: {line}"
                for line in lines
                if any(word in line for word in _TROUBLE)
                and not any(words in line for words in _EXPECTED)
            ]

    def _keep_if_broken(self) -> None:
        if self.report.violations:
            for broker in self._brokers.values():
                shutil.copytree(broker.data, self.directory / f"kept-{broker.name}")


def _last_line(process: Process) -> str:
    assert isinstance(process, BrokerProcess | ControllerProcess)
    lines = process.log.read_text(errors="replace").splitlines() if process.log.exists() else []
    return lines[-1] if lines else "it said nothing"


def why_not() -> str | None:
    """Why no run is possible here; None if one is."""
    if os.geteuid() != 0:
        return "it needs root, for namespaces and mounts"
    for path in ("/dev/net/tun", "/dev/loop-control"):
        if not os.access(path, os.W_OK):
            return f"it needs {path}"
    for command in ("ip", "mkfs.ext4", "mount", "umount"):
        if shutil.which(command) is None:
            return f"it needs the command {command}"
    try:
        KafkaTools.find()
    except KafkaUnavailableError as error:
        return str(error)
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "true"], capture_output=True, check=False
    )
    return "namespaces are not permitted" if tried.returncode else None


def run_campaign(plan: RunPlan, directory: Path) -> RunReport:
    """Run it; remove what it leaves unless a promise was broken."""
    report = Campaign(plan, directory, KafkaTools.find()).run()
    if not report.violations and not report.trouble:
        shutil.rmtree(directory)
    return report


def main(arguments: list[str]) -> int:
    """One run, in a process of its own: it has its own mounts."""
    parser = argparse.ArgumentParser(prog="crash.cluster_processes.campaign")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument("--controllers", type=int, default=3)
    parser.add_argument("--pause", type=float, default=4.0, help="seconds between two faults")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--durability", default="disk", choices=["disk", "os"])
    options = parser.parse_args(arguments)
    leave_mounts()
    plan = RunPlan(
        seed=options.seed,
        faults=options.faults,
        controllers=options.controllers,
        pause_s=options.pause,
        kinds=tuple(options.kinds),
        durability=options.durability,
    )
    report = run_campaign(plan, options.directory)
    print(f"cluster-processes, seed {plan.seed}: {report}", flush=True)
    for each in (*report.ended[:20], *report.trouble[:20]):
        print(f"       {each}")
    for violation in report.violations[:30]:
        print(f"FAILED {violation}")
    if report.violations:
        print(f"       replay: script/faults replay cluster-processes {plan.text}")
    if report.violations or report.trouble:
        print(f"       it is kept in {options.directory}", flush=True)
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
