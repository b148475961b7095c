"""A broker that was away finds topics that its cluster does not have: it keeps their files."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from interop.cluster_members import CordwoodMember
from interop.cluster_records import await_in_sync, produce
from interop.kafka_peer import KafkaTools
from interop.kraft_controllers import KraftControllers


def test_a_topic_that_was_deleted_meanwhile_is_kept_as_stray(
    kafka: KafkaTools, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        controllers = stack.enter_context(KraftControllers(kafka, tmp_path / "controllers"))
        one, two = (
            stack.enter_context(CordwoodMember(controllers, tmp_path / str(n), node_id=n))
            for n in (1, 2)
        )
        admin = AdminClient({"bootstrap.servers": two.address})
        topic = NewTopic("precious", num_partitions=1, replica_assignment=[[1]])
        admin.create_topics([topic])["precious"].result(30)
        await_in_sync(two.address, "precious", 1)
        assert produce(one.address, "precious", [b"acknowledged"]) == [b"acknowledged"]
        one.kill()
        admin.delete_topics(["precious"])["precious"].result(30)

        one.launch()
        one.wait_until("the cluster does not have topic precious")
        one.wait_until("is running")

        [kept] = one.data.glob("precious-0.*-stray")
        assert b"acknowledged" in (kept / f"{0:020d}.log").read_bytes()
        assert not (one.data / "precious-0").exists()
