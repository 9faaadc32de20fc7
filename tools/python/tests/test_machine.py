"""Machines that lack what the package needs."""
import pytest

from urxe import UrxeError, _command, _machine

MAJOR, MINOR = _machine.GLIBC
GOOD = {"system": "linux", "machine": _machine.MACHINE, "is_64_bit": True, "library": "2.34"}


@pytest.mark.parametrize(
    "change, said",
    [
        ({"system": "darwin"}, "urxe needs Linux, and this system is darwin"),
        ({"machine": "riscv64"}, "and this machine is riscv64"),
        ({"is_64_bit": False}, "this one has 32 bits"),
        ({"library": None}, "this Python uses musl"),
        (
            {"library": f"{MAJOR}.{MINOR - 1}"},
            f"needs glibc {MAJOR}.{MINOR} or newer, and this machine has glibc {MAJOR}.{MINOR - 1}",
        ),
        ({"library": "2.9"}, "this machine has glibc 2.9"),
    ],
)
def test_each_missing_property_has_a_sentence(change, said):
    problem = _machine.problem_of(**{**GOOD, **change})
    assert said in problem and "\n" not in problem


@pytest.mark.parametrize("library", [f"{MAJOR}.{MINOR}", "2.34", "2.36", "2.100", "2.36.9000", "3.0"])
def test_newer_libraries_serve(library):
    assert _machine.problem_of(**{**GOOD, "library": library}) is None


def test_this_machine_serves():
    assert _machine.problem() is None


def test_the_command_says_why_it_does_not_run(monkeypatch, capsys):
    monkeypatch.setattr(_machine, "problem", lambda: "urxe needs Linux")
    with pytest.raises(SystemExit) as exit:
        _command.main()
    assert exit.value.code == "urxe: urxe needs Linux"
    with pytest.raises(UrxeError, match="^urxe needs Linux$"):
        _command.command()
