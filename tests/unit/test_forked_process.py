"""What a forked child can do with its parent's store: nothing, and it is told why."""

from pathlib import Path

import pytest

from fakes.forking_program import run_forking


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
    run_forking(body, tmp_path / "data")


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
    run_forking(body, tmp_path / "data")


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
    run_forking(body, tmp_path)
