"""The files of the wheel against its RECORD."""
import base64
import hashlib
import importlib.metadata
import os
import subprocess
from pathlib import Path

import urxe

DISTRIBUTION = importlib.metadata.distribution("urxe")


def test_each_file_has_the_hash_and_size_of_its_row():
    checked = []
    for file in DISTRIBUTION.files:
        if file.hash is None:
            continue
        content = Path(DISTRIBUTION.locate_file(file)).read_bytes()
        digest = hashlib.new(file.hash.mode, content).digest()
        assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == file.hash.value, file
        assert file.size == len(content), file
        checked.append(str(file))
    for name in ("bin/urxe", "lib/urxe/liburxe.so", "lib/urxe/liburxe_sysfs.so", "py.typed"):
        assert f"urxe/{name}" in checked


def test_the_metadata_is_that_of_the_command():
    printed = urxe._command.output_of(["--version"])
    assert DISTRIBUTION.version == urxe.__version__ == printed.split()[1]
    names = {(entry.group, entry.name) for entry in DISTRIBUTION.entry_points}
    assert names == {("console_scripts", "urxe"), ("pytest11", "urxe")}
    info = Path(DISTRIBUTION.locate_file(f"urxe-{urxe.__version__}.dist-info"))
    for licence in DISTRIBUTION.metadata.get_all("License-File"):
        assert (info / "licenses" / licence).is_file(), licence


def test_the_command_may_be_executed_by_everybody():
    assert os.stat(urxe._command.command()).st_mode & 0o555 == 0o555


def test_a_lost_mode_is_repaired(tmp_path, monkeypatch):
    copy = tmp_path / "urxe"
    copy.write_text("#!/bin/sh\nexit 0\n")
    copy.chmod(0o644)
    monkeypatch.setattr(urxe._command, "COMMAND", copy)
    assert subprocess.run([urxe._command.command()]).returncode == 0
