"""A plugin for pytest: the fixture ``rdma`` and the marker of the same name.

Each test has devices on loopback addresses of its own. The captures of a test that fails are kept,
and its report has their folder. Those of a test that passes are removed.
"""
from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any, Generator

import pytest

from urxe import _marker
from urxe._addresses import Addresses
from urxe._command import UrxeError
from urxe._fixture import Device, Rdma

__all__ = ["Device", "Rdma", "rdma"]

#: Where the fixture of a test, and the test's result so far, are kept.
_RDMA = pytest.StashKey[Rdma]()
_FAILED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("rdma").addoption(
        "--rdma-captures",
        metavar="FOLDER",
        help="folder for the captures of failed tests; default: pytest's temporary folder",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _marker.LINE)


@pytest.fixture(scope="session")
def _rdma_addresses() -> Addresses:
    return Addresses()


@pytest.fixture
def rdma(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    _rdma_addresses: Addresses,
) -> Generator[Rdma, None, None]:
    """RDMA devices for programs that the test starts."""
    folder = _captures(request, tmp_path_factory)
    value, problem = _made(request.node, _rdma_addresses, folder)
    if value is None:
        _remove(folder)
        pytest.fail(problem, pytrace=False)
    request.node.stash[_RDMA] = value
    request.node.stash[_FAILED] = False
    yield value
    value.close()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    report = (yield).get_result()
    value = item.stash.get(_RDMA, None)
    if value is None:
        return
    if report.failed:
        item.stash[_FAILED] = True
        report.sections.append(("rdma", _description(value)))
    if report.when == "teardown" and not _is_kept(item, value):
        _remove(value.captures)


def _made(item: pytest.Item, addresses: Addresses, folder: Path) -> tuple[Rdma | None, str]:
    """Returns the value of the fixture, or why there is none."""
    try:
        faults, devices = _marker.settings(item.iter_markers("rdma"))
        return Rdma(addresses, devices, faults, folder), ""
    except UrxeError as error:
        return None, str(error)


def _captures(request: pytest.FixtureRequest, temporary: pytest.TempPathFactory) -> Path:
    """Returns a new folder for the captures of a test."""
    name = re.sub(r"[^\w.-]+", "_", request.node.name)[:64]
    chosen = request.config.getoption("--rdma-captures")
    if chosen is None:
        return temporary.mktemp(f"rdma-{name}-")
    parent = Path(request.config.invocation_params.dir, chosen)
    number = 0
    while True:
        folder = parent / (f"{name}-{number}" if number else name)
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            number += 1
        except OSError as error:
            text = f"cannot make {folder}: {error.strerror}"
            raise pytest.fail.Exception(text, pytrace=False) from None


def _is_kept(item: pytest.Item, value: Rdma) -> bool:
    return item.stash.get(_FAILED, False) and any(value.captures.glob("*.pcapng"))


def _description(value: Rdma) -> str:
    """Returns what the report of a failed test says."""
    devices = ", ".join(f"{device.name}={device.address}" for device in value.devices)
    lines = [f"devices: {devices}"]
    if value.faults is not None:
        lines.append(f"faults: {value.faults}")
    if any(value.captures.glob("*.pcapng")):
        lines.append(f"captures: {value.captures} (urxe decode FILE, or Wireshark)")
    else:
        lines.append("captures: none, because no program opened a device")
    return "\n".join(lines)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
