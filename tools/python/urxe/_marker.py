"""The marker ``rdma`` of tests: its arguments, and their errors."""
from __future__ import annotations

from typing import Any, Iterable, NamedTuple

from urxe._command import UrxeError

#: The arguments, with their types.
_ARGUMENTS: dict[str, type] = {"fault": str, "seed": int, "devices": int}
#: The most devices of a test.
_DEVICES_MAX = 16

LINE = (
    "rdma(fault=None, seed=None, devices=1): the faults of received packets (urxe run --fault), "
    "their seed, and the number of devices of the fixture rdma"
)


class Settings(NamedTuple):
    """What the markers of a test ask for."""

    #: As ``urxe run --fault`` takes it.
    faults: str | None
    #: The number of devices.
    devices: int


def settings(markers: Iterable[Any]) -> Settings:
    """Returns the settings of a test. An earlier marker wins: that of the function is the first."""
    given: dict[str, Any] = {}
    for marker in markers:
        if marker.args:
            raise UrxeError(
                f"the marker rdma takes arguments by name, and {marker.args[0]!r} has none; "
                f"allowed: {', '.join(_ARGUMENTS)}"
            )
        for name, value in marker.kwargs.items():
            _check(name, value)
            given.setdefault(name, value)
    devices = given.get("devices", 1)
    return Settings(_faults(given.get("fault"), given.get("seed")), devices)


def _check(name: str, value: Any) -> None:
    """Refuses an argument that the marker does not take."""
    kind = _ARGUMENTS.get(name)
    if kind is None:
        raise UrxeError(
            f"the marker rdma has no argument {name!r}; allowed: {', '.join(_ARGUMENTS)}"
        )
    if not isinstance(value, kind) or isinstance(value, bool):
        raise UrxeError(f"{name}={value!r} of the marker rdma is no {kind.__name__}")
    if not isinstance(value, int):
        return
    if name == "devices" and not 1 <= value <= _DEVICES_MAX:
        raise UrxeError(f"devices={value} of the marker rdma is not in 1 to {_DEVICES_MAX}")
    if value < 0:
        raise UrxeError(f"{name}={value} of the marker rdma is negative")


def _faults(fault: str | None, seed: int | None) -> str | None:
    if seed is None:
        return fault
    if fault is None:
        raise UrxeError(f"seed={seed} of the marker rdma needs fault=")
    if any(part.strip().startswith("seed=") for part in fault.split(",")):
        raise UrxeError(f"the marker rdma has two seeds: seed={seed} and fault={fault!r}")
    return f"{fault},seed={seed}"
