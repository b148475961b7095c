"""Programs on the same machine are sent to without pacing.

Where the system's congestion control is BBR, a timer releases the bytes of a connection in
portions, at the rate that the network is thought to have. Between two programs on one machine there
is no network to protect, and each portion wakes the client: eight times for a response of 1 MiB,
instead of once or twice. So such connections get an algorithm that does not pace.

A socket that has begun with BBR keeps its timer with another algorithm, too: the algorithm of the
listening socket, which the accepted ones begin with, has more effect.
"""

import contextlib
import socket
from ipaddress import IPv6Address, ip_address
from typing import Final

_PACING: Final = b"bbr"  # and its later versions: bbr2, bbr3
# The default of Linux, and the one that every Linux has and permits.
_UNPACED: Final = (b"cubic", b"reno")
_NAME_BYTES_MAX: Final = 16


def send_unpaced(connected: socket.socket) -> None:
    """Replace BBR for this socket, if it has it. Other algorithms were chosen by the operator."""
    if not hasattr(socket, "TCP_CONGESTION"):  # not Linux
        return
    try:
        if not congestion_control(connected).startswith(_PACING):
            return
    except OSError:
        return  # a sandbox without this option
    for name in _UNPACED:
        with contextlib.suppress(OSError):  # it is not loaded, or not permitted
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name)
            return


def congestion_control(connected: socket.socket) -> bytes:
    """The name of its algorithm."""
    name = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _NAME_BYTES_MAX)
    return name.partition(b"\0")[0]


def is_of_this_machine(connected: socket.socket, host: str) -> bool:
    """Whether the client, at the address `host`, runs on this machine.

    Then the system gives both ends the same address, or the client a loopback address: 127.0.0.1,
    if it connects to 127.0.1.1. It drops packets of others that claim either.
    """
    try:
        own = str(connected.getsockname()[0])
    except (OSError, IndexError):
        return False  # it is gone already
    return own == host or _is_loopback(host)


def _is_loopback(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False  # not an address: of another kind of socket
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
