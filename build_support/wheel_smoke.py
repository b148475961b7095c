"""Prove that an installed Cordwood works: append, read, serve; with a Kafka client if there is one.

It runs with the Python of an environment that has nothing but the wheel, from a directory without
sources. It prints what it did and how long that took. cibuildwheel runs it too.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from importlib import metadata, util
from pathlib import Path

RECORDS = 1_000
START_TIMEOUT_S = 60


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="cordwood-smoke-") as directory:
        os.chdir(directory)
        started_s = time.monotonic()
        check_installation()
        use_library()
        first_read_s = time.monotonic() - started_s
        client = serve_and_use()
        total_s = time.monotonic() - started_s
    threads = "free-threaded, " if is_free_threaded() else ""
    print(
        f"cordwood {metadata.version('cordwood')} on Python {sys.version.split()[0]}: "
        f"{threads}kernels compiled, first record read {first_read_s:.2f} s after the start of "
        f"Python, served with {client}, {total_s:.1f} s in all"
    )
    return 0


def check_installation() -> None:
    import cordwood

    assert cordwood.__version__ == metadata.version("cordwood")
    assert Path(cordwood.__file__).is_relative_to(sysconfig.get_paths()["platlib"]), (
        f"{cordwood.__file__} is not the installed package"
    )
    for name in kernel_names():
        kernel = importlib.import_module(name)
        is_compiled = (kernel.__file__ or "").endswith(".so")
        assert is_compiled, f"{name} is imported from {kernel.__file__}"
    if is_free_threaded():
        is_gil_enabled = getattr(sys, "_is_gil_enabled", lambda: True)
        assert not is_gil_enabled(), "importing the kernels enabled the GIL"


def kernel_names() -> list[str]:
    """The modules of the installed files that are extension modules."""
    files = metadata.files("cordwood") or []
    names = [
        ".".join([*file.parent.parts, file.name.partition(".")[0]])
        for file in files
        if file.suffix == ".so"
    ]
    assert names, "the installed package has no extension modules"
    return names


def is_free_threaded() -> bool:
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def use_library() -> None:
    import cordwood

    with cordwood.open("library") as store:
        orders = store.create_topic("orders")
        orders.append(b"created", key=b"user:42", headers=[("source", b"smoke")])
        orders.append_many([(b"k%d" % n, b"v%d" % n) for n in range(RECORDS)])
        records = list(orders.partition(0).read(start=0))
    assert [record.offset for record in records] == list(range(RECORDS + 1))
    assert (records[0].key, records[0].value) == (b"user:42", b"created")
    with cordwood.open("library", read_only=True) as reader:
        assert reader.topic("orders").partition(0).end_offset == RECORDS + 1


def serve_and_use() -> str:
    """Serve a directory, write and read through the broker, stop it; the name of the client."""
    with running_broker("served") as address:
        command("topics", "create", "payments", at=address)
        command("produce", "payments", "-K", ":", at=address, text="anna:250\nben:90\n")
        shown = command("consume", "payments", "--from", "beginning", "--json", at=address)
        values = [json.loads(line)["value"] for line in shown.splitlines()]
        assert values == ["250", "90"], values
        if util.find_spec("kafka") is None:
            return "its own client"
        use_kafka_python(address)
    return f"kafka-python {metadata.version('kafka-python')}"


def use_kafka_python(address: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(bootstrap_servers=address)
    for n in range(RECORDS):
        producer.send("payments", b"%d" % n)
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer(
        "payments",
        bootstrap_servers=address,
        auto_offset_reset="earliest",
        consumer_timeout_ms=30_000,
    )
    values = [next(consumer).value for _ in range(RECORDS + 2)]
    consumer.close()
    assert values == [b"250", b"90", *(b"%d" % n for n in range(RECORDS))]


@contextlib.contextmanager
def running_broker(directory: str) -> Iterator[str]:
    """A broker in a process of its own; yields its address, then stops it cleanly."""
    broker = subprocess.Popen(
        [script(), "serve", "--dir", directory, "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert broker.stderr is not None
    try:
        found = None
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while found is None and time.monotonic() < deadline_s:
            line = broker.stderr.readline()
            assert line, f"the broker ended with status {broker.wait()}"
            found = re.search(r"serving .* on (\S+:\d+):", line)
        assert found is not None, f"the broker did not start within {START_TIMEOUT_S} s"
        yield found[1]
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(START_TIMEOUT_S) == 0
    finally:
        broker.kill()
        broker.wait()
        broker.stderr.close()


def command(*arguments: str, at: str, text: str = "") -> str:
    return subprocess.run(
        [script(), *arguments, "--at", at],
        input=text,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=START_TIMEOUT_S,
    ).stdout


def script() -> str:
    return str(Path(sysconfig.get_paths()["scripts"], "cordwood"))


if __name__ == "__main__":
    raise SystemExit(main())
