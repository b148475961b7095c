"""What was published and what must be cut: the file that makes a publication all or nothing.

A publication appends to several logs. The ledger says, before the first byte of it is written,
where each of these logs ended; a store that opens and finds that cuts them back to there. The
write that takes the cuts off the list and puts the publication's number in their place is the
moment at which all of it counts.

`cordwood-publications`, in every data directory:

    cordwood-publications 1 <generation> <crc32c of the rest, 8 hex digits>
    {"applications": {"<id>": {"number": 41, "at_ms": ..., "is_transient": false}},
     "cuts":   [["orders", "<topic id>", 0, 120]],         topic, id, partition, offset
     "latest": [["orders", "<topic id>", 0, 100, 120]]}    of the last one: begin and end

The newest sound copy counts. Nothing else tells which batches were published, so when there are
copies and none can be read the store does not open.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

import crc32c

from cordwood.errors import FormatError, LogError, StorageError
from cordwood.format.partition_metadata import decode_topic_id, encode_topic_id
from cordwood.quantities import INT64_MAX, MIB, Offset, TimestampMs
from cordwood.storage.files import FileSystem, read_whole, replace_file

LEDGER_FILE: Final = "cordwood-publications"
_VERSION: Final = "1"
_LEDGER_BYTES_MAX: Final = 64 * MIB

# Each costs about a hundred bytes in a file that every publication writes twice.
APPLICATIONS_MAX: Final = 10_000
APPLICATION_CHARS_MAX: Final = 1000
# Requests that nobody answered are swept sooner than that, so none can come a second time.
_TRANSIENT_MS: Final = 7 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One log, by its topic's id too: a topic that was made anew is another."""

    topic: str
    topic_id: UUID
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LastPublished:
    """The highest number of an application. Transient ones are forgotten after a week."""

    number: int
    at_ms: TimestampMs
    is_transient: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Publications:
    """What the file says. Replaced as a whole; `generation` grows with every change.

    cuts    what lies in a log from this offset on belongs to no publication that counts
    latest  the offsets [begin, end) that the last publication has in each log
    """

    generation: int = 0
    applications: Mapping[str, LastPublished]
    cuts: Mapping[Place, Offset]
    latest: Mapping[Place, tuple[Offset, Offset]]

    def last_of(self, application: str) -> int | None:
        """The highest number it has published; None when it never did."""
        known = self.applications.get(application)
        return None if known is None else known.number

    def with_cuts(self, cuts: Mapping[Place, Offset]) -> "Publications":
        return replace(self, generation=self.generation + 1, cuts={**self.cuts, **cuts})

    def without_cuts(self, places: Sequence[Place]) -> "Publications":
        kept = {place: offset for place, offset in self.cuts.items() if place not in places}
        return replace(self, generation=self.generation + 1, cuts=kept)

    def with_published(
        self,
        application: str,
        last: LastPublished,
        latest: Mapping[Place, tuple[Offset, Offset]],
    ) -> "Publications":
        """The publication counts, and the cuts of its logs do not any more."""
        published = self.without_cuts(list(latest))
        applications = {
            name: known
            for name, known in self.applications.items()
            if not known.is_transient or last.at_ms - known.at_ms < _TRANSIENT_MS
        }
        applications[application] = last
        return replace(published, applications=applications, latest=dict(latest))

    def without_application(self, application: str) -> "Publications":
        kept = {name: last for name, last in self.applications.items() if name != application}
        return replace(self, generation=self.generation + 1, applications=kept)

    def check_room_for(self, application: str) -> None:
        """Refuse a new application when there are too many to remember them all."""
        lasting = sum(not known.is_transient for known in self.applications.values())
        if application not in self.applications and lasting >= APPLICATIONS_MAX:
            raise LogError(
                f"{lasting} applications have published to this store, and it remembers no more: "
                "forget those that never will again with store.forget_application(...)"
            )


NOTHING_PUBLISHED: Final = Publications(applications={}, cuts={}, latest={})


# --- text ------------------------------------------------------------------------------------


def render_publications(publications: Publications) -> bytes:
    body = json.dumps(
        {
            "applications": {
                name: {
                    "number": last.number,
                    "at_ms": last.at_ms,
                    "is_transient": last.is_transient,
                }
                for name, last in publications.applications.items()
            },
            "cuts": [[*_render_place(place), cut] for place, cut in publications.cuts.items()],
            "latest": [
                [*_render_place(place), *offsets] for place, offsets in publications.latest.items()
            ],
        },
        sort_keys=True,
    ).encode()
    checked = f"{publications.generation}\n".encode() + body
    head = f"{LEDGER_FILE} {_VERSION} {publications.generation} {crc32c.crc32c(checked):08x}\n"
    return head.encode() + body


def parse_publications(content: bytes) -> Publications:
    """Raises `FormatError` for anything but a whole, unchanged ledger."""
    head, _, body = content.partition(b"\n")
    fields = head.split(b" ")
    if len(fields) != 4 or fields[0] != LEDGER_FILE.encode() or not fields[2].isdigit():
        raise FormatError("not a ledger of publications")
    if fields[1] != _VERSION.encode():
        raise FormatError(f"ledger of publications of version {fields[1]!r}")
    checked = fields[2] + b"\n" + body
    if f"{crc32c.crc32c(checked):08x}".encode() != fields[3]:
        raise FormatError("the checksum of the ledger of publications does not match")
    try:
        found = json.loads(body)
        return Publications(
            generation=int(fields[2]),
            applications={
                str(name): LastPublished(
                    number=_integer(last["number"]),
                    at_ms=TimestampMs(_integer(last["at_ms"])),
                    is_transient=bool(last["is_transient"]),
                )
                for name, last in found["applications"].items()
            },
            cuts={_parse_place(row): Offset(_integer(row[3])) for row in found["cuts"]},
            latest={
                _parse_place(row): (Offset(_integer(row[3])), Offset(_integer(row[4])))
                for row in found["latest"]
            },
        )
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise FormatError(f"the ledger of publications is malformed: {error}") from error


def _render_place(place: Place) -> list[object]:
    return [place.topic, encode_topic_id(place.topic_id), place.partition]


def _parse_place(row: list[Any]) -> Place:
    return Place(
        topic=str(row[0]), topic_id=decode_topic_id(str(row[1])), partition=_integer(row[2])
    )


def _integer(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value <= INT64_MAX:
        raise ValueError(f"{value!r} is not a number of anything")
    return value


# --- files -----------------------------------------------------------------------------------


def write_publications(
    fs: FileSystem, directories: Sequence[str], publications: Publications
) -> None:
    """Durable on return, in every directory. A crash in between leaves the old or the new."""
    content = render_publications(publications)
    for directory in directories:
        replace_file(fs, os.path.join(directory, LEDGER_FILE), content)


def read_publications(fs: FileSystem, directories: Sequence[str]) -> Publications:
    """The newest sound copy; nothing published where there is no copy at all."""
    sound: list[Publications] = []
    faults: list[str] = []
    for directory in directories:
        path = os.path.join(directory, LEDGER_FILE)
        try:
            sound.append(parse_publications(read_whole(fs, path, limit=_LEDGER_BYTES_MAX)))
        except FileNotFoundError:
            continue
        except FormatError as error:
            faults.append(f"{path}: {error}")
    if not sound and faults:
        raise StorageError(
            "the ledger of what was published cannot be read, and without it a batch could be "
            "stored twice or by half: restore it from a backup, or, when no job will send a batch "
            f"again, remove it ({'; '.join(faults)})"
        )
    return max(sound, key=lambda found: found.generation, default=NOTHING_PUBLISHED)
