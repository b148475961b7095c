"""The systemd unit is valid and restricted, and its settings are valid."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.outside_tool import DEPLOY, judge

UNIT = DEPLOY / "systemd" / "cordwood.service"
EXPOSURE_MAX = 15  # tenths; systemd calls less than 20 "OK", an ordinary service has 96


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that exists here."""
    text = UNIT.read_text(encoding="utf-8")
    copy = tmp_path / UNIT.name
    copy.write_text(text.replace("/opt/cordwood/bin/cordwood", sys.executable))
    return copy


def test_systemd_accepts_the_unit(unit: Path) -> None:
    assert judge("systemd-analyze", "verify", "--man=no", unit) == ""


def test_the_unit_exposes_little(unit: Path) -> None:
    said = judge(
        *("systemd-analyze", "security", "--offline=true", "--no-pager"),
        *(f"--threshold={EXPOSURE_MAX}", unit),
    )

    assert re.search(r"Overall exposure level for cordwood.service: [\d.]+ OK", said)


def test_systemd_waits_longer_than_a_stopping_broker() -> None:
    from cordwood.broker.config.broker_config import BrokerConfig

    found = re.search(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)

    assert found is not None
    assert int(found[1]) * 1000 >= 2 * BrokerConfig().shutdown_timeout_ms


def test_the_settings_of_the_service_are_valid(tmp_path: Path) -> None:
    finished = subprocess.run(
        [
            *(sys.executable, "-m", "cordwood", "config", "show", "--changed"),
            *("--config", str(DEPLOY / "systemd" / "cordwood.toml")),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert finished.returncode == 0, finished.stderr
    assert "/var/lib/cordwood" in finished.stdout
