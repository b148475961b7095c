"""What a process loads before it has done anything: the time to start is time of its user."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

# Packages that take long to import, and are needed by few.
HEAVY = {
    "Cython",
    "_hashlib",  # OpenSSL
    "asyncio",
    "concurrent.futures.process",
    "cryptography",
    "dataclasses",
    "email",
    "http",
    "importlib.metadata",
    "inspect",
    "jwt",
    "lz4",
    "multiprocessing",
    "numpy",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pyspark",
    "rich",
    "sqlite3",
    "ssl",
    "typer",
    "unittest",
    "xml",
    "zoneinfo",
    "zstandard",
}

# Loaded by Typer and by `tempfile`, too.
NEEDED_BY_FEW = {"bz2", "difflib", "shutil"}


def loaded_by(program: str, directory: Path) -> set[str]:
    """The modules that a fresh process has loaded after the program. `site` may load others."""
    report = (
        "import json, sys; before = set(sys.modules)\n"
        f"{program}\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", report], cwd=directory, capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout))


def heavy(modules: set[str]) -> set[str]:
    return {name for name in HEAVY if name in modules}


def test_the_package_alone_loads_none_of_its_rooms(tmp_path: Path) -> None:
    modules = loaded_by("import cordwood", tmp_path)

    assert {name for name in modules if name.startswith("cordwood")} == {"cordwood"}
    assert heavy(modules) == set()


def test_an_open_store_has_loaded_the_log_and_nothing_else(tmp_path: Path) -> None:
    program = """
import cordwood
with cordwood.open("data") as store:
    store.create_topic("orders").append(b"paid", key=b"k")
"""

    modules = loaded_by(program, tmp_path)

    assert heavy(modules) == set()
    assert modules.isdisjoint(NEEDED_BY_FEW)
    rooms = {name.split(".")[1] for name in modules if name.startswith("cordwood.")}
    assert rooms.isdisjoint({"broker", "cli", "remote", "settings", "spark", "testing"})
    assert {name for name in modules if name.startswith("cordwood.archive.")} == {
        "cordwood.archive.archives_on_demand"
    }


def test_a_topic_with_an_archive_loads_it(tmp_path: Path) -> None:
    program = f"""
import cordwood
with cordwood.open("data") as store:
    store.create_topic("orders", config={{"archive.url": "file://{tmp_path}/archive"}})
with cordwood.open("data") as store:
    assert len(store.archive_status()) == 1
"""

    assert "cordwood.archive.store_archives" in loaded_by(program, tmp_path)


def test_a_broker_that_answers_has_loaded_nothing_heavy(tmp_path: Path) -> None:
    program = """
import socket
import cordwood
with cordwood.Broker("data", topics=["orders"]) as broker:
    with socket.create_connection((broker.host, broker.port)) as client:
        client.sendall(bytes.fromhex("0000000a001200000000 0001ffff"))
        assert client.recv(4)
"""

    modules = loaded_by(program, tmp_path)

    assert heavy(modules) == set()
    assert not {name for name in modules if name.startswith(("cordwood.cli", "cordwood.spark"))}


def test_a_served_directory_has_loaded_no_command_line_library(tmp_path: Path) -> None:
    program = """
import os, signal, socket, threading
from cordwood.cli.app import main
held = socket.socket()  # bound, so that nobody else gets the port
held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
held.bind(("127.0.0.1", 0))
port = held.getsockname()[1]
def ask():
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(bytes.fromhex("0000000a001200000000 0001ffff"))
                if client.recv(4):
                    break
        except OSError:
            pass
    answered.extend(sys.modules)
    os.kill(os.getpid(), signal.SIGTERM)  # the main thread waits for it
answered = []
threading.Thread(target=ask, daemon=True).start()
try:
    main(["serve", "--dir", "data", "--port", str(port), "--log-level=error"])
except SystemExit as ended:
    assert not ended.code and answered
"""

    modules = loaded_by(program, tmp_path)

    assert heavy(modules) == set()
    assert modules.isdisjoint(NEEDED_BY_FEW)
    assert "cordwood.cli.command_list" not in modules


@pytest.mark.parametrize("command", ["--version", "topics list --at data"])
def test_a_command_loads_neither_the_broker_nor_tables_for_terminals(
    tmp_path: Path, command: str
) -> None:
    program = f"""
import os, cordwood
cordwood.open("data").close()
from cordwood.cli.app import main
sys.stdout = open(os.devnull, "w")
try:
    main({command.split()!r})
except SystemExit as ended:
    assert not ended.code
sys.stdout = sys.__stdout__
"""

    modules = loaded_by(program, tmp_path)

    assert heavy(modules) <= {"typer", "inspect", "dataclasses"}
    assert not {name for name in modules if name.startswith("cordwood.broker")}
