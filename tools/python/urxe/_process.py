"""urxe in the running process.

The library is loaded with its symbols in the global scope. The loader searches this scope before
the libraries of an extension module, so the module's libibverbs is loaded, but not called. The
scope is that of a preloaded library, so the library permits other copies if ``LD_PRELOAD`` has it.
"""
from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path
from typing import Iterable

from urxe._command import UrxeError
from urxe._environment import Devices, Word, environment

#: Libraries that a program may have loaded, such as ``libibverbs-1de1263b.so.1.14.48.0``.
_OTHERS = re.compile(r"^lib(ibverbs|rdmacm)[-.]")
_OWN = "liburxe.so"


def install(
    devices: Devices | None = None,
    faults: str | None = None,
    captures: Word | None = None,
) -> None:
    """Makes extension modules of this process use urxe.

    Call the function before the first import of a module that loads libibverbs. Modules that look
    up libibverbs by ``dlopen`` and ``dlsym`` do not see urxe; start these programs by
    ``urxe.run``. The process does not see the devices in ``/sys/class/infiniband``.
    """
    variables = environment(devices, faults, captures)
    libraries = loaded_libraries()
    other = None if _OWN in map(_name, libraries) else other_library(libraries)
    if other is not None:
        raise UrxeError(
            f"{other} is loaded already; call urxe.install() before the first import of an RDMA "
            "module, or start the program by: urxe run -- python"
        )
    os.environ.update(
        (name, variables[name])
        for name in ("URXE_DEVICES", "URXE_FAULTS", "URXE_CAPTURE")
        if name in variables
    )
    if _OWN in map(_name, libraries):
        return
    folder = variables["LD_LIBRARY_PATH"].partition(":")[0]
    earlier = os.environ.get("LD_PRELOAD")
    os.environ["LD_PRELOAD"] = variables["LD_PRELOAD"]
    try:
        ctypes.CDLL(os.path.join(folder, "libibverbs.so.1"), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise UrxeError(f"cannot load {_OWN}: {error}") from error
    finally:
        # Child processes choose for themselves.
        if earlier is None:
            del os.environ["LD_PRELOAD"]
        else:
            os.environ["LD_PRELOAD"] = earlier


def loaded_libraries() -> list[str]:
    """Returns the paths of the files that this process has mapped."""
    lines = Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines()
    columns = (line.split(maxsplit=5) for line in lines)
    return sorted({column[5] for column in columns if len(column) == 6})


def other_library(libraries: Iterable[str]) -> str | None:
    """Returns a libibverbs or librdmacm of these libraries."""
    return next((path for path in libraries if _OTHERS.match(_name(path))), None)


def _name(path: str) -> str:
    return path.rpartition("/")[2]
