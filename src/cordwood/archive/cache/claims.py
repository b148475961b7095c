"""Who brings something that others wait for.

A claim belongs to the call that made it, and is void when that call is over, however it ended: an
interrupt can keep a call from giving its claim up. So who waits for a claim looks at it from time
to time, and takes over what is claimed by nobody any more.
"""

import threading
from typing import Final
from weakref import ref

LOOK_S: Final = 1.0  # claims are given up with a notice; only interrupts make somebody wait so long


class Claim:
    """Held by the call that made it, and by nobody else: see `is_void`.

    is_open   whether the call has claimed something and not given it up; a traceback may keep the
              claim when the call is over
    """

    __slots__ = ("__weakref__", "is_open", "thread_id")

    def __init__(self) -> None:
        self.thread_id = threading.get_ident()
        self.is_open = False

    @property
    def is_void(self) -> bool:
        """Whether nobody may wait for it.

        If a thread asks for what it claimed itself, the call that claimed it is over.
        """
        return not self.is_open or self.thread_id == threading.get_ident()


def is_void(claim: "ref[Claim]") -> bool:
    """Whether the call that made it is over, so that nobody may wait for it."""
    found = claim()
    return found is None or found.is_void
