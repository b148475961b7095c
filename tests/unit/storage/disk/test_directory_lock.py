"""One writer per directory, between processes and within one."""

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cordwood.errors import DirectoryLockedError
from cordwood.storage.disk import directory_lock
from cordwood.storage.disk.directory_lock import lock_directory, lock_owner
from fakes.forking_program import run_forking
from fakes.interrupter import interrupt, places

TRY_LOCK = """
import sys
from cordwood.errors import DirectoryLockedError
from cordwood.storage.disk.directory_lock import lock_directory
slot = int(sys.argv[2]) if len(sys.argv) > 2 else None
try:
    lock = lock_directory(sys.argv[1], slot=slot)
except DirectoryLockedError as error:
    print(error.owner)
else:
    print("locked")
"""


def try_lock_elsewhere(directory: Path, *slot: str) -> str:
    """What another process gets: the owner it was refused for, or ``locked``."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", TRY_LOCK, str(directory), *slot]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return done.stdout.strip()


def test_another_process_is_refused_and_told_who_holds_the_directory(tmp_path: Path) -> None:
    lock = lock_directory(str(tmp_path))

    owner = try_lock_elsewhere(tmp_path)

    assert owner.startswith(f"pid {os.getpid()} on {os.uname().nodename} since 20")
    lock.release()


def test_a_second_attempt_in_the_same_process_is_refused_and_costs_the_first_nothing(
    tmp_path: Path,
) -> None:
    # Closing any descriptor of the file would drop the lock for the whole process.
    lock = lock_directory(str(tmp_path))

    with pytest.raises(DirectoryLockedError) as refused:
        lock_directory(str(tmp_path))

    assert refused.value.owner == f"this process (pid {os.getpid()})"
    assert try_lock_elsewhere(tmp_path).startswith(f"pid {os.getpid()}")
    lock.release()


def test_a_directory_is_the_same_by_any_name(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "data")
    lock = lock_directory(str(tmp_path / "data"))

    with pytest.raises(DirectoryLockedError):
        lock_directory(str(tmp_path / "alias"))

    lock.release()


def test_a_released_directory_is_free_for_another_process_and_holds_no_lock_file(
    tmp_path: Path,
) -> None:
    lock_directory(str(tmp_path)).release()

    assert list(tmp_path.iterdir()) == []
    assert try_lock_elsewhere(tmp_path) == "locked"


@pytest.mark.parametrize("left_behind", [b"", b"pid 1 on elsewhere\n", b"\xff\x00\n" * 1000])
def test_a_file_left_by_a_dead_process_locks_nobody_out(tmp_path: Path, left_behind: bytes) -> None:
    (tmp_path / ".lock").write_bytes(left_behind)

    lock = lock_directory(str(tmp_path))

    assert (tmp_path / ".lock").read_bytes().startswith(f"pid {os.getpid()} on ".encode())
    lock.release()


def test_a_lock_without_references_is_released(tmp_path: Path) -> None:
    lock = lock_directory(str(tmp_path))

    del lock

    lock_directory(str(tmp_path)).release()


def test_a_forked_child_neither_has_the_lock_nor_can_release_it(tmp_path: Path) -> None:
    body = """
    from cordwood.storage.disk.directory_lock import lock_directory

    lock = lock_directory(sys.argv[1])

    def release():
        lock.release()
        assert os.path.exists(os.path.join(sys.argv[1], ".lock"))
        try:
            lock_directory(sys.argv[1])
        except DirectoryLockedError as error:
            assert str(os.getppid()) in str(error)
        else:
            raise AssertionError("it has the lock")

    in_child(release)
    in_child(release)  # also after the end of a child
    lock.release()
    """
    run_forking(body, tmp_path)


def test_a_missing_directory_cannot_be_locked(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        lock_directory(str(tmp_path / "missing"))


ASK_OWNER = """
import sys
from cordwood.storage.disk.directory_lock import lock_owner
owner = lock_owner(sys.argv[1])
print(owner and owner.pid, owner and owner.description)
"""


def ask_elsewhere(directory: Path) -> str:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", ASK_OWNER, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return done.stdout.strip()


def test_who_holds_a_directory_can_be_asked_and_costs_the_holder_nothing(tmp_path: Path) -> None:
    lock = lock_directory(str(tmp_path))

    here, elsewhere = lock_owner(str(tmp_path)), ask_elsewhere(tmp_path)

    assert here is not None
    assert here.pid == os.getpid()
    assert elsewhere.startswith(f"{os.getpid()} pid {os.getpid()} on ")
    assert try_lock_elsewhere(tmp_path).startswith(f"pid {os.getpid()}")
    lock.release()


def test_a_lock_file_that_was_left_behind_is_held_by_nobody(tmp_path: Path) -> None:
    assert lock_owner(str(tmp_path)) is None

    (tmp_path / ".lock").write_text("pid 1 on elsewhere\n")

    assert lock_owner(str(tmp_path)) is None


# --- interrupts --------------------------------------------------------------------------------


def descriptors_of(directory: Path) -> list[str]:
    """The files of `directory` that this process has open, also removed ones."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if target.startswith(f"{directory}/"):
            found.append(target)
    return found


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /proc")
def test_an_interrupted_release_can_be_repeated_and_leaves_nothing_half_done(
    tmp_path: Path,
) -> None:
    count = places(lock_directory(str(tmp_path)).release)
    assert count > 5
    for place in range(1, count + 1):
        lock = lock_directory(str(tmp_path))

        where = interrupt(lock.release, place)

        if descriptors_of(tmp_path):
            # Not released: then this process must not lock it again, whose end would unlock it.
            with pytest.raises(DirectoryLockedError):
                lock_directory(str(tmp_path))
        lock.release()
        assert descriptors_of(tmp_path) == [], where
        assert list(tmp_path.iterdir()) == [], where
        lock_directory(str(tmp_path)).release()
    assert try_lock_elsewhere(tmp_path) == "locked"


def test_a_repeated_release_does_not_remove_the_file_of_the_next_owner(tmp_path: Path) -> None:
    count = places(lock_directory(str(tmp_path)).release)
    for place in range(1, count + 1):
        lock = lock_directory(str(tmp_path))
        where = interrupt(lock.release, place)
        is_unlinked = not (tmp_path / ".lock").exists()
        if is_unlinked:
            (tmp_path / ".lock").write_text("another process\n")

        lock.release()

        assert (tmp_path / ".lock").exists() == is_unlinked, where
        (tmp_path / ".lock").unlink(missing_ok=True)


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /proc")
@pytest.mark.parametrize("asks", [lock_directory, lock_owner], ids=["lock", "ask"])
def test_an_interrupted_attempt_leaves_no_lock_and_no_descriptor(
    tmp_path: Path, asks: Callable[[str], object]
) -> None:
    (tmp_path / ".lock").write_text("")
    found: list[object] = []
    count = places(lambda: found.append(asks(str(tmp_path))))
    found.clear()
    gc.collect()
    for place in range(1, count + 1):
        (tmp_path / ".lock").touch()

        where = interrupt(lambda: asks(str(tmp_path)), place)

        if descriptors_of(tmp_path):
            gc.collect()  # the lock that nobody got
        assert descriptors_of(tmp_path) == [], where
        lock_directory(str(tmp_path)).release()


def test_a_lost_lock_is_released_while_another_one_is_taken(tmp_path: Path) -> None:
    """The garbage collector may run inside of `lock_directory`, in the same thread."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    lost = [lock_directory(str(tmp_path / "a"))]

    with directory_lock._guard:
        lost.clear()
        lock_directory(str(tmp_path / "b")).release()

    lock_directory(str(tmp_path / "a")).release()


# --- slots: several processes of one node ---------------------------------------------------------


def test_a_whole_lock_excludes_every_slot_until_it_is_narrowed(tmp_path: Path) -> None:
    lock = lock_directory(str(tmp_path))

    before = try_lock_elsewhere(tmp_path, "1")
    lock.narrow()
    after = try_lock_elsewhere(tmp_path, "1")

    assert before.startswith("pid")
    assert after == "locked"
    assert try_lock_elsewhere(tmp_path, "0").startswith("pid")
    lock.release()


def test_a_slot_excludes_those_who_want_the_whole_directory_and_leaves_the_file_to_others(
    tmp_path: Path,
) -> None:
    slot = lock_directory(str(tmp_path), slot=3)

    whole, same, another = (try_lock_elsewhere(tmp_path, *s) for s in ((), ("3",), ("4",)))
    slot.release()

    assert whole != "locked"
    assert same != "locked"
    assert another == "locked"
    assert (tmp_path / ".lock").exists()
    assert try_lock_elsewhere(tmp_path) == "locked"


def test_a_lock_is_widened_only_when_all_other_slots_are_free(tmp_path: Path) -> None:
    lock = lock_directory(str(tmp_path))
    lock.narrow()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", TRY_LOCK + "\nsys.stdout.flush(); sys.stdin.read()"]
    with subprocess.Popen(
        [*command, str(tmp_path), "1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(DirectoryLockedError):
            lock.widen(str(tmp_path))
        assert other.stdin is not None
        other.stdin.close()

    lock.widen(str(tmp_path))

    assert try_lock_elsewhere(tmp_path, "1").startswith("pid")
    lock.release()
    assert not (tmp_path / ".lock").exists()
