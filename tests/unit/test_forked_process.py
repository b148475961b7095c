"""What a forked child can do with its parent's store: nothing, and it is told why."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A process of its own forks: pytest's workers have threads, of which any may hold a lock.
_PROGRAM = """
import multiprocessing, os, sys, threading
import cordwood
from cordwood.errors import DirectoryLockedError, ForkedStoreError

def refused(action):
    try:
        action()
    except ForkedStoreError as error:
        assert f"process {os.getppid()}" in str(error), error
        return
    raise AssertionError("not refused")

def in_child(action):
    pid = os.fork()
    if not pid:
        try:
            action()
        except BaseException as error:
            print("child:", repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""


def run_program(body: str, directory: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/src"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _PROGRAM + textwrap.dedent(body), str(directory)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_every_handle_refuses_in_a_forked_child(tmp_path: Path, durability: str) -> None:
    body = f"""
    store = cordwood.open(sys.argv[1])
    topic = store.create_topic("t", config={{"durability": {durability!r}}})
    topic.append(b"parent 0")
    log, group = topic.partition(0), store.group("g")
    group.commit({{("t", 0): 1}})
    reading = log.follow(0)
    next(reading)

    # Locks that another thread holds at the fork stay held in the child.
    log._holder.lock.acquire()
    threading.Thread(target=log._holder.sync_lock.acquire).start()

    def child():
        for action in (
            lambda: topic.append(b"child"),
            lambda: topic.append_many([(None, b"child")]),
            lambda: log.append(b"child"),
            lambda: log.roll(),
            lambda: log.sync(),
            lambda: log.truncation.truncate_to(0),
            lambda: list(log.read()),
            lambda: next(reading),
            lambda: store.topic("t"),
            lambda: store.create_topic("u"),
            lambda: store.publish("app", 1, {{("t", 0): [(None, b"child")]}}),
            lambda: group.commit({{("t", 0): 0}}),
            lambda: group.committed("t", 0),
            lambda: store.maintain(),
            lambda: store.compact("t"),
        ):
            refused(action)

    in_child(child)
    log._holder.lock.release()
    log._holder.sync_lock.release()
    assert topic.append(b"parent 1").offset == 1
    store.close()
    """
    run_program(body, tmp_path / "data")


def test_the_lock_stays_with_the_parent_when_a_child_closes_and_ends(tmp_path: Path) -> None:
    body = """
    store = cordwood.open(sys.argv[1])
    topic = store.create_topic("t")

    def child():
        with store:
            pass
        store.close()
        store.abandon()
        try:
            cordwood.open(sys.argv[1])
        except DirectoryLockedError as error:
            assert str(os.getppid()) in str(error)
        else:
            raise AssertionError("two writers")
        with cordwood.open(sys.argv[1], read_only=True) as reading:
            assert reading.topics() == ["t"]

    def ends():
        global store, topic
        del store, topic

    in_child(child)
    in_child(ends)
    for how in ("fork", "spawn"):
        process = multiprocessing.get_context(how).Process(target=os.getpid)
        process.start()
        process.join()
        assert process.exitcode == 0
    assert os.path.exists(os.path.join(sys.argv[1], ".lock"))
    assert topic.append(b"still").offset == 0
    in_child(child)
    store.close()
    in_child(lambda: cordwood.open(sys.argv[1]).close())
    """
    run_program(body, tmp_path / "data")


def test_a_child_leaves_its_parents_broker_alone(tmp_path: Path) -> None:
    body = """
    import socket
    with cordwood.Broker(topics=["t"]) as broker:
        directory, address = broker.data_dir, (broker.host, broker.port)

        def child():
            refused(lambda: broker.store)
            refused(lambda: broker.create_topic("u"))
            broker.kill()
            broker.stop()
            with broker:
                pass

        in_child(child)
        assert os.path.isdir(directory)
        socket.create_connection(address, 5).close()
        broker.store.topic("t").append(b"still")
    """
    run_program(body, tmp_path)
