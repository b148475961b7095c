"""Requests to stores that look for them often."""

import pytest

from fakes.prompt_owner import look_often


@pytest.fixture(autouse=True)
def _prompt_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    look_often(monkeypatch)
