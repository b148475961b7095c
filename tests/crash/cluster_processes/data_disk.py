"""A disk of a broker: a file system in an image of its own, which fills up and loses power.

A power cut is made by the file system itself. `EXT4_IOC_SHUTDOWN` without a flush of the journal
ends it at once: dirty pages and the open journal transaction are dropped, and the next mount
replays the journal, as after a real power cut. So the kernel decides what was synced, and not the
program that is tested.

Mounts belong to the mount namespace that `leave_mounts` made: they end with their processes.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
import subprocess
import time
from pathlib import Path
from typing import Final

_CLONE_NEWNS: Final = 0x00020000
_EXT4_IOC_SHUTDOWN: Final = 0x8004587D
_WITHOUT_LOG_FLUSH: Final = 2
_BALLAST: Final = ".ballast"
_BUSY_S: Final = 20.0
_BALLAST_STEPS: Final = (1 << 20, 1 << 16, 1 << 12)


def leave_mounts() -> None:
    """Have this process mount for itself and its children alone."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "no mount namespace; are you root?")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


class DataDisk:
    """One mounted image. For one thread; nothing may be open in it for `cut_power` and `close`."""

    def __init__(self, image: Path, mount_point: Path, *, size_mib: int) -> None:
        self._image = image
        self.path = mount_point
        mount_point.mkdir(parents=True)
        with open(image, "wb") as file:
            file.truncate(size_mib << 20)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
        self._mount()

    def _mount(self) -> None:
        command = ["mount", "-o", "loop,noatime", str(self._image), str(self.path)]
        subprocess.run(command, check=True)

    def shut_down(self) -> None:
        """From now on nothing reaches the disk. What was not synced is gone."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, _EXT4_IOC_SHUTDOWN, struct.pack("I", _WITHOUT_LOG_FLUSH))
        finally:
            os.close(descriptor)

    def power_on(self) -> None:
        """Mount it again, after `shut_down`."""
        self._unmount()
        self._mount()

    def fill(self) -> None:
        """Leave no free block."""
        descriptor = os.open(self.path / _BALLAST, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            end = os.fstat(descriptor).st_size
            for step in _BALLAST_STEPS:
                while _has_taken(descriptor, end, step):
                    end += step
        finally:
            os.close(descriptor)

    def free(self) -> None:
        """Make room again, durably: a power cut must not fill the disk once more."""
        (self.path / _BALLAST).unlink(missing_ok=True)
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        self._unmount()

    def _unmount(self) -> None:
        """The kernel may close the files of a killed process a moment after it is gone."""
        until_s = time.monotonic() + _BUSY_S
        while subprocess.run(
            ["umount", str(self.path)], capture_output=True, check=False
        ).returncode:
            if time.monotonic() > until_s:
                raise OSError(errno.EBUSY, f"{self.path} stays in use")
            time.sleep(0.05)


def _has_taken(descriptor: int, end: int, step: int) -> bool:
    try:
        os.posix_fallocate(descriptor, end, step)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False
    return True
