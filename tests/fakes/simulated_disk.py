"""What a power cut may leave of files and names that were written and not synced.

Nothing here is a port: `simulated_fs` drives it. A file is a base of bytes that are on the disk
and a list of changes since, in order. The tree of names is the same one level up: a tree that
is on the disk and a list of changes since.

A change is in one of three states. PENDING: the next sync makes it durable. SYNCED: it is, but
it waits in the list behind one that is not. UNDECIDED: a sync failed over it; it may be on the
disk or not, and no later sync tells. Names know only the first two: a journalling file system
whose directory sync failed takes no further changes until it is mounted again, so a later sync
that succeeds is to be believed.
"""

from __future__ import annotations

import enum
import itertools
import random
from dataclasses import dataclass, field, replace

SECTOR_SIZE = 512
ROOT = 0


class State(enum.Enum):
    PENDING = "pending"
    SYNCED = "synced"
    UNDECIDED = "undecided"


class Mood(enum.Enum):
    """How a power cut treats the unsynced changes of one file, or of the names."""

    ALL_LOST = "all lost"
    ALL_KEPT = "all kept"
    PREFIX = "a prefix kept"
    MIXED = "each decided by itself"


_MOODS = list(Mood)


@dataclass
class Change:
    """A write at `position`, or a cut to the size `position` when there is no data."""

    position: int
    data: bytes | None
    state: State = State.PENDING

    def apply(self, content: bytearray) -> None:
        if self.data is None:
            _resize(content, self.position)
        else:
            _write(content, self.position, self.data)

    def apply_in_part(self, content: bytearray, rng: random.Random) -> None:
        """As the disk may have it when the power goes while it is on its way there."""
        if self.data is None:
            if rng.random() < 0.5:
                self.apply(content)
            return
        end = self.position + len(self.data)
        match rng.choice(("lost", "grown", "whole", "torn", "sectors")):
            case "lost":
                pass
            case "grown":  # the size was journalled, the bytes were not: zeros, or what was there
                _resize(content, max(len(content), end))
            case "whole":
                self.apply(content)
            case "torn":
                if rng.random() < 0.5:
                    _resize(content, max(len(content), end))
                _write(content, self.position, self.data[: rng.randint(0, len(self.data))])
            case "sectors":
                _resize(content, max(len(content), end))
                for start, stop in _sectors(self.position, end):
                    if rng.random() < 0.5:
                        piece = self.data[start - self.position : stop - self.position]
                        _write(content, start, piece)


@dataclass
class FileNode:
    """One file. `content` is what processes see, `base` what is on the disk for certain."""

    content: bytearray = field(default_factory=bytearray)
    base: bytearray = field(default_factory=bytearray)
    changes: list[Change] = field(default_factory=list)
    words: dict[int, bytes] = field(default_factory=dict)  # position -> what is on the disk
    word_stores: list[tuple[int, bytes]] = field(default_factory=list)  # since, in order
    has_dirty_words: bool = False
    was_synced: bool = False
    modified_ms: int = 0

    def change(self, change: Change) -> None:
        change.apply(self.content)
        self.changes.append(change)

    def store_word(self, position: int, word: bytes) -> None:
        """All words of a file lie in one sector, which the disk writes as a whole."""
        assert position + len(word) <= SECTOR_SIZE, position
        self.words.setdefault(position, bytes(self.content[position : position + len(word)]))
        self.word_stores.append((position, word))
        self.has_dirty_words = True
        _write(self.content, position, word)

    def sync(self) -> None:
        self.was_synced = True
        for change in self.changes:
            if change.state is State.PENDING:
                change.state = State.SYNCED
        self._settle()
        if self.has_dirty_words:
            self.words.update(self.word_stores)
            self.word_stores.clear()
            self.has_dirty_words = False

    def fail_sync(self) -> None:
        for change in self.changes:
            if change.state is State.PENDING:
                change.state = State.UNDECIDED
        self.has_dirty_words = False  # clean, says the kernel; which moment the disk has, nobody

    def copy(self) -> FileNode:
        return FileNode(
            content=bytearray(self.content),
            base=bytearray(self.base),
            changes=[Change(each.position, each.data, each.state) for each in self.changes],
            words=dict(self.words),
            word_stores=list(self.word_stores),
            has_dirty_words=self.has_dirty_words,
            was_synced=self.was_synced,
            modified_ms=self.modified_ms,
        )

    def after_power_cut(self, rng: random.Random) -> FileNode:
        content = bytearray(self.base)
        mood = rng.choice(_MOODS)
        unsynced = sum(change.state is not State.SYNCED for change in self.changes)
        kept = {Mood.ALL_KEPT: unsynced, Mood.PREFIX: rng.randint(0, unsynced)}.get(mood, 0)
        for change in self.changes:
            if change.state is State.SYNCED:
                change.apply(content)
                continue
            if kept > 0:
                change.apply(content)
            elif mood is Mood.MIXED or (mood is Mood.PREFIX and kept == 0):
                change.apply_in_part(content, rng)
            kept -= 1
        for position, word in self._surviving_words(rng).items():
            if position + len(word) <= len(content):
                _write(content, position, word)
        return FileNode(
            content=content,
            base=bytearray(content),
            was_synced=True,
            modified_ms=self.modified_ms,
        )

    def _surviving_words(self, rng: random.Random) -> dict[int, bytes]:
        """The words as they were at one moment since the last sync, between any two stores."""
        stores = len(self.word_stores)
        moment = rng.choice((0, stores, rng.randint(0, stores)))
        return self.words | dict(self.word_stores[:moment])

    def _settle(self) -> None:
        """Move the changes that nothing undecided precedes into the base."""
        settled = 0
        for change in self.changes:
            if change.state is not State.SYNCED:
                break
            change.apply(self.base)
            settled += 1
        del self.changes[:settled]


@dataclass
class NameChange:
    """One atomic change of names: some go, some come, in one directory or two.

    Each is (directory, name, node). A name goes only if it still stands for that node, so a
    change that survives alone does no more than it says.
    """

    gone: tuple[tuple[int, str, int], ...] = ()
    come: tuple[tuple[int, str, int], ...] = ()
    unsynced_directories: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.unsynced_directories |= {directory for directory, _, _ in self.gone + self.come}

    def copy(self) -> NameChange:
        copied = replace(self, unsynced_directories=set())
        copied.unsynced_directories = set(self.unsynced_directories)  # not those of a new change
        return copied

    def apply(self, tree: Tree) -> None:
        for directory, name, node in self.gone:
            if tree.get(directory, {}).get(name) == node:
                del tree[directory][name]
        for directory, name, node in self.come:
            tree.setdefault(directory, {})[name] = node


Tree = dict[int, dict[str, int]]


@dataclass
class Disk:
    """Files and directories by number; directory `ROOT` is always there."""

    files: dict[int, FileNode] = field(default_factory=dict)
    tree: Tree = field(default_factory=lambda: {ROOT: {}})
    base_tree: Tree = field(default_factory=lambda: {ROOT: {}})
    name_changes: list[NameChange] = field(default_factory=list)
    next_node: int = ROOT + 1

    def new_file(self) -> int:
        node = self._number()
        self.files[node] = FileNode()
        return node

    def new_directory(self) -> int:
        node = self._number()
        self.tree[node] = {}
        self.base_tree[node] = {}
        return node

    def change_names(self, change: NameChange) -> None:
        change.apply(self.tree)
        self.name_changes.append(change)

    def sync_names(self, directory: int) -> None:
        for change in self.name_changes:
            change.unsynced_directories.discard(directory)
        settled = 0
        for change in self.name_changes:
            if change.unsynced_directories:
                break
            change.apply(self.base_tree)
            settled += 1
        del self.name_changes[:settled]

    def used_bytes(self) -> int:
        linked = {node for names in self.tree.values() for node in names.values()}
        return sum(len(file.content) for node, file in self.files.items() if node in linked)

    def copy(self) -> Disk:
        return Disk(
            files={node: file.copy() for node, file in self.files.items()},
            tree={node: dict(names) for node, names in self.tree.items()},
            base_tree={node: dict(names) for node, names in self.base_tree.items()},
            name_changes=[change.copy() for change in self.name_changes],
            next_node=self.next_node,
        )

    def after_power_cut(self, rng: random.Random) -> Disk:
        tree = {node: dict(names) for node, names in self.base_tree.items()}
        mood = rng.choice(_MOODS)
        kept_prefix = rng.randint(0, len(self.name_changes))
        unsynced_names = set()
        for number, change in enumerate(self.name_changes):
            match mood:
                case Mood.ALL_LOST:
                    survives = False
                case Mood.ALL_KEPT:
                    survives = True
                case Mood.PREFIX:
                    survives = number < kept_prefix
                case Mood.MIXED:
                    survives = rng.random() < 0.5
            if survives or not change.unsynced_directories:
                change.apply(tree)
            if change.unsynced_directories:
                unsynced_names |= {node for _, _, node in change.come}
        files = {}
        for node, file in sorted(self.files.items()):
            files[node] = file.after_power_cut(rng)
            if node in unsynced_names and not file.was_synced and rng.random() < 0.25:
                files[node] = FileNode(was_synced=True)  # created, and nothing more
        reachable = _reachable(tree)
        files = {node: file for node, file in files.items() if node in reachable}
        tree = {node: names for node, names in tree.items() if node in reachable}
        return Disk(
            files=files,
            tree=tree,
            base_tree={node: dict(names) for node, names in tree.items()},
            next_node=self.next_node,
        )

    def _number(self) -> int:
        self.next_node += 1
        return self.next_node - 1


def _reachable(tree: Tree) -> set[int]:
    found, to_visit = {ROOT}, [ROOT]
    while to_visit:
        for node in tree.get(to_visit.pop(), {}).values():
            if node not in found:
                found.add(node)
                to_visit.append(node)
    return found


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def _write(content: bytearray, position: int, data: bytes) -> None:
    if not data:
        return
    if position > len(content):
        _resize(content, position)
    content[position : position + len(data)] = data


def _sectors(start: int, end: int) -> list[tuple[int, int]]:
    """The parts of [start, end) in each sector of the file."""
    cuts = [start, *range((start // SECTOR_SIZE + 1) * SECTOR_SIZE, end, SECTOR_SIZE), end]
    return list(itertools.pairwise(cuts))
