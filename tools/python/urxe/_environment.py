"""Programs over urxe: the variables of ``urxe env``, and ``urxe run``."""
from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any, Iterable, Sequence, Union

from urxe import _command

#: A device, or several: an address, a name, or ``NAME=ADDRESS``.
Devices = Union[str, Iterable[str]]
Word = Union[str, "os.PathLike[str]"]

#: A line of ``urxe env``. The shell's form of an apostrophe inside the value is ``'\''``.
_LINE = re.compile(r"^export (\w+)='((?:[^']|'\\'')*)'$", re.MULTILINE)


def environment(
    devices: Devices | None = None,
    faults: str | None = None,
    captures: Word | None = None,
) -> dict[str, str]:
    """Returns the variables with which programs use urxe, as ``urxe env`` prints them.

    ``devices`` is one device (``"127.0.0.2"``), or several (``["rxe0=127.0.0.2", ...]``).
    ``faults`` has the form of ``urxe run --fault``. ``captures`` is a folder that gets a file of
    each process; it is made if it does not exist.

    >>> subprocess.run(command, env={**os.environ, **urxe.environment()})
    """
    printed = _command.output_of(["env", *_options(devices, faults, captures)])
    return {name: value.replace(r"'\''", "'") for name, value in _LINE.findall(printed)}


def run(
    command: Sequence[Word],
    *,
    devices: Devices | None = None,
    faults: str | None = None,
    captures: Word | None = None,
    **subprocess_arguments: Any,
) -> subprocess.CompletedProcess[Any]:
    """Runs a program over urxe and waits for its end.

    The other arguments are those of ``subprocess.run``, for example ``check=True``.
    """
    options = _options(devices, faults, captures)
    return subprocess.run(started(command, options), **subprocess_arguments)


def started(command: Sequence[Word], options: Sequence[str] = ()) -> list[str]:
    """Returns the words that start a program by ``urxe run``."""
    if isinstance(command, (str, bytes)) or not command:
        raise _command.UrxeError(f"the command is a list of words, and not {command!r}")
    words = [os.fspath(word) for word in command]
    return [_command.command(), "run", *options, "--", *words]


def _options(devices: Devices | None, faults: str | None, captures: Word | None) -> list[str]:
    """Returns the options of ``urxe run`` and ``urxe env``."""
    options = _device_options([devices] if isinstance(devices, str) else list(devices or ()))
    if faults is not None:
        options.append(f"--fault={faults}")
    if captures is not None:
        folder = Path(captures)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _command.UrxeError(f"cannot make {folder}: {error.strerror}") from error
        options.append(f"--capture={folder.absolute() / '%p.pcapng'}")
    return options


def _device_options(devices: list[str]) -> list[str]:
    if len(devices) == 1 and "=" not in devices[0]:
        return [f"--device={devices[0]}"]
    for device in devices:
        if "=" not in device:
            raise _command.UrxeError(
                f"{device!r} has no name; one of several devices has the form NAME=ADDRESS"
            )
    return [f"--link={device}" for device in devices]
