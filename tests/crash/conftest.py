"""These tests are about the disk: their files are on one, even if others are in memory."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    (ROOT / "build").mkdir(exist_ok=True)
    with TemporaryDirectory(prefix="test-", dir=ROOT / "build") as directory:
        yield Path(directory)
