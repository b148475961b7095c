"""Kafka's command-line tools, pointed at a broker. Each run is a Java process of its own.

The names are those of Kafka's scripts, without the ``kafka-`` before them.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import cordwood
from interop.kafka_peer import KafkaFailedError, KafkaTools

_TOOLS = "org.apache.kafka.tools"
MAIN_CLASSES: Final[Mapping[str, str]] = {
    "acls": f"{_TOOLS}.AclCommand",
    "broker-api-versions": f"{_TOOLS}.BrokerApiVersionsCommand",
    "client-compatibility-test": f"{_TOOLS}.ClientCompatibilityTest",
    "client-metrics": f"{_TOOLS}.ClientMetricsCommand",
    "cluster": f"{_TOOLS}.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": f"{_TOOLS}.consumer.ConsoleConsumer",
    "console-producer": f"{_TOOLS}.ConsoleProducer",
    "consumer-groups": f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
    "consumer-perf-test": f"{_TOOLS}.ConsumerPerformance",
    "delete-records": f"{_TOOLS}.DeleteRecordsCommand",
    "e2e-latency": f"{_TOOLS}.EndToEndLatency",
    "get-offsets": f"{_TOOLS}.GetOffsetShell",
    "groups": f"{_TOOLS}.GroupsCommand",
    "log-compaction-tester": f"{_TOOLS}.LogCompactionTester",
    "log-dirs": f"{_TOOLS}.LogDirsCommand",
    "producer-perf-test": f"{_TOOLS}.ProducerPerformance",
    "reassign-partitions": f"{_TOOLS}.reassign.ReassignPartitionsCommand",
    "topics": f"{_TOOLS}.TopicCommand",
    "transactional-message-copier": f"{_TOOLS}.TransactionalMessageCopier",
    "transactions": f"{_TOOLS}.TransactionsCommand",
    "verifiable-consumer": f"{_TOOLS}.VerifiableConsumer",
    "verifiable-producer": f"{_TOOLS}.VerifiableProducer",
}

# Tools that want the address before everything else, by the name of its option.
_BEFORE_SUBCOMMAND: Final[Mapping[str, str]] = {
    "transactional-message-copier": "--broker-list",
    "transactions": "--bootstrap-server",
}

# A tool runs for a second: start it quickly rather than have it reach its full speed.
QUICK_TOOL: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xlog:disable")
# Long, for it also passes where the machine has other work; a tool that hangs never ends anyway.
_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRun:
    """What a tool printed and how it ended."""

    output: str
    errors: str
    exit_code: int

    @property
    def printed(self) -> str:
        return self.output + self.errors

    @property
    def lines(self) -> list[str]:
        """What is in the output: its lines, without the empty ones."""
        return [line.rstrip() for line in self.output.splitlines() if line.strip()]

    @property
    def rows(self) -> list[list[str]]:
        """The words of every line."""
        return [line.split() for line in self.lines]


class JavaTools:
    """The tools as a user at a shell has them, for the broker at `servers`."""

    def __init__(
        self, kafka: KafkaTools, servers: str, *, jvm_options: Sequence[str] = QUICK_TOOL
    ) -> None:
        self._kafka = kafka
        self._jvm_options = tuple(jvm_options)
        self.servers = servers

    def run(
        self, tool: str, *arguments: str | Path, stdin: str = "", timeout_s: float = _TIMEOUT_S
    ) -> ToolRun:
        """Run a tool to its end, which must be a good one."""
        found = self.attempt(tool, *arguments, stdin=stdin, timeout_s=timeout_s)
        if found.exit_code != 0:
            raise KafkaFailedError(f"{tool} ended with {found.exit_code}\n{found.printed}")
        return found

    def attempt(
        self, tool: str, *arguments: str | Path, stdin: str = "", timeout_s: float = _TIMEOUT_S
    ) -> ToolRun:
        """Run a tool to its end, whichever that is."""
        finished = subprocess.run(
            self._command(tool, arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return ToolRun(
            output=finished.stdout, errors=finished.stderr, exit_code=finished.returncode
        )

    def start(self, tool: str, *arguments: str | Path) -> RunningTool:
        """Start a tool that prints JSON; `with` ends it."""
        return RunningTool(self._command(tool, arguments))

    def _command(self, tool: str, arguments: Sequence[str | Path]) -> list[str]:
        if tool in _BEFORE_SUBCOMMAND:
            where: tuple[str | Path, ...] = (_BEFORE_SUBCOMMAND[tool], self.servers)
            return self._kafka.command(
                MAIN_CLASSES[tool], *where, *arguments, jvm_options=self._jvm_options
            )
        subcommand = [each for each in arguments[:1] if not str(each).startswith("-")]
        options = arguments[len(subcommand) :]
        where = (*subcommand, "--bootstrap-server", self.servers)
        return self._kafka.command(
            MAIN_CLASSES[tool], *where, *options, jvm_options=self._jvm_options
        )


class RunningTool:
    """A tool that goes on: the verifiable clients, which say in JSON what happens to them."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="tool-output", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End it as a user would, who presses Ctrl-C. Safe to repeat."""
        self._process.terminate()
        try:
            self._process.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            self._reader.join()
            assert self._process.stdout is not None
            self._process.stdout.close()

    def wait_for(
        self, name: str, is_meant: Callable[[dict[str, Any]], bool] = lambda event: True
    ) -> dict[str, Any]:
        """The next event of that name that `is_meant`; those before it are gone."""
        deadline = time.monotonic() + _TIMEOUT_S
        seen: list[str] = []
        while (left_s := deadline - time.monotonic()) > 0:
            try:
                line = self._lines.get(timeout=left_s)
            except queue.Empty:
                break
            if line is None:
                raise KafkaFailedError(f"the tool ended before {name}\n{''.join(seen)}")
            seen.append(line)
            event = _event(line)
            if event.get("name") == name and is_meant(event):
                return event
        raise TimeoutError(f"waited {_TIMEOUT_S} s for {name}\n{''.join(seen)}")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)


def _event(line: str) -> dict[str, Any]:
    if not line.startswith("{"):
        return {}  # something that Java's logging has to say
    event: dict[str, Any] = json.loads(line)
    return event


def save_loaded_classes(kafka: KafkaTools, archive: Path) -> tuple[str, ...]:
    """JVM options with which tools start in half the time: from an archive of loaded classes.

    Tools that are given no options have them from now on too.
    """
    with cordwood.Broker() as broker:
        broker.create_topic("t").append(b"value")
        quick = (*QUICK_TOOL, f"-XX:ArchiveClassesAtExit={archive}")
        read_one = ("--topic", "t", "--from-beginning", "--max-messages", "1")
        JavaTools(kafka, broker.bootstrap_servers, jvm_options=quick).run(
            "console-consumer", *read_one
        )
    # Java ignores an archive that it cannot use.
    archived = (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:disable")
    kafka.tool_jvm = (*kafka.tool_jvm, *archived)
    return (*QUICK_TOOL, *archived)
