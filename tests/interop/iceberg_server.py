"""Iceberg's own REST catalog as a process on loopback."""

from __future__ import annotations

import re
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from interop.java_programs import JavaProgram, RunningProgram, find_libraries
from interop.kafka_peer import KafkaFailedError, KafkaTools, KafkaUnavailableError

_SOURCE = Path(__file__).with_name("iceberg") / "CatalogServer.java"
_START_TIMEOUT_S = 60.0


def find_iceberg() -> Path:
    """The directory of the jars. Raises KafkaUnavailableError without them."""
    return find_libraries("iceberg", folder="iceberg", variable="CORDWOOD_ICEBERG_LIBS")


class IcebergServer:
    """A catalog with its database in `home`. It keeps its port when it starts again.

    Not safe for threads; `with` starts it and kills it.
    """

    def __init__(self, java: KafkaTools, home: Path) -> None:
        libraries = home / "libraries"
        libraries.mkdir(parents=True)
        for jar in (*find_iceberg().glob("*.jar"), *_hadoop()):
            (libraries / jar.name).symlink_to(jar)
        self._program = JavaProgram.compile(java, _SOURCE, [libraries], home / "server")
        self._home = home
        self.warehouse = home / "warehouse"
        self.port = 0
        self._running: RunningProgram | None = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Return when it serves."""
        assert self._running is None, "it runs already"
        running = self._program.start(str(self.port), self._home, self.warehouse)
        self._running = running
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while (told := re.search(r"serving on port (\d+)", running.printed())) is None:
            if not running.is_running or time.monotonic() > deadline_s:
                raise KafkaFailedError(f"the catalog does not serve\n{running.printed()[-4000:]}")
            time.sleep(0.02)
        self.port = int(told[1])

    def kill(self) -> None:
        """SIGKILL. Safe to repeat."""
        if self._running is not None:
            self._running.kill()
            self._running = None

    def printed(self) -> str:
        return "" if self._running is None else self._running.printed()


def _hadoop() -> list[Path]:
    """Hadoop's classes, which Iceberg needs for files, from pyspark."""
    import pyspark

    assert pyspark.__file__ is not None
    found = sorted((Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar"))
    if not found:
        raise KafkaUnavailableError("pyspark has no Hadoop jars")
    return found
