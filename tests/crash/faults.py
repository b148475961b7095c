"""`script/faults`: the long run of every fault test, and the replay of one.

    script/faults                         all of it, as many as the reliability page promises
    script/faults power --seeds 5000      power cuts, over all scripts
    script/faults calls --scripts append  every call of a script fails, in every way
    script/faults kills --count 100       a real writer killed with SIGKILL
    script/faults tables --table-kills 50 a job that follows a topic into a table, killed the same
    script/faults rot --flips 1000        random bits of a store flipped
    script/faults cluster --seeds 5000    a cluster in one process, with every fault at once
    script/faults cluster-processes       1,000 faults of real clusters: three brokers, Kafka's
                                          controllers, networks, disks and clocks that fail
    script/faults transactions            10,000 transactions of real clients through a proxy that
                                          misbehaves, while 200 brokers and 100 clients are killed
    script/faults transactions --cluster  the same against three brokers of a cluster, of which one
                                          at a time is killed; needs Kafka's jars
    script/faults replay SCRIPT SEED      one power cut again
    script/faults replay SCRIPT/SEED/CALL/KIND
    script/faults replay cluster SEED     one run of a cluster again
    script/faults replay cluster-processes SEED/FAULTS/CONTROLLERS
    script/faults replay exactly-once SEED/TRANSACTIONS/KILLS/CLIENT-KILLS
    script/faults replay exactly-once-cluster SEED/TRANSACTIONS/KILLS/CLIENT-KILLS

A run that fails is printed with the command that replays it and kept in `known_seeds.txt`.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import multiprocessing
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

from crash.cluster_processes.campaign import why_not
from crash.exactly_once.campaign import Plan, pieces, run_campaign
from crash.io_faults import all_faults
from crash.kills import kill_many
from crash.known_seeds import Known, add_known
from crash.rot import run_flip
from crash.scripts import SCRIPTS
from simulation.cluster import simulate

PROCESSES = 2
PROGRESS_S = 10.0

Failure = tuple[Known, str]


def run_known(known: Known) -> Failure | None:
    try:
        known.run()
    except Exception as error:
        return known, _reason(error)
    return None


def run_rot_seed(seed: int) -> Failure | None:
    try:
        run_flip(seed)
    except Exception as error:
        return Known("rot", str(seed)), _reason(error)
    return None


def run_cluster_seed(seed: int) -> Failure | None:
    try:
        simulate(seed)
    except Exception as error:
        return Known("cluster", f"cluster {seed}"), _reason(error)
    return None


def _reason(error: Exception) -> str:
    at = traceback.extract_tb(error.__traceback__)[-1]
    first_line = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__} in {Path(at.filename).name}: {first_line}"[:160]


def run_many(
    title: str, runs: Iterable[object], run: Callable[[object], Failure | None], total: int
) -> int:
    """Run them on all processes, say how it goes; return how many failed."""
    started = shown = time.monotonic()
    failures = done = 0
    with multiprocessing.Pool(PROCESSES, initializer=_quiet) as pool:
        for failure in pool.imap_unordered(run, runs, chunksize=20):
            done += 1
            if failure is not None:
                failures += 1
                known, reason = failure
                print(f"FAILED {known.kind} {known.what}: {reason}")
                print(f"       replay: {known.replay}", flush=True)
                if known.kind in ("power", "call"):
                    add_known(known, reason)
            if time.monotonic() - shown > PROGRESS_S:
                shown = time.monotonic()
                rate = done / (shown - started)
                print(f"{title}: {done} of {total}, {failures} failed, {rate:.0f}/s", flush=True)
    seconds = time.monotonic() - started
    print(f"{title}: {done} runs, {failures} failed, {seconds:.0f} s", flush=True)
    return failures


def _quiet() -> None:
    logging.disable(logging.CRITICAL)


def run_power(scripts: list[str], seeds: int, first: int) -> int:
    per_script = -(-seeds // len(scripts))
    runs = (
        Known("power", f"{script} {seed}")
        for seed, script in itertools.product(range(first, first + per_script), scripts)
    )
    return run_many("power cuts", runs, run_known, per_script * len(scripts))  # type: ignore[arg-type]


def run_calls(scripts: list[str], variants: int) -> int:
    runs = [
        Known("call", str(fault))
        for script, seed in itertools.product(scripts, range(variants))
        for fault in all_faults(script, seed)
    ]
    return run_many("failing calls", runs, run_known, len(runs))  # type: ignore[arg-type]


def run_kills(count: int) -> int:
    with tempfile.TemporaryDirectory(prefix="cordwood-kills-") as directory:
        return kill_many(Path(directory), count, show=lambda text: print(text, flush=True))


def run_tables(count: int, first: int) -> int:
    """Kill followers, of each kind of table in turn."""
    # Not at the top: it needs Spark and the formats' libraries.
    from cordwood.spark.tables.lake_target import TableFormat
    from crash.table_kills import kill_followers

    kinds = list(TableFormat)
    failures = 0
    for index, kind in enumerate(kinds):
        share = count * (index + 1) // len(kinds) - count * index // len(kinds)
        with tempfile.TemporaryDirectory(prefix="cordwood-tables-") as directory:
            failures += kill_followers(
                Path(directory), kind, share, first, lambda text: print(text, flush=True)
            )
    print(f"tables: {count} kills, {failures} promises broken", flush=True)
    return failures


def run_rot(flips: int, first: int) -> int:
    return run_many("rot", range(first, first + flips), run_rot_seed, flips)  # type: ignore[arg-type]


def run_cluster(seeds: int, first: int) -> int:
    runs = range(first, first + seeds)
    return run_many("cluster", runs, run_cluster_seed, seeds)  # type: ignore[arg-type]


TRANSACTIONS_PER_RUN = 500  # of one broker directory: enough to meet, few enough to understand


def run_transactions(
    transactions: int, kills: int, client_kills: int, first: int, *, in_cluster: bool = False
) -> int:
    """Real clients, real brokers, kills of both; return how many runs broke a promise."""
    started = time.monotonic()
    whole = Plan(seed=first, transactions=transactions, kills=kills, client_kills=client_kills)
    run, what = run_campaign, "exactly-once"
    if in_cluster:
        # Not at the top: it needs Kafka's controllers.
        from crash.exactly_once.cluster_campaign import cluster_plan, run_cluster_campaign

        whole = cluster_plan(first, transactions, kills, client_kills)
        run, what = run_cluster_campaign, "exactly-once-cluster"
    failures = done = killed = 0
    for plan in pieces(whole, TRANSACTIONS_PER_RUN):
        directory = Path(tempfile.mkdtemp(prefix="cordwood-exactly-once-"))
        report = run(plan, directory)
        done, killed = done + report.transactions, killed + report.broker_kills
        print(f"transactions, seed {plan.seed}: {report}", flush=True)
        if report.broken:
            failures += 1
            for violation in report.broken[:20]:
                print(f"FAILED {violation}")
            print(f"       replay: script/faults replay {what} {plan.text}")
            print(f"       it is kept in {directory}", flush=True)
    seconds = time.monotonic() - started
    print(f"transactions: {done}, {killed} brokers killed, {failures} runs failed, {seconds:.0f} s")
    return failures


FAULTS_PER_RUN = 60  # of one cluster: some minutes


def run_cluster_processes(faults: int, first: int, controllers: int = 3) -> int:
    """Real clusters, one after the other; return how many runs broke a promise.

    Each run is a process of its own, because it has its own mounts.
    """
    reason = why_not()
    if reason is not None:
        print(f"cluster-processes: skipped: {reason}")
        return 0
    failures = 0
    count = max(1, -(-faults // FAULTS_PER_RUN))
    for index in range(count):
        share = faults * (index + 1) // count - faults * index // count
        directory = tempfile.mkdtemp(prefix="cordwood-cluster-")
        options = [f"--seed={first + index}", f"--faults={share}", f"--controllers={controllers}"]
        command = [sys.executable, "-m", "crash.cluster_processes.campaign", directory, *options]
        failures += subprocess.run(command, check=False).returncode != 0
    print(f"cluster-processes: {faults} faults, {failures} of {count} runs failed", flush=True)
    return failures


def replay(what: list[str]) -> int:
    """One run again, with everything it has to say."""
    logging.basicConfig(level=logging.INFO)
    text = " ".join(what)
    if what[0] in ("exactly-once", "exactly-once-cluster"):
        seed, transactions, kills, client_kills = (int(part) for part in what[1].split("/"))
        in_cluster = what[0] == "exactly-once-cluster"
        if run_transactions(transactions, kills, client_kills, seed, in_cluster=in_cluster):
            return 1
    elif what[0] == "cluster-processes":
        seed, faults, controllers = (int(part) for part in what[1].split("/"))
        if run_cluster_processes(faults, seed, controllers):
            return 1
    elif what[0] == "rot":
        run_flip(int(what[1]))
    elif what[0] == "cluster":
        print(simulate(int(what[1])))
    else:
        Known("call" if "/" in text else "power", text).run()
    print("it holds")
    return 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="script/faults", description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", default="all")
    parser.add_argument("rest", nargs="*")
    parser.add_argument("--seeds", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1_000, help="how many kills")
    parser.add_argument("--transactions", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=200, help="of brokers, in `transactions`")
    parser.add_argument(
        "--cluster", action="store_true", help="`transactions` against a cluster of three"
    )
    parser.add_argument("--client-kills", type=int, default=100)
    parser.add_argument("--faults", type=int, default=1_000, help="of `cluster-processes`")
    parser.add_argument("--table-kills", type=int, default=50, help="of `tables`")
    parser.add_argument("--flips", type=int, default=10_000)
    parser.add_argument("--variants", type=int, default=3, help="how many runs of a script fail")
    parser.add_argument("--scripts", nargs="+", default=list(SCRIPTS), choices=list(SCRIPTS))
    options = parser.parse_args(arguments)
    parts: dict[str, Callable[[], int]] = {
        "power": lambda: run_power(options.scripts, options.seeds, options.first),
        "calls": lambda: run_calls(options.scripts, options.variants),
        "kills": lambda: run_kills(options.count),
        "tables": lambda: run_tables(options.table_kills, options.first),
        "rot": lambda: run_rot(options.flips, options.first),
        "cluster": lambda: run_cluster(options.seeds, options.first),
        "cluster-processes": lambda: run_cluster_processes(options.faults, options.first),
        "transactions": lambda: run_transactions(
            options.transactions,
            options.kills,
            options.client_kills,
            options.first,
            in_cluster=options.cluster,
        ),
    }
    if options.what == "replay":
        return replay(options.rest)
    chosen = list(parts) if options.what == "all" else [options.what]
    if not set(chosen) <= set(parts):
        parser.error(f"unknown part {options.what!r}: all, replay, {', '.join(parts)}")
    failures = sum(parts[part]() for part in chosen)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
