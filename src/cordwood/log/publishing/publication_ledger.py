"""The ledger of publications: which were published, and which logs must be cut.

A publication appends to several logs. Before its first byte is written, the ledger records
where each of these logs ends. A store that finds such cuts while opening cuts the logs back.
One write then replaces the cuts by the publication's number; at that moment all of it counts.

`cordwood-publications`, in every data directory, is a checked document (see
`format/small_files/checked_document.py`) with this body:

    {"applications": {"<id>": {"number": 41, "at_ms": ..., "is_transient": false}},
     "cuts":   [["orders", "<topic id>", 0, 120]],         topic, id, partition, offset
     "latest": [["orders", "<topic id>", 0, 100, 120]]}    of the last one: begin and end

The newest sound copy counts. No other file says which batches were published. So if there are
copies and none can be read, the store refuses to open.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol
from uuid import UUID

from cordwood.errors import FormatError, LogError, StorageError
from cordwood.format.small_files.checked_document import (
    CheckedDocument,
    decode_document,
    encode_document,
)
from cordwood.format.small_files.partition_metadata import decode_topic_id, encode_topic_id
from cordwood.quantities import INT64_MAX, MIB, Offset, TimestampMs
from cordwood.storage.files import FileSystem, read_whole, replace_file
from cordwood.value_class import dataclass, replace

LEDGER_FILE: Final = "cordwood-publications"
_LEDGER_BYTES_MAX: Final = 64 * MIB

# Each application takes about a hundred bytes of a file that every publication writes twice.
APPLICATIONS_MAX: Final = 10_000
APPLICATION_CHARS_MAX: Final = 1000
# Longer than an unanswered request is kept, so that no request can be repeated after this.
_TRANSIENT_MS: Final = 7 * 24 * 3600 * 1000
# Of transient applications the newest are kept. One is needed until its request is answered,
# and the owner answers before it serves the next request.
TRANSIENT_MAX: Final = 1000


class IdentifiedTopic(Protocol):
    """A topic, open or as the catalog lists it."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> UUID: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One log. The topic's id tells it from an earlier topic of the same name."""

    topic: str
    topic_id: UUID
    partition: int

    @classmethod
    def of(cls, topic: IdentifiedTopic, partition: int) -> "Place":
        return cls(topic=topic.name, topic_id=topic.topic_id, partition=partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastPublished:
    """The highest number of an application. A transient application expires after a week."""

    number: int
    at_ms: TimestampMs
    is_transient: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Publications:
    """The content of the ledger. Replaced as a whole; `generation` grows with every change.

    cuts    records of the log from this offset on belong to an unfinished publication
    latest  the offsets [begin, end) of the last publication in each log
    """

    generation: int = 0
    applications: Mapping[str, LastPublished]
    cuts: Mapping[Place, Offset]
    latest: Mapping[Place, tuple[Offset, Offset]]

    def last_of(self, application: str) -> int | None:
        """The highest number the application has published; None if it never published."""
        known = self.applications.get(application)
        return None if known is None else known.number

    def with_cuts(self, cuts: Mapping[Place, Offset]) -> "Publications":
        return replace(self, generation=self.generation + 1, cuts={**self.cuts, **cuts})

    def without_topic(self, topic_id: UUID) -> "Publications":
        """Forget the logs of a topic: one that is restored with the same id may end earlier."""
        return replace(
            self,
            generation=self.generation + 1,
            cuts={place: cut for place, cut in self.cuts.items() if place.topic_id != topic_id},
            latest={p: found for p, found in self.latest.items() if p.topic_id != topic_id},
        )

    def has_topic(self, topic_id: UUID) -> bool:
        return any(place.topic_id == topic_id for place in (*self.cuts, *self.latest))

    def without_cuts(self, places: Sequence[Place]) -> "Publications":
        kept = {place: offset for place, offset in self.cuts.items() if place not in places}
        return replace(self, generation=self.generation + 1, cuts=kept)

    def with_published(
        self,
        application: str,
        last: LastPublished,
        latest: Mapping[Place, tuple[Offset, Offset]],
    ) -> "Publications":
        """Record the publication and remove the cuts of its logs."""
        published = self.without_cuts(list(latest))
        transient = [
            (known.at_ms, name)
            for name, known in self.applications.items()
            if known.is_transient and last.at_ms - known.at_ms < _TRANSIENT_MS
        ]
        kept = {name for _, name in sorted(transient)[-TRANSIENT_MAX:]}
        applications = {
            name: known
            for name, known in self.applications.items()
            if not known.is_transient or name in kept
        }
        applications[application] = last
        return replace(published, applications=applications, latest=dict(latest))

    def without_application(self, application: str) -> "Publications":
        kept = {name: last for name, last in self.applications.items() if name != application}
        return replace(self, generation=self.generation + 1, applications=kept)

    def check_room_for(self, application: str) -> None:
        """Refuse a new application if the ledger already holds too many."""
        lasting = sum(not known.is_transient for known in self.applications.values())
        if application not in self.applications and lasting >= APPLICATIONS_MAX:
            raise LogError(
                f"{lasting} applications have published to this store, which is the limit; "
                "remove unused ones with store.publisher.forget(...)"
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
    return encode_document(LEDGER_FILE, CheckedDocument(publications.generation, body))


def parse_publications(content: bytes) -> Publications:
    """Raises `FormatError` for anything but a whole, unchanged ledger."""
    document = decode_document(LEDGER_FILE, content)
    try:
        found = json.loads(document.body)
        return Publications(
            generation=document.generation,
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
        raise ValueError(f"{value!r} is not an integer from 0 to {INT64_MAX}")
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
    """The newest sound copy; an empty ledger if there is no copy at all."""
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
            "no copy of the ledger of publications can be read. Without it a batch could be stored "
            "twice or in part. Restore it from a backup; if no job will repeat a batch, remove it "
            f"({'; '.join(faults)})"
        )
    return max(sound, key=lambda found: found.generation, default=NOTHING_PUBLISHED)
