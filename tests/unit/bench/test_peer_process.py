from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bench.peer_process import PeerProcess, ServerFailedError


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_killed_server_may_be_started_again_on_its_data(tmp_path: Path) -> None:
    server = PeerProcess([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path / "s")
    server.launch()
    first = server.pid
    server.kill()
    server.launch()
    second = server.pid

    server.wait_until(lambda: _runs(second))
    server.stop()

    assert not _runs(first)
    assert not _runs(second)
    assert (tmp_path / "s").is_dir()


def test_a_server_that_ends_instead_of_serving_fails_with_what_it_printed(tmp_path: Path) -> None:
    server = PeerProcess([sys.executable, "-c", "print('no such option')"], tmp_path)
    server.launch()

    with pytest.raises(ServerFailedError, match="no such option"):
        server.wait_until(lambda: False)
    server.kill()
