"""The devices of one test, and the programs that use them."""
from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any, NamedTuple, Sequence

from urxe._addresses import Addresses
from urxe._environment import Word, environment, started

#: How long a process may take to end after SIGTERM, in seconds.
_PATIENCE = 5


class Device(NamedTuple):
    """A device of a test."""

    name: str
    address: str


class Rdma:
    """The value of the fixture ``rdma``."""

    #: The devices ``rxe0``, ``rxe1`` and so on, each with an address of its own.
    devices: list[Device]
    #: The folder of the captures, one file for each process.
    captures: Path
    #: The faults with their seed, or ``None``.
    faults: str | None

    def __init__(
        self, addresses: Addresses, count: int, faults: str | None, captures: Path
    ) -> None:
        #: Processes, each with whether it leads a process group.
        self._processes: list[tuple[subprocess.Popen[Any], bool]] = []
        reserved = [addresses.reserve() for _ in range(count)]
        self._locks = [lock for _, lock in reserved]
        self.devices = [Device(f"rxe{n}", address) for n, (address, _) in enumerate(reserved)]
        self.captures = captures
        self.faults = faults
        self._variables: dict[tuple[Device, ...], dict[str, str]] = {}
        try:
            # The command chooses a seed if the faults have none.
            self.faults = self._variables_of(self.devices).get("URXE_FAULTS")
        except Exception:
            self.close()
            raise

    @property
    def environment(self) -> dict[str, str]:
        """All variables for a program that uses the devices, with those of this process."""
        return self.environment_of(None)

    def environment_of(self, device: Device | str | None) -> dict[str, str]:
        """Returns all variables for a program that uses one device, or all of them."""
        return {**os.environ, **self._variables_of(self._selected(device))}

    def run(
        self, command: Sequence[Word], *, device: Device | str | None = None, **arguments: Any
    ) -> subprocess.CompletedProcess[Any]:
        """Runs a program with all devices or one, and waits for its end.

        The other arguments are those of ``subprocess.run``.
        """
        arguments.setdefault("env", self.environment_of(device))
        return subprocess.run(started(command), **arguments)

    def start(
        self, command: Sequence[Word], *, device: Device | str | None = None, **arguments: Any
    ) -> subprocess.Popen[Any]:
        """Starts a program, such as a server. The end of the test ends its process group.

        The other arguments are those of ``subprocess.Popen``.
        """
        arguments.setdefault("env", self.environment_of(device))
        arguments.setdefault("start_new_session", True)
        process = subprocess.Popen(started(command), **arguments)
        self._processes.append((process, arguments["start_new_session"]))
        return process

    def close(self) -> None:
        """Ends the started programs and frees the addresses."""
        for process, is_leader in reversed(self._processes):
            _end(process, is_leader)
        for lock in self._locks:
            lock.close()

    def _selected(self, device: Device | str | None) -> list[Device]:
        if device is None:
            return self.devices
        found = [own for own in self.devices if device in (own, own.name)]
        if not found:
            names = ", ".join(own.name for own in self.devices)
            raise ValueError(f"{device!r} is no device of this test, which has {names}")
        return found

    def _variables_of(self, devices: list[Device]) -> dict[str, str]:
        key = tuple(devices)
        if key not in self._variables:
            links = [f"{device.name}={device.address}" for device in devices]
            self._variables[key] = environment(links, self.faults, self.captures)
        return self._variables[key]


def _end(process: subprocess.Popen[Any], is_leader: bool) -> None:
    """Ends a process, and those of its process group if it leads one."""
    _signal(process, is_leader, signal.SIGTERM)
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if is_leader:
        _signal(process, is_leader, signal.SIGKILL)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _signal(process: subprocess.Popen[Any], is_leader: bool, number: signal.Signals) -> None:
    if not is_leader:
        process.send_signal(number)
        return
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass
