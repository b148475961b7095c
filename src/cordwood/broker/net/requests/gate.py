"""The port of a connection to what stands before its router: see `sasl_gate`."""

from typing import Protocol, TypeVar

# What a gate guards; in the broker a `Connection`. That has a session, and the session its gate.
C_contra = TypeVar("C_contra", contravariant=True)


class Gate(Protocol[C_contra]):
    """Stands before the router while a client has to prove who it is, now or later.

    Belongs to the thread of the connection's loop, except for `is_passed`.
    """

    @property
    def is_passed(self) -> bool:
        """Whether the client has proved who it is, now or before. Any thread."""
        ...

    def admits(self, connection: C_contra, data: memoryview, begin: int, end: int) -> bool:
        """Whether the router may start the request in ``data[begin:end]``.

        If not, the gate answers it. Raises `FormatError` to close the connection.
        """
        ...

    def overdue(self, now_s: float) -> str | None:
        """Why the connection must be closed now; empty: that is logged. Asked repeatedly."""
        ...
