"""``urxe.environment`` and ``urxe.run``."""
import os
import subprocess

import pytest

import urxe


def test_the_variables_are_those_of_the_command():
    variables = urxe.environment(["a=127.0.0.2", "b=127.0.0.3"], "loss=1%,seed=7")
    assert variables["URXE_DEVICES"] == "a=127.0.0.2,b=127.0.0.3"
    assert variables["URXE_FAULTS"] == "loss=1%,seed=7"
    assert variables["LD_PRELOAD"].partition(":")[0].endswith("/libibverbs.so.1")
    script = 'eval "$("$0" env -d 127.0.0.2)"; env -0'
    shell = subprocess.run(["sh", "-c", script, urxe._command.command()], stdout=subprocess.PIPE)
    printed = dict(line.split("=", 1) for line in shell.stdout.decode().split("\0") if line)
    own = urxe.environment("127.0.0.2")
    assert own == {name: printed[name] for name in own}


def test_values_with_apostrophes_and_line_ends_arrive(monkeypatch):
    value = "/it's/a\nexport X='folder'"
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{value}")
    variables = urxe.environment()
    assert variables["PATH"].endswith(f":{value}")
    assert "X" not in variables


def test_a_program_gets_its_device_and_leaves_a_capture(tmp_path):
    captures = tmp_path / "new" / "folder"
    done = urxe.run(
        ["ibv_devinfo"], devices="127.64.0.1", captures=captures, check=True,
        stdout=subprocess.PIPE, text=True,
    )
    assert "0000:5efe:7f40:0001" in done.stdout
    assert [file.suffix for file in captures.iterdir()] == [".pcapng"]


def test_the_status_of_the_program_is_returned():
    assert urxe.run(["sh", "-c", "exit 3"]).returncode == 3


@pytest.mark.parametrize(
    "arguments, said",
    [
        ({"faults": "los=1%"}, 'unknown fault "los"'),
        ({"devices": ["a=127.0.0.2", "127.0.0.3"]}, "'127.0.0.3' has no name"),
        ({"devices": ["a=127.0.0.2", "a=127.0.0.3"]}, "listed a second time"),
        ({"captures": "/proc/none"}, "cannot make /proc/none"),
    ],
)
def test_errors_are_one_sentence(arguments, said):
    with pytest.raises(urxe.UrxeError) as error:
        urxe.environment(**arguments)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_command_is_no_text():
    with pytest.raises(urxe.UrxeError, match="list of words"):
        urxe.run("ibv_devinfo")
