"""The file of users, rules and quotas: durable before it counts, private, and never ignored."""

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.errors import FormatError
from cordwood.protocol.acl_codes import AclOperation, AclPattern, AclPermission, AclResource
from cordwood.security.security_document import SECURITY_FILE
from cordwood.security.security_file import SecurityFile
from cordwood.security.security_state import (
    AclRule,
    QuotaEntity,
    ScramCredential,
    ScramMechanism,
    SecurityState,
    UserCredential,
)
from cordwood.storage.files import RealFileSystem

STATE = SecurityState(
    credentials={
        UserCredential("alice", ScramMechanism.SCRAM_SHA_512): ScramCredential(
            salt=b"\0salt", iterations=4096, stored_key=b"stored", server_key=b"server"
        )
    },
    rules=frozenset(
        {
            AclRule(
                resource=AclResource.TOPIC,
                pattern=AclPattern.PREFIXED,
                name="orders-",
                principal="User:alice",
                host="*",
                operation=AclOperation.READ,
                permission=AclPermission.ALLOW,
            )
        }
    ),
    quotas={
        QuotaEntity(user="alice", client_id=""): {"producer_byte_rate": 1024.5},
        QuotaEntity(ip=""): {"connection_creation_rate": 5.0},
    },
)


def _paths(tmp_path: Path) -> list[str]:
    directories = [str(tmp_path / "a"), str(tmp_path / "b")]
    for directory in directories:
        os.makedirs(directory)
    return directories


def test_what_was_changed_is_there_after_opening_again(tmp_path: Path) -> None:
    fs, directories = RealFileSystem(), _paths(tmp_path)
    first = SecurityFile(fs, directories)
    first.change(lambda _: STATE)
    again = SecurityFile(fs, directories)
    assert again.state == STATE
    assert again.secret == first.secret


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    directories = _paths(tmp_path)
    left_behind = Path(directories[0], SECURITY_FILE + ".tmp")
    left_behind.write_text("")
    left_behind.chmod(0o666)
    SecurityFile(RealFileSystem(), directories).change(lambda _: STATE)
    for directory in directories:
        mode = os.stat(os.path.join(directory, SECURITY_FILE)).st_mode
        assert stat.S_IMODE(mode) == 0o600


def test_the_newest_sound_copy_counts(tmp_path: Path) -> None:
    fs, directories = RealFileSystem(), _paths(tmp_path)
    file = SecurityFile(fs, directories)
    file.change(lambda _: SecurityState())
    file.change(lambda _: STATE)
    Path(directories[1], SECURITY_FILE).write_bytes(b"rot")
    assert SecurityFile(fs, directories).state == STATE


def test_copies_that_are_equally_new_and_differ_are_left_to_the_operator(tmp_path: Path) -> None:
    """Each directory was used while the other was missing, and each withdrew another right."""
    fs, directories = RealFileSystem(), _paths(tmp_path)
    SecurityFile(fs, directories).change(lambda _: STATE)
    SecurityFile(fs, directories[:1]).change(lambda state: replace(state, rules=frozenset()))
    SecurityFile(fs, directories[1:]).change(lambda state: replace(state, credentials={}))

    for order in (directories, directories[::-1]):
        with pytest.raises(FormatError, match="equally new and differ") as raised:
            SecurityFile(fs, order)
        assert all(os.path.join(each, SECURITY_FILE) in str(raised.value) for each in directories)

    os.remove(os.path.join(directories[0], SECURITY_FILE))
    file = SecurityFile(fs, directories)
    assert not file.state.credentials
    file.change(lambda state: replace(state, quotas={}))  # then both have the same again
    assert SecurityFile(fs, directories).state == SecurityFile(fs, directories[:1]).state


def test_a_newer_copy_decides_between_older_ones_that_differ(tmp_path: Path) -> None:
    fs, directories = RealFileSystem(), [*_paths(tmp_path), str(tmp_path / "c")]
    os.makedirs(directories[2])
    for number, directory in enumerate(directories):
        changes = [lambda _: STATE, lambda _: SecurityState(), lambda _: STATE]
        for change in changes[: 1 if number < 2 else 3]:
            SecurityFile(fs, [directory]).change(change)

    assert SecurityFile(fs, directories).state == STATE
    assert SecurityFile(fs, directories[::-1]).state == STATE


def test_a_store_whose_copies_are_all_unreadable_is_not_opened(tmp_path: Path) -> None:
    fs, directories = RealFileSystem(), _paths(tmp_path)
    SecurityFile(fs, directories).change(lambda _: STATE)
    for directory in directories:
        Path(directory, SECURITY_FILE).write_bytes(b"rot")
    with pytest.raises(FormatError):
        SecurityFile(fs, directories)


def test_an_unreadable_file_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "cordwood-security"
    path.write_bytes(b"rotten")

    with pytest.raises(FormatError, match="restore the file from a copy") as raised:
        SecurityFile(RealFileSystem(), [str(tmp_path)])

    assert str(path) in str(raised.value)


def test_a_refused_change_changes_nothing(tmp_path: Path) -> None:
    file = SecurityFile(RealFileSystem(), _paths(tmp_path))
    heard: list[SecurityState] = []
    file.when_changed(heard.append)

    def refuse(_state: SecurityState) -> SecurityState:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        file.change(refuse)
    assert file.state == SecurityState()
    file.change(lambda _: STATE)
    assert heard == [SecurityState(), STATE]


def test_a_failing_listener_does_not_keep_a_change_from_the_others(tmp_path: Path) -> None:
    file = SecurityFile(RealFileSystem(), [str(tmp_path)])
    seen: list[SecurityState] = []

    def fail(state: SecurityState) -> None:
        if state == STATE:
            raise RuntimeError("a bug")

    file.when_changed(fail)
    file.when_changed(seen.append)
    with pytest.raises(RuntimeError, match="a bug"):
        file.change(lambda _: STATE)
    assert seen[-1] == file.state == STATE


class FailingFileSystem(RealFileSystem):
    """Directories in `unsynced` cannot be synced, and those in `full` take no files."""

    def __init__(self) -> None:
        self.unsynced: set[str] = set()
        self.full: set[str] = set()

    def sync_directory(self, path: str) -> None:
        if path in self.unsynced:
            raise OSError("cannot sync")
        super().sync_directory(path)

    def rename(self, source: str, target: str) -> None:
        if os.path.dirname(target) in self.full:
            raise OSError("disk full")
        super().rename(source, target)


def test_a_change_that_failed_does_not_win_over_a_later_one_that_succeeded(tmp_path: Path) -> None:
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    for directory in (one, two):
        os.mkdir(directory)
    fs = FailingFileSystem()
    file = SecurityFile(fs, [one, two])
    fs.unsynced, fs.full = {one}, {two}
    with pytest.raises(OSError, match="cannot sync"):  # its copy in `one` is there all the same
        file.change(lambda _: STATE)
    assert file.state == SecurityState()
    fs.unsynced, fs.full = set(), {one}
    later = SecurityState(rules=STATE.rules)
    file.change(lambda _: later)
    assert SecurityFile(RealFileSystem(), [one, two]).state == later
