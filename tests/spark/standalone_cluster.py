"""A real Spark cluster on this machine: a master and workers, each a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyspark

from cordwood.spark.java_home import find_java_home

_STARTED_S = 120.0
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")


class StandaloneCluster:
    """Started with one worker or more, of one core each. Stop it."""

    def __init__(self, home: Path, *, workers: int) -> None:
        self._home = home
        self._environment = _environment(home)
        self._processes: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        try:
            self._start("master.Master", "master", "--port", "0")
            self.url = self._wait("master", _MASTER)
            for number in range(workers):
                self.add_worker(f"worker-{number}")
        except BaseException:
            self.stop()
            raise

    def add_worker(self, name: str) -> None:
        options = ("--cores", "1", "--memory", "1g", "--work-dir", str(self._home / name))
        self.workers.append(self._start("worker.Worker", name, *options, self.url))
        self._wait(name, re.compile(r"(Successfully registered with master)"))

    def kill_worker(self) -> None:
        """End a worker and the executor that runs in it, without a word."""
        worker = self.workers.pop()
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()

    def stop(self) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self, kind: str, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        script = Path(pyspark.__file__).parent / "bin" / "spark-class"
        command = [str(script), f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1"]
        with (self._home / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [*command, "--webui-port", "0", *arguments],
                env=self._environment,
                cwd=self._home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def _wait(self, name: str, pattern: re.Pattern[str]) -> str:
        log = self._home / f"{name}.log"
        deadline_s = time.monotonic() + _STARTED_S
        while time.monotonic() < deadline_s:
            found = pattern.search(log.read_text(errors="replace"))
            if found is not None:
                return found[1]
            time.sleep(0.1)
        raise TimeoutError(f"{name} did not start: {log.read_text(errors='replace')[-2000:]}")


def _environment(home: Path) -> dict[str, str]:
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_LOCAL_DIRS": str(home / "local"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        # A worker that vanishes is noticed at once by its connection; the rest is for this limit.
        "SPARK_MASTER_OPTS": "-Dspark.worker.timeout=15",
    }
    java_home = find_java_home(os.environ)
    return environment if java_home is None else {**environment, "JAVA_HOME": java_home}
