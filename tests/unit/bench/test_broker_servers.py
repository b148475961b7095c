"""The servers under load, as processes."""

from __future__ import annotations

from pathlib import Path

from bench.broker_servers import OS, CordwoodServer, new_topic, running


def test_a_topic_that_was_deleted_leaves_nothing_to_be_done_for_whoever_is_next(
    tmp_path: Path,
) -> None:
    server = CordwoodServer(tmp_path)

    with running(server):
        with new_topic(server, OS) as topic:
            assert list(server.data_directory.glob(f"{topic}-*"))

        assert not list(server.data_directory.glob(f"{topic}-*"))
