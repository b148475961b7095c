"""A switch between network namespaces that delays, loses and cuts packets, in each direction.

    python -m crash.cluster_processes.virtual_switch COUNT

makes COUNT namespaces, each with one tun device and the address 10.98.0.N, and relays the packets
between them. The namespaces have no names: they live as long as the process. It prints the paths
of them, then takes one `Weather` per line and answers each with a line.

The kernel's own emulator (netem) is often not built, and a proxy would hide what TCP does: packets
that are cut here are lost for TCP, as on a real network.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import json
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

NETWORK: Final = "10.98.0."
_CLONE_NEWNET: Final = 0x40000000
_TUNSETIFF: Final = 0x400454CA
_IFF_TUN_NO_PI: Final = 0x1001
_DIES_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG
_PACKET_BYTES: Final = 65536
_MTU: Final = 60000  # few large packets: each one costs a turn of the relay
_PACKETS_PER_TURN: Final = 64
_QUEUE_MAX: Final = 50_000
_SOURCE, _TARGET = 15, 19  # the last bytes of the two IPv4 addresses

_LIBC: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """What the network is like. Places are numbers, from 1 on; a link is (source, target)."""

    cuts: frozenset[tuple[int, int]] = frozenset()
    delays_ms: Mapping[int, float] = field(default_factory=dict)  # of all packets to or from
    losses: Mapping[int, float] = field(default_factory=dict)

    def encode(self) -> str:
        return json.dumps(
            [sorted(self.cuts), sorted(self.delays_ms.items()), sorted(self.losses.items())]
        )

    @classmethod
    def decode(cls, text: str) -> Weather:
        cuts, delays, losses = json.loads(text)
        return cls(
            cuts=frozenset((source, target) for source, target in cuts),
            delays_ms=dict(delays),
            losses=dict(losses),
        )


def address_of(place: int) -> str:
    return f"{NETWORK}{place}"


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    _LIBC.prctl(_DIES_WITH_PARENT, signal.SIGKILL)


def enter_namespace(path: str) -> None:
    """Move this thread, and processes that it starts, to another network."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if _LIBC.setns(descriptor, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {path}")
    finally:
        os.close(descriptor)


# --- the process -----------------------------------------------------------------------------


class _Place:
    """One namespace: `tun` has its packets, `namespace` keeps it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.namespace = self.tun = -1
        made = threading.Thread(target=self._make)
        made.start()
        made.join()
        assert self.tun >= 0, f"the network namespace {number} could not be made"

    def _make(self) -> None:
        """In a thread of its own, because it leaves the network of the process."""
        if _LIBC.unshare(_CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "no network namespace; are you root?")
        self.namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", b"t0", _IFF_TUN_NO_PI))
        for command in (
            f"ip address add {address_of(self.number)}/24 dev t0",
            f"ip link set t0 mtu {_MTU} up",
            "ip link set lo up",
        ):
            subprocess.run(command.split(), check=True)
        self.tun = tun


class _Relay:
    """Packets in, packets out. For one thread."""

    def __init__(self, places: Iterable[_Place], seed: int = 0) -> None:
        self._tuns = {place.number: place.tun for place in places}
        self._weather = Weather()
        self._rng = Random(seed)
        self._queue: list[tuple[float, int, int, bytes]] = []
        self._order = 0

    def run(self) -> None:
        """Until the owner closes the input."""
        poll = select.epoll()
        for tun in self._tuns.values():
            poll.register(tun, select.EPOLLIN)
        commands = sys.stdin.fileno()
        poll.register(commands, select.EPOLLIN | select.EPOLLHUP)
        rest = b""
        while True:
            for descriptor, _ in poll.poll(self._wait_s()):
                if descriptor != commands:
                    self._take(descriptor)
                    continue
                data = os.read(commands, 1 << 16)
                if not data:
                    return
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._weather = Weather.decode(line.decode())
                    print("done", flush=True)
            self._deliver()

    def _wait_s(self) -> float:
        return max(0.0, self._queue[0][0] - time.monotonic()) if self._queue else -1

    def _take(self, tun: int) -> None:
        weather, now_s = self._weather, time.monotonic()
        for _ in range(_PACKETS_PER_TURN):
            try:
                packet = os.read(tun, _PACKET_BYTES)
            except BlockingIOError:
                return
            if packet[0] >> 4 != 4:
                continue  # only IPv4 is relayed
            source, target = packet[_SOURCE], packet[_TARGET]
            if (
                target not in self._tuns
                or (source, target) in weather.cuts
                or len(self._queue) >= _QUEUE_MAX
                or self._is_lost(source)
                or self._is_lost(target)
            ):
                continue
            delays = weather.delays_ms
            delay_ms = delays.get(source, 0.0) + delays.get(target, 0.0) if delays else 0.0
            self._order += 1
            heapq.heappush(self._queue, (now_s + delay_ms / 1000, self._order, target, packet))

    def _is_lost(self, place: int) -> bool:
        losses = self._weather.losses
        return bool(losses) and self._rng.random() < losses.get(place, 0.0)

    def _deliver(self) -> None:
        now_s = time.monotonic()
        while self._queue and self._queue[0][0] <= now_s:
            _, _, target, packet = heapq.heappop(self._queue)
            with contextlib.suppress(OSError):  # a full queue loses packets, as a switch does
                os.write(self._tuns[target], packet)


def main() -> None:
    die_with_parent()
    places = [_Place(number + 1) for number in range(int(sys.argv[1]))]
    own = f"/proc/{os.getpid()}/fd"
    print(json.dumps([f"{own}/{place.namespace}" for place in places]), flush=True)
    _Relay(places).run()


# --- its owner -------------------------------------------------------------------------------


class VirtualSwitch:
    """The process. For one thread. `namespaces` has the path of each place's network."""

    def __init__(self, count: int) -> None:
        root = Path(__file__).resolve().parents[3]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "crash.cluster_processes.virtual_switch", str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{root}/tests"},
        )
        paths = self._answer()
        if not paths:
            raise OSError("the switch did not start: network namespaces need root")
        self.namespaces: dict[int, str] = dict(enumerate(json.loads(paths), 1))

    def set(self, weather: Weather) -> None:
        """On return every later packet has this weather."""
        assert self._process.stdin is not None
        self._process.stdin.write(weather.encode() + "\n")
        self._process.stdin.flush()
        assert self._answer() == "done"

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


if __name__ == "__main__":
    main()
