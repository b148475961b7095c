"""The container's file is accepted by hadolint, and its settings start a broker.

No test builds the image: that needs a container engine and an image registry.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from deploy.outside_tool import DEPLOY, judge

CONTAINERFILE = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text(encoding="utf-8"))
INSECURE = {"CORDWOOD_INSECURE_LISTENERS_ALLOWED": "true"}


def instructions(name: str) -> list[str]:
    """The arguments of each instruction of that name, in one line."""
    joined = re.sub(r"\\\n\s*", " ", CONTAINERFILE)
    return re.findall(rf"^{name} (.*)$", joined, re.MULTILINE)


def image_settings(directory: Path) -> dict[str, str]:
    """The variables of the image, with a directory and ports of this test."""
    words = shlex.split(instructions("ENV")[-1])
    given = dict(word.split("=", 1) for word in words if word.startswith("CORDWOOD_"))
    return given | {
        "CORDWOOD_LOG_DIRS": str(directory),
        "CORDWOOD_PORT": "0",
        "CORDWOOD_METRICS_PORT": "0",
    }


def serve(settings: Mapping[str, str], directory: Path) -> subprocess.Popen[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CORDWOOD_")}
    return subprocess.Popen(
        [sys.executable, "-m", "cordwood", "serve"],
        cwd=directory,
        env=clean | dict(settings),
        stderr=subprocess.PIPE,
        text=True,
    )


@contextlib.contextmanager
def started(settings: Mapping[str, str], directory: Path) -> Iterator[dict[str, object]]:
    """A broker with these settings; yields the facts of its line about the start."""
    with serve(settings, directory) as broker:
        assert broker.stderr is not None
        try:
            events = (json.loads(line) for line in broker.stderr)
            yield next(event for event in events if event.get("event") == "started")
        finally:
            broker.terminate()
            broker.stderr.read()
    assert broker.returncode == 0


def test_hadolint_accepts_the_file() -> None:
    judge("hadolint", DEPLOY / "Containerfile")


def test_the_image_does_not_run_as_root_and_keeps_its_data_in_a_volume() -> None:
    settings = dict(word.split("=", 1) for word in shlex.split(instructions("ENV")[-1]))

    assert instructions("USER") == ["10001:10001"]
    assert instructions("VOLUME") == [settings["CORDWOOD_LOG_DIRS"]]


def test_the_image_refuses_to_let_everybody_in_unless_that_is_allowed(tmp_path: Path) -> None:
    with serve(image_settings(tmp_path), tmp_path) as broker:
        _, said = broker.communicate(timeout=60)

    assert broker.returncode == 2
    assert "insecure.listeners.allowed" in said


def test_the_health_check_of_the_image_answers_for_its_settings(tmp_path: Path) -> None:
    (check,) = instructions("HEALTHCHECK")
    command = json.loads(check[check.index("[") :])

    with started(image_settings(tmp_path) | INSECURE, tmp_path) as facts:
        port = str(facts["metrics_address"]).rpartition(":")[2]
        code = command[2].replace(":9404/", f":{port}/")
        finished = subprocess.run([sys.executable, *command[1:2], code], timeout=60, check=False)

    assert finished.returncode == 0


def test_the_settings_of_the_compose_file_start_a_broker(tmp_path: Path) -> None:
    given = COMPOSE["services"]["broker"]["environment"]
    any_port = re.sub(r":\d+(?=,|$)", ":0", given["CORDWOOD_LISTENERS"])
    settings = image_settings(tmp_path) | given | {"CORDWOOD_LISTENERS": any_port}
    del settings["CORDWOOD_HOST"], settings["CORDWOOD_PORT"]

    with started(settings, tmp_path) as facts:
        assert facts["topics"] == 0


def test_the_compose_file_publishes_on_the_loopback_address_only() -> None:
    ports = [port for service in COMPOSE["services"].values() for port in service["ports"]]

    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


@pytest.mark.parametrize("service", COMPOSE["services"])
def test_the_files_that_the_compose_file_mounts_exist(service: str) -> None:
    mounts = [mount.split(":")[0] for mount in COMPOSE["services"][service]["volumes"]]
    files = [mount for mount in mounts if mount.startswith(".")]

    assert [file for file in files if not (DEPLOY / "compose" / file).is_file()] == []
