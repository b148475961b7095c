"""Four threads append at durability=disk while signals interrupt the main one.

Run as a program of its own: ``python -m crash.signal_storm DIRECTORY TRIALS``. It ends with a
traceback if a thread hangs, if a record was acknowledged above the high watermark, or if the store
that is opened next has lost or doubled one.
"""

import faulthandler
import os
import signal
import sys
import threading
from pathlib import Path
from random import Random

import cordwood
from cordwood.errors import LogFailedError

_THREADS = 3  # and the main one
_SIGNALS = 12
_TRIAL_S = 20.0


class Trial:
    """One store, one storm."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self._random = Random(seed)
        self._is_over = threading.Event()
        self._acknowledged: dict[int, bytes] = {}
        self._false: list[int] = []
        self._interrupts = 0
        self._is_armed = False

    def _on_signal(self, _number: int, _frame: object) -> None:
        if self._is_armed:
            raise KeyboardInterrupt

    def run(self) -> int:
        """The number of interrupts that reached the caller."""
        signal.signal(signal.SIGINT, self._on_signal)
        store = cordwood.open(self.directory)
        topic = store.create_topic("events", config={"durability": "disk"})
        threads = [
            threading.Thread(target=self._append, args=(topic, number), daemon=True)
            for number in range(1, _THREADS + 1)
        ]
        storm = threading.Thread(target=self._storm, daemon=True)
        for thread in (*threads, storm):
            thread.start()
        while not self._is_over.is_set():
            try:
                self._is_armed = True
                self._append(topic, 0)
            except KeyboardInterrupt:
                self._interrupts += 1
            self._is_armed = False
        for thread in (*threads, storm):
            thread.join(_TRIAL_S)
            assert not thread.is_alive(), "a thread hangs"
        try:
            topic.append(b"after")
        except LogFailedError:
            print(f"the log failed: {topic.partition(0).state.failure}")
        assert not self._false, f"acknowledged above the high watermark: {self._false}"
        self._check(topic)
        store.close()
        with cordwood.open(self.directory) as reopened:
            self._check(reopened.topic("events"))
        return self._interrupts

    def _append(self, topic: cordwood.Topic, thread: int) -> None:
        count = 0
        while not self._is_over.is_set():
            value = b"%d-%d-%d" % (thread, count, self._interrupts)
            offset = topic.append(value).offset
            if offset >= topic.partition(0).high_watermark:
                self._false.append(offset)
            self._acknowledged[offset] = value
            count += 1

    def _storm(self) -> None:
        pause = threading.Event()
        for _ in range(_SIGNALS):
            pause.wait(self._random.uniform(0, 0.004))
            os.kill(os.getpid(), signal.SIGINT)
        pause.wait(0.01)
        self._is_over.set()

    def _check(self, topic: cordwood.Topic) -> None:
        found = {record.offset: record.value for record in topic.partition(0).read()}
        assert len(set(found.values())) == len(found), "doubled"
        lost = [offset for offset, v in self._acknowledged.items() if found.get(offset) != v]
        assert not lost, f"lost: {lost}"


def main(directory: Path, trials: int) -> None:
    interrupts = 0
    for seed in range(trials):
        faulthandler.dump_traceback_later(_TRIAL_S * 3, exit=True)
        interrupts += Trial(directory / str(seed), seed).run()
    faulthandler.cancel_dump_traceback_later()
    print(f"{trials} trials, {interrupts} interrupts")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
