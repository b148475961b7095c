"""Apache Kafka as a peer: its tools, and a broker of one node on loopback.

``script/interop`` fetches the jars. Everything here starts Java processes and ends them again; a
`KafkaBroker` is a context manager, so that no broker outlives the block that needed it.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from fakes.reserved_port import reserved_port

_POM = Path(__file__).with_name("kafka") / "pom.xml"
_OLDEST_JAVA = 17

# A tool runs for a second or two: start it quickly rather than have it reach its full speed.
_TOOL_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# What Kafka's own start script gives its broker.
_BROKER_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-Djava.awt.headless=true",
)
# For tests, whose broker lives for seconds: no time is spent on making it fast.
QUICK_START = ("-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx512m")

_LOGGING = """\
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = {path}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = {level}
rootLogger.appenderRef.file.ref = file
"""


class KafkaUnavailableError(Exception):
    """Kafka cannot run here; the message says what is missing."""


class KafkaFailedError(Exception):
    """A tool or the broker ended badly; the message holds what it printed."""


def kafka_version() -> str:
    """The version script/interop fetches."""
    match = re.search(r"<kafka\.version>([^<]+)<", _POM.read_text())
    assert match is not None, _POM
    return match[1]


class KafkaTools:
    """Java and Kafka's jars, found and usable.

    tool_jvm  the JVM options of tools, if none are given
    """

    def __init__(self, *, java: str, libraries: Path) -> None:
        self.java = java
        self.libraries = libraries
        self.tool_jvm: tuple[str, ...] = _TOOL_JVM

    @classmethod
    def find(cls) -> Self:
        """Java from JAVA_HOME or the PATH; jars from CORDWOOD_KAFKA_LIBS or the user's cache."""
        cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        standard = Path(cache, "cordwood", f"kafka-{kafka_version()}", "libs")
        libraries = Path(os.environ.get("CORDWOOD_KAFKA_LIBS") or standard).expanduser()
        if not any(libraries.glob("kafka-clients-*.jar")):
            raise KafkaUnavailableError(f"Kafka's jars are not in {libraries}: run script/interop")
        return cls(java=_find_java(), libraries=libraries)

    def command(
        self, main_class: str, *arguments: str | Path, jvm_options: Sequence[str] | None = None
    ) -> list[str]:
        """The command line that runs `main_class`, for callers that own the process."""
        options = self.tool_jvm if jvm_options is None else jvm_options
        class_path = ("-cp", f"{self.libraries}/*")
        return [self.java, *options, *class_path, main_class, *map(str, arguments)]

    def run(
        self,
        main_class: str,
        *arguments: str | Path,
        stdin: str = "",
        timeout_s: float = 120,
        jvm_options: Sequence[str] | None = None,
    ) -> str:
        """Run one of Kafka's tools to its end; what it printed, or KafkaFailedError."""
        finished = subprocess.run(
            self.command(main_class, *arguments, jvm_options=jvm_options),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if finished.returncode != 0:
            raise KafkaFailedError(
                f"{main_class} ended with {finished.returncode}\n{finished.stdout}{finished.stderr}"
            )
        return finished.stdout

    def dump_segments(self, *files: Path, options: Sequence[str] = ("--deep-iteration",)) -> str:
        """DumpLogSegments over .log, .index, .timeindex, .txnindex or .snapshot files."""
        names = ",".join(map(str, files))
        return self.run("org.apache.kafka.tools.DumpLogSegments", *options, "--files", names)

    def topics(self, servers: str, *arguments: str) -> str:
        tool = "org.apache.kafka.tools.TopicCommand"
        return self.run(tool, "--bootstrap-server", servers, *arguments)

    def configs(self, servers: str, *arguments: str) -> str:
        return self.run("kafka.admin.ConfigCommand", "--bootstrap-server", servers, *arguments)

    def console_produce(self, servers: str, topic: str, lines: str, *arguments: str) -> str:
        tool = "org.apache.kafka.tools.ConsoleProducer"
        where = ("--bootstrap-server", servers, "--topic", topic)
        return self.run(tool, *where, *arguments, stdin=lines)

    def console_consume(self, servers: str, topic: str, count: int, *arguments: str) -> str:
        """The first `count` records of a topic, one a line."""
        tool = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        where = ("--bootstrap-server", servers, "--topic", topic)
        limits = ("--from-beginning", "--max-messages", str(count), "--timeout-ms", "30000")
        return self.run(tool, *where, *limits, *arguments)

    def producer_performance(self, *arguments: str, jvm_options: Sequence[str] = ()) -> str:
        tool = "org.apache.kafka.tools.ProducerPerformance"
        return self.run(tool, *arguments, timeout_s=1800, jvm_options=jvm_options)

    def consumer_performance(self, *arguments: str, jvm_options: Sequence[str] = ()) -> str:
        tool = "org.apache.kafka.tools.ConsumerPerformance"
        return self.run(tool, *arguments, timeout_s=1800, jvm_options=jvm_options)


class KafkaBroker:
    """A broker and controller in one Java process, listening on loopback only.

    Its data stays in `log_dirs` after it stopped, and a second broker over the same directories
    carries on with them. `work_dir` takes its configuration and what it prints.
    """

    def __init__(
        self,
        tools: KafkaTools,
        *,
        log_dirs: Sequence[Path],
        work_dir: Path,
        properties: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] = ("-Xms256m", "-Xmx512m"),
        command_prefix: Sequence[str] = (),
        log_level: str = "INFO",
        listeners: Mapping[str, str] | None = None,
        format_arguments: Sequence[str] = (),
    ) -> None:
        """`listeners` are further ones on localhost: names, each with its security protocol."""
        assert log_dirs, "a broker needs a log directory"
        self._tools = tools
        self._log_dirs = tuple(log_dirs)
        self._work_dir = work_dir
        self._properties = dict(properties or {})
        self._jvm_options = tuple(jvm_options)
        self._command_prefix = tuple(command_prefix)  # as ("taskset", "-c", "0")
        self._log_level = log_level
        self._process: subprocess.Popen[bytes] | None = None
        self._protocols = dict(listeners or {})
        self._format_arguments = tuple(format_arguments)
        self.port, self._controller_port, *further = kept_ports(2 + len(self._protocols))
        self.ports = dict(zip(self._protocols, further, strict=True))

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """More keys for a broker that was not started, such as those that depend on its port."""
        assert self._process is None, "already started"
        self._properties |= properties

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def server_log(self) -> Path:
        return self._work_dir / "server.log"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, *, timeout_s: float = 60) -> None:
        """Format the directories where they are new, start, and return once clients are served."""
        self.launch()
        try:
            self._wait_until_ready(timeout_s)
        except BaseException:
            self.kill()
            raise

    def launch(self) -> None:
        """Format the directories where they are new, start, and return at once."""
        assert self._process is None, "already started"
        self._work_dir.mkdir(parents=True, exist_ok=True)
        for directory in self._log_dirs:
            directory.mkdir(parents=True, exist_ok=True)
        configuration = self._write_configuration()
        if not (self._log_dirs[0] / "meta.properties").exists():
            self._format(configuration)
        self.server_log.unlink(missing_ok=True)
        logging = self._write_logging()
        jvm_options = (*_BROKER_JVM, *self._jvm_options, f"-Dlog4j2.configurationFile={logging}")
        command = self._tools.command("kafka.Kafka", configuration, jvm_options=jvm_options)
        with open(self._work_dir / "console.log", "wb") as console:
            self._process = subprocess.Popen(
                [*self._command_prefix, *command],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
            )

    def stop(self, *, timeout_s: float = 60) -> None:
        """Shut down as an operator would: logs flushed, the clean-shutdown marker written."""
        self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """End it as the out-of-memory killer would: nothing is flushed or closed."""
        self._end(signal.SIGKILL, 30)

    def _end(self, how: signal.Signals, timeout_s: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise KafkaFailedError(
                f"the broker did not stop in {timeout_s} s\n{self._tail()}"
            ) from None

    def _write_configuration(self) -> Path:
        listeners = (
            f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._controller_port}"
        ) + "".join(f",{name}://localhost:{port}" for name, port in self.ports.items())
        protocols = {"CONTROLLER": "PLAINTEXT", "PLAINTEXT": "PLAINTEXT"} | self._protocols
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": listeners,
            "advertised.listeners": listeners,
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self._controller_port}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in protocols.items()
            ),
            "log.dirs": ",".join(map(str, self._log_dirs)),
            # One node: left at three, the internal topics are never created.
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            # After a kill the controller takes the broker for alive this long and lets no other
            # register; by default nine seconds.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
        } | self._properties
        path = self._work_dir / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return path

    def _write_logging(self) -> Path:
        path = self._work_dir / "log4j2.properties"
        path.write_text(_LOGGING.format(path=self.server_log, level=self._log_level))
        return path

    def _format(self, configuration: Path) -> None:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._tools.run(
            "kafka.tools.StorageTool",
            "format",
            "--standalone",
            f"--cluster-id={cluster}",
            f"--config={configuration}",
            *self._format_arguments,
        )

    def _wait_until_ready(self, timeout_s: float) -> None:
        assert self._process is not None
        deadline = time.monotonic() + timeout_s
        while not self._is_ready():
            if self._process.poll() is not None:
                raise KafkaFailedError(f"the broker ended while starting\n{self._tail()}")
            if time.monotonic() > deadline:
                raise KafkaFailedError(f"the broker was not ready in {timeout_s} s\n{self._tail()}")
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        # It logs that it started once it is unfenced and its listener serves requests; then the
        # address must answer too, should the log be set to a level that hides the line.
        if self._log_level == "INFO" and "Kafka Server started" not in self._read_log():
            return False
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _read_log(self) -> str:
        return self.server_log.read_text(errors="replace") if self.server_log.exists() else ""

    def _tail(self) -> str:
        console = (self._work_dir / "console.log").read_text(errors="replace")
        return "\n".join([*self._read_log().splitlines()[-30:], *console.splitlines()[-30:]])


StartBroker = Callable[..., KafkaBroker]
"""The fixture `start_broker`: an optional log directory, then Kafka's keys with underscores."""


def _find_java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK):
        raise KafkaUnavailableError("Java not found: set JAVA_HOME or add java to the PATH")
    printed = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "(?:1\.)?(\d+)', printed)
    if match is None or int(match[1]) < _OLDEST_JAVA:
        found = match[1] if match else "unknown"
        raise KafkaUnavailableError(f"Java {_OLDEST_JAVA} or newer is needed, {java} is {found}")
    return java


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


_kept: Final = ExitStack()


def kept_ports(count: int) -> list[int]:
    """Ports for servers that this process starts, ends and starts again: nobody else gets them.

    Until the process ends, see `reserved_port`. The servers set SO_REUSEADDR, as Java's do.
    """
    return [_kept.enter_context(reserved_port()) for _ in range(count)]


def free_port() -> int:
    """A port that nobody listens on now."""
    (port,) = free_ports(1)
    return port
