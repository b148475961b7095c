"""The demonstration: `script/demo`, or `python -m demo` in a set-up clone.

A broker is started, fed, read, followed by Spark, compacted, archived, killed and queried. What
is printed after "ok" was checked just now; the exit status is 0 only if every check held.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NoReturn

import cordwood
from demo.broker_process import BrokerFailedError, BrokerProcess
from demo.cordwood_command import CommandFailedError
from demo.demo_plan import ACCOUNTS, PAYMENTS, QUICK, DemoFiles, DemoPlan
from demo.next_steps import next_steps
from demo.payment_events import PaymentStream
from demo.quantities_shown import shown_bytes
from demo.recording import Recording
from demo.report_page import write_report
from demo.scene import Scene
from demo.screen import Screen
from demo.spark_process import SparkFailedError, SparkProcess
from demo.stages.archiving import archive
from demo.stages.compacting import compact
from demo.stages.following import follow
from demo.stages.grouping import read_as_group
from demo.stages.killing import kill
from demo.stages.producing import produce
from demo.stages.querying import query
from demo.stages.serving import serve
from demo.store_watch import StoreWatch

ROOT: Final = Path(__file__).resolve().parent.parent
INTERRUPTED: Final = 130
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

STAGES: Final[tuple[tuple[str, str, Callable[[Scene], None]], ...]] = (
    ("Broker", "cordwood serve, a process of its own, on a fresh directory", serve),
    ("Produce", "six hours of card payments, by librdkafka with acks=all", produce),
    ("Consumer group", "two ordinary Kafka consumers share four partitions", read_as_group),
    ("Spark stream", "Structured Streaming totals what each merchant earns", follow),
    ("Compact", "the changelog of accounts, by the broker that serves it", compact),
    ("Archive", "old segments move elsewhere, done by the library, no broker", archive),
    ("Kill", "SIGKILL while writes are being acknowledged, and recovery", kill),
    ("Query", "the whole history, archived and live, against the producer", query),
)


def run(plan: DemoPlan, files: DemoFiles, *, with_spark: bool) -> int:
    """All stages; whatever happens, nothing that was started is left running."""
    recording = Recording()
    screen = Screen(recording, sys.stdout)
    screen.headline(
        f"cordwood {cordwood.__version__}: a demonstration, in {_shown(files.directory)}"
    )
    with ExitStack() as open_things:
        scene = Scene(
            plan=plan,
            files=files,
            recording=recording,
            screen=screen,
            broker=BrokerProcess(files.store, files.broker_log),
            watch=StoreWatch(files.store, (PAYMENTS, ACCOUNTS), recording),
            stream=PaymentStream(seed=plan.seed, account_count=plan.account_count),
            open_things=open_things,
        )
        open_things.callback(scene.broker.close)
        open_things.callback(scene.watch.close)
        if with_spark:
            _start_spark(scene)
        is_whole = _play(scene)
        scene.watch.close()
        if scene.broker.is_running:
            scene.broker.stop()
    held = sum(check.held for check in recording.checks)
    _finish(scene, is_whole=is_whole)
    screen.headline(f"\n{held} of {len(recording.checks)} checks held, in {recording.now_s:.0f} s.")
    return 0 if is_whole and held == len(recording.checks) else 1


def _start_spark(scene: Scene) -> None:
    """Now, so that it is there when it is needed."""
    spark = SparkProcess(scene.files)
    scene.open_things.callback(spark.close)
    try:
        spark.start()
    except SparkFailedError as error:
        scene.screen.trouble(f"without Spark: {error}")
    else:
        scene.spark = spark


def _play(scene: Scene) -> bool:
    """The stages in order. False when one could not go on, which is said."""
    for number, (title, what, stage) in enumerate(STAGES, 1):
        with scene.screen.stage(number, title, what):
            try:
                stage(scene)
            except (BrokerFailedError, CommandFailedError, SparkFailedError) as error:
                scene.screen.check(f"{title.lower()} could go on", False)
                scene.screen.trouble(str(error))
                return False
    return True


def _finish(scene: Scene, *, is_whole: bool) -> None:
    with scene.screen.stage(len(STAGES) + 1, "Picture", "throughput and segments over time"):
        write_report(scene.recording, scene.files.report, next_steps(scene, ROOT))
        size = scene.files.report.stat().st_size
        scene.screen.say(f"{_shown(scene.files.report)} ({shown_bytes(size)}; open in a browser)")
    if is_whole:
        scene.screen.headline("\nWhat to try next, on what this run left behind:")
        for step in next_steps(scene, ROOT):
            scene.screen.command(step.command)


def _shown(path: Path) -> str:
    """As the user would type it."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def prepare(files: DemoFiles) -> None:
    """Make the directory anew. One that is not a run's is left alone, and refused."""
    if files.directory.exists():
        if not files.mark.exists() and any(files.directory.iterdir()):
            raise FileExistsError(f"{files.directory} holds something else: name another --dir")
        shutil.rmtree(files.directory)
    files.directory.mkdir(parents=True)
    files.mark.write_text("made by script/demo, which replaces this directory at its next run\n")


def _stop(number: int, frame: object) -> NoReturn:
    """The first signal stops everything in order, and others must not stop that."""
    for name in STOP_SIGNALS:
        signal.signal(name, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(prog="script/demo", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less of everything, in half a minute")
    parser.add_argument("--no-spark", action="store_true", help="leave out what needs Spark")
    parser.add_argument(
        "--dir",
        type=Path,
        default=ROOT / "build" / "demo",
        help="where to put everything; it stays there (default: build/demo, made anew)",
    )
    arguments = parser.parse_args()
    if importlib.util.find_spec("confluent_kafka") is None:
        parser.error("the Kafka client confluent-kafka is missing: run script/bootstrap first")
    files = DemoFiles(directory=arguments.dir)
    try:
        prepare(files)
    except FileExistsError as error:
        parser.error(str(error))
    for name in STOP_SIGNALS:
        signal.signal(name, _stop)
    began_s = time.monotonic()
    try:
        return run(
            QUICK if arguments.quick else DemoPlan(), files, with_spark=not arguments.no_spark
        )
    except KeyboardInterrupt:
        took_s = time.monotonic() - began_s
        print(f"\nInterrupted after {took_s:.0f} s; everything is stopped.", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
