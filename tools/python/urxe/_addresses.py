"""Loopback addresses that no other test uses.

An abstract socket of Unix reserves each address. Such a name belongs to a network namespace, as a
loopback address does, and it is free when its process ends. So processes of pytest-xdist, several
runs and several users need no other agreement.
"""
from __future__ import annotations

import ipaddress
import os
import socket

from urxe._command import UrxeError

#: 127.64.0.0/10, in which Linux distributions use no address.
_FIRST = int(ipaddress.IPv4Address("127.64.0.1"))
_COUNT = 2**22 - 2
#: The distance between the first addresses of processes with consecutive identifiers.
_STEP = 64
#: How many addresses may be in use before one that is free.
_ATTEMPTS = 4096
#: The UDP port of RoCEv2.
_PORT = 4791


class Addresses:
    """The addresses of one process of pytest."""

    def __init__(self) -> None:
        self._next = os.getpid() * _STEP

    def reserve(self) -> tuple[str, socket.socket]:
        """Returns an address, which is reserved until the socket is closed."""
        for _ in range(_ATTEMPTS):
            address = str(ipaddress.IPv4Address(_FIRST + self._next % _COUNT))
            self._next += 1
            lock = _lock(address)
            if lock is not None:
                return address, lock
        raise UrxeError(f"UDP port {_PORT} of the {_ATTEMPTS} addresses up to {address} is in use")


def _lock(address: str) -> socket.socket | None:
    """Reserves an address if no test and no program uses it."""
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lock.bind(f"\0urxe-pytest-{address}")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((address, _PORT))
    except OSError:
        lock.close()
        return None
    return lock
