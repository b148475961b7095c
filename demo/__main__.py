"""The demo: `script/demo`, or `python -m demo` after script/bootstrap.

It starts a broker, produces and consumes, follows with Spark, compacts, archives, kills and
queries. Every line after "ok" was verified just now; the exit status is 0 only if all checks held.
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
    ("Broker", "cordwood serve, in its own process, on a new directory", serve),
    ("Produce", "six hours of card payments, sent by librdkafka with acks=all", produce),
    ("Consumer group", "two ordinary Kafka consumers share four partitions", read_as_group),
    ("Spark stream", "Structured Streaming sums up what each merchant earns", follow),
    ("Compact", "the broker compacts the changelog of accounts", compact),
    ("Archive", "the library, without a broker, moves old segments to an archive", archive),
    ("Kill", "SIGKILL while the broker acknowledges writes, then recovery", kill),
    ("Query", "the whole history, archived and live, compared with the producer", query),
)


def run(plan: DemoPlan, files: DemoFiles, *, with_spark: bool) -> int:
    """Run all stages. Whatever happens, no process is left running."""
    recording = Recording()
    screen = Screen(recording, sys.stdout)
    screen.headline(f"cordwood {cordwood.__version__}: demo in {_shown(files.directory)}")
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
    """Start Spark early, so that it is ready when a stage needs it."""
    spark = SparkProcess(scene.files)
    scene.open_things.callback(spark.close)
    try:
        spark.start()
    except SparkFailedError as error:
        scene.screen.trouble(f"continuing without Spark: {error}")
    else:
        scene.spark = spark


def _play(scene: Scene) -> bool:
    """Run the stages in order. False if one failed, after reporting the error."""
    for number, (title, what, stage) in enumerate(STAGES, 1):
        with scene.screen.stage(number, title, what):
            try:
                stage(scene)
            except (BrokerFailedError, CommandFailedError, SparkFailedError) as error:
                scene.screen.check(f"the stage {title} completed", False)
                scene.screen.trouble(str(error))
                return False
    return True


def _finish(scene: Scene, *, is_whole: bool) -> None:
    with scene.screen.stage(len(STAGES) + 1, "Report", "throughput and segments over time"):
        write_report(scene.recording, scene.files.report, next_steps(scene, ROOT))
        size = scene.files.report.stat().st_size
        scene.screen.say(
            f"{_shown(scene.files.report)} ({shown_bytes(size)}; open it in a browser)"
        )
    if is_whole:
        scene.screen.headline("\nWhat to try next, on the files of this run:")
        for step in next_steps(scene, ROOT):
            scene.screen.command(step.command)


def _shown(path: Path) -> str:
    """The path as the user would type it."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def prepare(files: DemoFiles) -> None:
    """Recreate the directory. Refuse one that was not made by a demo."""
    if files.directory.exists():
        if not files.mark.exists() and any(files.directory.iterdir()):
            raise FileExistsError(f"{files.directory} contains other files; choose another --dir")
        shutil.rmtree(files.directory)
    files.directory.mkdir(parents=True)
    files.mark.write_text("created by script/demo; its next run replaces this directory\n")


def _stop(number: int, frame: object) -> NoReturn:
    """Stop everything properly at the first signal, and ignore further ones meanwhile."""
    for name in STOP_SIGNALS:
        signal.signal(name, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(prog="script/demo", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smaller run, half a minute")
    parser.add_argument("--no-spark", action="store_true", help="skip the parts that need Spark")
    parser.add_argument(
        "--dir",
        type=Path,
        default=ROOT / "build" / "demo",
        help="directory for all files, which are kept (default: build/demo, recreated)",
    )
    arguments = parser.parse_args()
    if importlib.util.find_spec("confluent_kafka") is None:
        parser.error(
            "the Kafka client confluent-kafka is not installed; run script/bootstrap first"
        )
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
        print(f"\nInterrupted after {took_s:.0f} s; all processes are stopped.", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
