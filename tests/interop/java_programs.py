"""Programs in Java that stand for a user's own: compiled once, started, killed, started again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from interop.kafka_peer import KafkaFailedError, KafkaTools, KafkaUnavailableError

_HERE = Path(__file__).parent
# A program runs for seconds: start it quickly rather than have it reach its full speed.
QUICK_PROGRAM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_STOP_TIMEOUT_S = 60.0
_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n%throwable
rootLogger.level = WARN
rootLogger.appenderRef.console.ref = console
"""


def find_libraries(what: str, *, folder: str, variable: str) -> Path:
    """The jars that `script/fetch-kafka WHAT` brings: from a variable or the user's cache."""
    match = re.search(rf"<{what}\.version>([^<]+)<", (_HERE / what / "pom.xml").read_text())
    assert match is not None, what
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    standard = Path(cache, "cordwood", f"{folder}-{match[1]}", "libs")
    libraries = Path(os.environ.get(variable) or standard).expanduser()
    if not any(libraries.glob("*.jar")):
        raise KafkaUnavailableError(
            f"the jars of {what} are not in {libraries}: run script/interop"
        )
    return libraries


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaProgram:
    """A main class with its class path; what it prints goes to files in `work_dir`."""

    java: str
    main_class: str
    class_path: tuple[str, ...]
    work_dir: Path
    jvm_options: tuple[str, ...] = QUICK_PROGRAM

    @classmethod
    def compile(
        cls,
        kafka: KafkaTools,
        source: Path,
        libraries: Sequence[Path],
        work_dir: Path,
        *,
        jvm_options: Sequence[str] = (),
    ) -> Self:
        """Compile one source file. Raises KafkaUnavailableError without a compiler."""
        compiler = Path(kafka.java).resolve().with_name("javac")
        if not compiler.exists():
            raise KafkaUnavailableError(f"no Java compiler beside {kafka.java}: install a JDK")
        classes = work_dir / "classes"
        jars = tuple(f"{folder}/*" for folder in libraries)
        options = ("-J-XX:TieredStopAtLevel=1", "-nowarn", "-proc:none", "-d", classes)
        compiled = subprocess.run(
            [compiler, *options, "-cp", os.pathsep.join(jars), source],
            capture_output=True,
            text=True,
            check=False,
        )
        if compiled.returncode != 0:
            raise KafkaFailedError(f"{source.name} does not compile\n{compiled.stderr}")
        return cls(
            java=kafka.java,
            main_class=source.stem,
            class_path=(str(classes), *jars),
            work_dir=work_dir,
            jvm_options=(*QUICK_PROGRAM, *jvm_options),
        )

    def start(self, *arguments: str | Path) -> RunningProgram:
        """Start it; `with` kills it."""
        self.work_dir.mkdir(parents=True, exist_ok=True)
        logging = self.work_dir / "log4j2.properties"
        logging.write_text(_LOGGING)
        command = [
            *(self.java, *self.jvm_options, f"-Dlog4j2.configurationFile={logging}"),
            *("-cp", os.pathsep.join(self.class_path), self.main_class, *map(str, arguments)),
        ]
        return RunningProgram(command, self.work_dir)


class RunningProgram:
    """A process in Java. It is killed at the end of `with`, if it still runs."""

    def __init__(self, command: Sequence[str], work_dir: Path) -> None:
        number = len(list(work_dir.glob("printed-*.log")))
        self._printed = work_dir / f"printed-{number}.log"
        with self._printed.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=work_dir
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def printed(self) -> str:
        return self._printed.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL: it closes nothing and tells nobody. Safe to repeat."""
        self._process.kill()
        self._process.wait(_STOP_TIMEOUT_S)

    def stop(self) -> None:
        """End it as an operator would."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(_STOP_TIMEOUT_S)

    def wait(self, timeout_s: float) -> None:
        """Until it ends by itself, which must be a good end."""
        if self._process.wait(timeout_s) != 0:
            raise KafkaFailedError(f"it ended with {self._process.returncode}\n{self.printed()}")
