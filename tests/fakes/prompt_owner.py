"""Owners of directories that look for requests often: hundreds of tests wait for one."""

import pytest

from cordwood.log.store import housekeeping, upkeep_tasks

_LOOK_S = 0.02


def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores that are opened from now on see a request at once, not after a quarter of a second."""
    monkeypatch.setattr(upkeep_tasks, "INBOX_S", _LOOK_S)
    monkeypatch.setattr(housekeeping, "TICK_S", _LOOK_S)
