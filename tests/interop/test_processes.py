"""Kafka's own tools, and kcat, against several processes of one node."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from interop.java_tools import JavaTools
from interop.kafka_peer import KafkaTools
from wire.served_process import ServedProcess

NUMBERS = [str(number) for number in range(200)]


def test_kafkas_tools_and_kcat_use_all_partitions_through_any_process(
    kafka: KafkaTools, quick_jvm: tuple[str, ...], tmp_path: Path
) -> None:
    served = ServedProcess(
        tmp_path / "data",
        "group.initial.rebalance.delay.ms=0",
        arguments=("--processes", "2"),
        keeps_port=False,
    )
    with served:
        first, second = (
            JavaTools(kafka, address, jvm_options=quick_jvm)
            for address in served.started["addresses"]
        )

        first.run("topics", "--create", "--topic", "t", "--partitions", "4")
        second.run(
            "console-producer", "--topic", "t", "--reader-property", "parse.key=true",
            stdin="".join(f"{number}\t{number}\n" for number in NUMBERS),
        )  # fmt: skip
        read = first.run(
            "console-consumer", "--topic", "t", "--from-beginning", "--group", "g",
            "--max-messages", str(len(NUMBERS)),
        )  # fmt: skip
        described = second.run("topics", "--describe", "--topic", "t")
        lags = second.run("consumer-groups", "--describe", "--group", "g")
        ends = first.run("get-offsets", "--topic", "t")

    assert sorted(read.output.splitlines()) == sorted(NUMBERS)
    assert {"Leader: 1", "Leader: 2"} <= set(described.output.replace("\t", "\n").splitlines())
    assert sum(int(line.split(":")[2]) for line in ends.output.split()) == len(NUMBERS)
    assert [line.split()[5] for line in lags.output.splitlines() if " t " in line] == ["0"] * 4


def test_kcat_produces_and_consumes_through_the_second_process(tmp_path: Path) -> None:
    kcat = shutil.which("kcat")
    if kcat is None:
        pytest.skip("kcat is not installed")
    with ServedProcess(
        tmp_path / "data", arguments=("--processes", "2"), keeps_port=False
    ) as served:
        address = served.started["addresses"][1]
        common = [kcat, "-b", address, "-t", "t", "-q"]
        subprocess.run([*common, "-P"], input="\n".join(NUMBERS).encode(), check=True, timeout=60)

        consumed = subprocess.run(
            [*common, "-C", "-o", "beginning", "-e"], capture_output=True, check=True, timeout=60
        )

    assert sorted(consumed.stdout.decode().split()) == sorted(NUMBERS)
