"""Whether this machine can run the programs of the package.

pip checks the same by the name of the wheel. This check is for copies that came another way.
"""
from __future__ import annotations

import os
import platform
import sys

from urxe._build import GLIBC, MACHINE


def problem() -> str | None:
    """Returns a sentence that says why this machine cannot run the programs."""
    return problem_of(sys.platform, platform.machine(), sys.maxsize > 2**32, _c_library())


def problem_of(system: str, machine: str, is_64_bit: bool, library: str | None) -> str | None:
    """Returns the sentence for a machine with these properties."""
    if system != "linux":
        return f"urxe needs Linux, and this system is {system}; use a Linux container or machine"
    if machine != MACHINE:
        return f"this wheel of urxe is for {MACHINE}, and this machine is {machine}"
    if not is_64_bit:
        return "urxe needs a 64-bit Python, and this one has 32 bits"
    wanted = ".".join(map(str, GLIBC))
    if library is None:
        return f"urxe needs glibc {wanted} or newer, and this Python uses musl or the like"
    if _numbers(library) < GLIBC:
        return f"urxe needs glibc {wanted} or newer, and this machine has glibc {library}"
    return None


def _c_library() -> str | None:
    """Returns the version of glibc, or ``None`` for another C library."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (AttributeError, OSError, ValueError):
        return None
    return version if name == "glibc" and version else None


def _numbers(version: str) -> tuple[int, ...]:
    """Returns the first two numbers of a version such as 2.36 or 2.36.9000."""
    parts = version.split(".")[:2]
    return tuple(int(part) if part.isdigit() else 0 for part in parts)
