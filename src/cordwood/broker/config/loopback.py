"""Whether only programs on this machine can connect to an address."""

import socket
from ipaddress import ip_address
from typing import Final

LOCALHOST: Final = "localhost"


def is_loopback(host: str) -> bool:
    """Whether a listener on `host` is for this machine only.

    A name may mean any address, also one like 127.example.org, so only localhost is believed, and
    that only if the system says that all of its addresses are loopback addresses.
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        pass
    if host.lower() != LOCALHOST:
        return False
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return False
    return bool(found) and all(ip_address(each[4][0]).is_loopback for each in found)
