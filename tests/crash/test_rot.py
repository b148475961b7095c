"""Rot: nothing wrong is ever returned, and what cannot be read is named.

`script/faults rot` flips many more bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from random import Random
from typing import Final

import pytest

from cordwood.errors import CorruptSegmentError, StorageError
from cordwood.format import batch
from cordwood.log.beside.read_only_log import ReadOnlyLog
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.storage.segment_parts.handle_cache import HandleCache
from crash.client import DATA, Client, open_store
from crash.history import read_all
from crash.rot import (
    Image,
    allowed_after_flip,
    allowed_after_harm,
    check_image,
    flipped,
    load_image,
    offsets_of,
    place_of,
    run_flip,
    sample,
    take_image,
)
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem

pytestmark = pytest.mark.faults

PARTS = 8
SMALL_LOG = "/data/small-0/00000000000000000000.log"


@functools.cache
def small_image() -> Image:
    """One segment of about 1 KiB in nine batches, of one, two and three records."""
    fs = SimulatedFileSystem(clock=ManualClock())
    client = Client(fs, Random(2))
    client.create_topic("small", config={"index.interval.bytes": 100})
    for count in (1, 2, 3) * 3:
        client.append_many("small", count=count, size_max=30)
    client.close()
    return take_image(fs)


@pytest.mark.parametrize("part", range(PARTS))
def test_every_flipped_bit_of_a_segment_is_noticed(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_RECORDS_PER_RUN", 64)  # thousands of small reads, not large ones
    image = small_image()
    fs = load_image(image)
    written = dict(read_all(open_small(fs)).records)
    file = fs.open_write(SMALL_LOG)

    for bit in range(part, 8 * len(image[SMALL_LOG]), PARTS):
        position, original = bit // 8, image[SMALL_LOG][bit // 8]
        allowed = allowed_after_flip(image, SMALL_LOG, position)
        file.write_at(position, bytes([original ^ (1 << bit % 8)]))
        found = read_all(open_small(fs))
        file.write_at(position, bytes([original]))

        missing = set(written) - {offset for offset, _ in found.records}
        reported = {o for first, following in found.damaged for o in range(first, following)}
        assert all(written[offset] == content for offset, content in found.records), bit
        assert missing == (set(allowed.offsets) if allowed.must_be_noticed else set()), bit
        assert missing <= reported, bit


def open_small(fs: SimulatedFileSystem) -> ReadOnlyLog:
    return ReadOnlyLog(
        fs,
        "/data/small-0",
        "small",
        0,
        handles=HandleCache(),
        log_start=None,
        allows_gaps=False,
        was_compacted=False,
    )


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_a_random_bit_of_any_file_costs_at_most_its_own_batch(first: int) -> None:
    for seed in range(first, first + 10):
        try:
            run_flip(seed)
        except Exception as error:
            error.add_note(f"replay: script/faults replay rot {seed}")
            raise


# --- whole files --------------------------------------------------------------------------------

HARMS: Final[dict[str, Callable[[bytes], bytes | None]]] = {
    "missing": lambda content: None,
    "emptied": lambda content: b"",
    "cut in half": lambda content: content[: len(content) // 2],
    "one byte short": lambda content: content[:-1],
    "filled with zeros": lambda content: bytes(len(content)),
    "half filled with zeros": lambda content: (
        content[: len(content) // 2] + bytes(len(content) - len(content) // 2)
    ),
    "grown by zeros": lambda content: content + bytes(600),
}


def harmed(image: Image, path: str, harm: str) -> Image:
    content = HARMS[harm](image[path])
    rest = {other: data for other, data in image.items() if other != path}
    return rest if content is None else {**rest, path: content}


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("is_clean", [True, False], ids=["closed", "killed"])
def test_a_harmed_file_costs_at_most_what_it_held(harm: str, is_clean: bool) -> None:
    told = sample(is_clean=is_clean)
    paths = chosen_files(told.image)
    if not is_clean:  # what a restart looks at and a clean one does not
        paths = [path for path in paths if path.endswith((".log", "high-watermark"))]
    for path in paths:
        try:
            image = harmed(told.image, path, harm)
            check_image(image, told, allowed_after_harm(told.image, path))
        except Exception as error:
            error.add_note(f"{path}, {harm}")
            raise


def chosen_files(image: Image) -> list[str]:
    """Of each kind of file of one log the first and one in the middle; all of the store."""
    kinds: dict[tuple[object, str], list[str]] = {}
    for path, content in sorted(image.items()):
        place = place_of(path)
        if content and place is not None and place[0] == "orders":
            kinds.setdefault((place, path.rpartition(".")[2]), []).append(path)
    chosen = {paths[at] for paths in kinds.values() for at in (0, len(paths) // 2)}
    chosen.add(logs_of_orders(image)[-1])
    chosen |= {path for path, content in image.items() if content and place_of(path) is None}
    return sorted(chosen)


def logs_of_orders(image: Image) -> list[str]:
    return sorted(p for p in image if p.endswith(".log") and place_of(p) == ("orders", 0))


@pytest.mark.parametrize("is_clean", [True, False], ids=["closed", "killed"])
def test_swapped_segments_are_not_read_as_each_other(is_clean: bool) -> None:
    told = sample(is_clean=is_clean)
    one, other = logs_of_orders(told.image)[1:3]
    image = {**told.image, one: told.image[other], other: told.image[one]}

    check_image(image, told, allowed_after_harm(told.image, one, other))


@pytest.mark.parametrize("is_clean", [True, False], ids=["closed", "killed"])
def test_a_segment_doubled_under_another_name_gives_no_record_twice(is_clean: bool) -> None:
    told = sample(is_clean=is_clean)
    one, other = logs_of_orders(told.image)[1:3]
    image = {**told.image, other: told.image[one]}

    check_image(image, told, allowed_after_harm(told.image, one, other))


# --- the report ---------------------------------------------------------------------------------


def test_damage_is_named_by_file_position_and_offsets() -> None:
    told = sample(is_clean=True)
    path = logs_of_orders(told.image)[2]
    image = flipped(told.image, path, 8 * 100)
    hit = allowed_after_flip(told.image, path, 100).offsets
    log = open_store(load_image(image)).topic("orders").partition(0)

    with pytest.raises(CorruptSegmentError) as found:
        list(log.read(min(offsets_of(told.image[path]))))

    assert found.value.name == path
    assert found.value.first_offset == min(hit)
    assert found.value.next_offset == max(hit) + 1


def test_without_any_sound_catalog_a_store_refuses_and_a_reader_reads() -> None:
    told = sample(is_clean=True)
    catalogs = [path for path in told.image if "/cordwood-topics" in path]
    image = dict(told.image)
    for path in catalogs:
        image = flipped(image, path, 8 * 70)

    with pytest.raises(StorageError, match="no copy of the topic catalog can be read"):
        open_store(load_image(image))

    fs = load_image(image)
    with ReadOnlyStore([DATA], fs=fs, clock=fs.clock, defaults=TopicConfig()) as store:
        found = dict(read_all(store.topic("orders").partition(0)).records)
    assert found == told.logs["orders", 0].records
