"""Three brokers of ours archive a topic; its leader is killed while it does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cordwood.archive.manifests.manifest import Manifest, parse_manifest
from interop.cluster_members import CordwoodMember
from interop.cluster_records import await_in_sync, bootstrap, consume, create, leader_of, produce
from interop.kafka_peer import KafkaTools
from interop.kraft_controllers import KraftControllers
from wire.waiting import await_true

TOPIC = "events"
_PROGRAM = Path(__file__).with_name("quick_archive_member.py")


class ArchivingMember(CordwoodMember):
    program = (str(_PROGRAM),)


def manifest_in(archive: Path) -> Manifest | None:
    found = list(archive.glob(f"{TOPIC}/*/0/manifest.json"))
    return parse_manifest(found[0].read_bytes()) if found else None


def archived_end(archive: Path) -> int:
    manifest = manifest_in(archive)
    return 0 if manifest is None else manifest.end


def local_bases(member: CordwoodMember) -> list[int]:
    return sorted(int(path.stem) for path in (member.data / f"{TOPIC}-0").glob("*.log"))


def values(first: int, count: int) -> list[bytes]:
    return [b"%010d" % number + bytes(20_000) for number in range(first, first + count)]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def members(kafka: KafkaTools, tmp_path: Path, archive: Path) -> Iterator[list[ArchivingMember]]:
    properties = {"log.archive.url": archive.as_uri(), "log.retention.check.interval.ms": "500"}
    with ExitStack() as stack:
        controllers = stack.enter_context(KraftControllers(kafka, tmp_path / "controllers"))
        yield [
            stack.enter_context(
                ArchivingMember(
                    controllers, tmp_path / str(node_id), node_id=node_id, properties=properties
                )
            )
            for node_id in (1, 2, 3)
        ]


def test_archiving_goes_on_when_the_leader_is_killed_on_its_way(
    members: list[ArchivingMember], archive: Path
) -> None:
    address = bootstrap(*members)
    create(
        address,
        TOPIC,
        replicas=3,
        min_insync_replicas="2",
        segment_bytes=str(1 << 20),
        retention_ms="-1",
        local_retention_bytes="1",
        file_delete_delay_ms="0",
    )
    await_in_sync(address, TOPIC, 3)
    sent = produce(address, TOPIC, values(0, 300), **{"linger.ms": 0})
    await_true(lambda: archived_end(archive) > 0)
    leader = next(m for m in members if m.node_id == leader_of(address, TOPIC))

    leader.kill()
    sent += produce(address, TOPIC, values(300, 300), **{"linger.ms": 0})

    assert len(sent) == 600
    others = [member for member in members if member is not leader]
    await_true(lambda: archived_end(archive) > 450)
    after = manifest_in(archive)
    assert after is not None
    assert after.leader_epoch > 0
    await_true(lambda: all(local_bases(member)[0] > 0 for member in others))
    assert consume(bootstrap(*others), TOPIC, 600, group="all") == values(0, 600)

    leader.launch()
    leader.wait_until("is running")
    await_in_sync(address, TOPIC, 3)
    await_true(lambda: local_bases(leader)[0] > 0)
    assert consume(address, TOPIC, 600, group="again") == values(0, 600)
