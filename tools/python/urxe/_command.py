"""The command ``urxe`` of this package, and its errors."""
from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import NoReturn, Sequence

from urxe import _machine

#: The command. It finds its libraries in ``lib/urxe`` beside its folder.
COMMAND = Path(__file__).resolve().parent / "bin" / "urxe"


class UrxeError(Exception):
    """An error of the command or of this package. Its text is one sentence."""


def command() -> str:
    """Returns the path of the command, if this machine can run it."""
    problem = _machine.problem()
    if problem is not None:
        raise UrxeError(problem)
    if not os.access(COMMAND, os.X_OK):
        _make_executable()
    return str(COMMAND)


def output_of(arguments: Sequence[str]) -> str:
    """Runs the command and returns its output. Its notes go to standard error."""
    done = subprocess.run(
        [command(), *arguments], capture_output=True, encoding="utf-8", errors="surrogateescape"
    )
    if done.returncode != 0:
        raise UrxeError(first_sentence(done.stderr) or f"urxe exited with {done.returncode}")
    sys.stderr.write(done.stderr)
    return done.stdout


def first_sentence(text: str) -> str:
    """Returns the first line of an error, without the names before it."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    for name in ("error: ", "urxe: "):
        line = line[len(name):] if line.startswith(name) else line
    return line


def main() -> NoReturn:
    """Becomes the command, with the arguments of this process."""
    try:
        os.execv(command(), ["urxe", *sys.argv[1:]])
    except (UrxeError, OSError) as error:
        sys.exit(f"urxe: {error}")


def _make_executable() -> None:
    """Repairs the mode, which some installers do not keep."""
    try:
        COMMAND.chmod(stat.S_IMODE(COMMAND.stat().st_mode) | 0o111)
    except OSError as error:
        raise UrxeError(f"{COMMAND} cannot be executed: {error.strerror}") from error
