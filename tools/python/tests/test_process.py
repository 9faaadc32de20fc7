"""``urxe.install`` beside Debian's pyverbs, each in a process of its own."""
import subprocess
import sys

import pytest

pytest.importorskip("pyverbs", reason="python3-pyverbs is not installed")

LIST = "import pyverbs.device as d; print(*[x.name.decode() for x in d.get_device_list()])"
OPEN = "c = d.Context(name='rxe0'); print(c.query_gid(1, 1))"
PAIR = """
from pyverbs.pd import PD
from pyverbs.mr import MR
from pyverbs.cq import CQ
import pyverbs.enums as e
pd = PD(c)
mr = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE)
mr.write('hello', 5)
print(mr.read(5, 0).decode(), CQ(c, 4).cqe >= 4)
"""


def python(code, *arguments):
    words = [sys.executable, "-c", code]
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_pyverbs_uses_urxe_in_the_running_process():
    done = python(f"import urxe; urxe.install('127.64.0.7')\n{LIST}\n{OPEN}\n{PAIR}")
    lines = done.stdout.splitlines()
    assert lines[0] == "rxe0", done
    assert lines[1].endswith("7f40:0007"), done
    assert lines[2] == "hello True", done


def test_pyverbs_uses_urxe_in_a_child():
    code = f"import urxe, sys; urxe.run([sys.executable, '-c', {LIST!r}], check=True)"
    done = python(code)
    assert done.stdout.split() == ["rxe0"], done


def test_a_loaded_libibverbs_is_an_error_that_says_what_to_do():
    done = python("import pyverbs.device, urxe; urxe.install()")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "libibverbs.so.1" in last and "is loaded already; call urxe.install()" in last, done


def test_a_second_call_and_a_process_of_urxe_run_change_nothing():
    code = f"import urxe; urxe.install()\n{LIST}\nurxe.install()"
    done = python(code)
    assert (done.returncode, done.stdout.split()) == (0, ["rxe0"]), done
    done = python(f"import urxe, sys; urxe.run([sys.executable, '-c', {code!r}], check=True)")
    assert done.stdout.split() == ["rxe0"], done
