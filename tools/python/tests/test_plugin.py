"""The plugin for pytest, by runs of pytest in processes of their own."""
import socket

import pytest

import urxe

PINGPONG = """
import pytest

def pingpong(rdma):
    server, client = rdma.devices[0], rdma.devices[-1]
    rdma.start(["ibv_rc_pingpong", "-g", "1", "-n", "50", "-p", PORT], device=server)
    for _ in range(100):
        done = rdma.run(["ibv_rc_pingpong", "-g", "1", "-n", "50", "-p", PORT, "localhost"],
                        device=client, timeout=60, capture_output=True, text=True)
        if "Couldn't connect" not in done.stderr:
            break
    assert done.returncode == 0, done

"""


@pytest.fixture
def run(pytester):
    def run(test, *options):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        pytester.makepyfile(PINGPONG.replace("PORT", f"'{port}'") + test)
        return pytester.runpytest_subprocess("--rdma-captures=kept", *options)

    return run


def kept(pytester):
    return sorted(str(file.relative_to(pytester.path)) for file in pytester.path.glob("kept/*/*"))


def test_a_test_that_passes_leaves_no_capture(run, pytester):
    run("""
@pytest.mark.rdma(fault="loss=1%", seed=7, devices=2)
def test_two_hosts(rdma):
    assert [device.name for device in rdma.devices] == ["rxe0", "rxe1"]
    assert rdma.environment["URXE_FAULTS"] == "loss=1%,seed=7"
    assert rdma.environment["URXE_DEVICES"].count("=") == 2
    second = rdma.devices[1]
    assert rdma.environment_of(second)["URXE_DEVICES"] == f"rxe1={second.address}"
    with pytest.raises(ValueError, match="'rxe2' is no device of this test, which has rxe0, rxe1"):
        rdma.run(["true"], device="rxe2")
    pingpong(rdma)
    assert list(rdma.captures.glob("*.pcapng"))
""").assert_outcomes(passed=1)
    assert list(pytester.path.glob("kept/*")) == []


def test_a_test_that_fails_keeps_its_captures_and_names_them(run, pytester):
    result = run("""
@pytest.mark.rdma(fault="loss=1%", seed=7)
def test_fails(rdma):
    pingpong(rdma)
    assert False
""")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*- rdma -*", "devices: rxe0=127.*", "faults: loss=1%,seed=7",
                                 f"captures: {pytester.path}/kept/test_fails (urxe decode*"])
    files = kept(pytester)
    assert len(files) == 2, files
    decoded = [urxe._command.output_of(["decode", str(pytester.path / file)]) for file in files]
    assert any("SEND" in text for text in decoded), decoded


def test_a_failed_test_without_packets_says_so_and_keeps_nothing(run, pytester):
    result = run("def test_fails(rdma): assert False\n")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["captures: none, because no program opened a device"])
    assert list(pytester.path.glob("kept/*")) == []


def test_each_test_has_addresses_of_its_own(run):
    run("""
seen = set()

@pytest.mark.rdma(devices=3)
@pytest.mark.parametrize("n", range(5))
def test_one(rdma, n):
    addresses = {device.address for device in rdma.devices}
    assert len(addresses) == 3 and not addresses & seen
    seen.update(addresses)
""").assert_outcomes(passed=5)


def test_an_address_in_use_is_given_to_no_test():
    from urxe._addresses import Addresses

    first, lock = Addresses().reserve()
    second, other = Addresses().reserve()
    assert first != second
    lock.close()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as program:
        program.bind((first, 4791))
        assert Addresses().reserve()[0] not in (first, second)
    assert Addresses().reserve()[0] == first
    other.close()


def test_started_programs_end_with_their_test(run):
    run("""
import time

def test_starts(rdma):
    global process, child
    process = rdma.start(["sh", "-c", "trap '' TERM; sleep 1000 & echo $!; wait"], stdout=-1)
    child = int(process.stdout.readline())

def test_ended():
    import os
    assert process.returncode is not None
    for _ in range(100):
        try:
            state = open(f"/proc/{child}/stat").read().split()[2]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        time.sleep(0.05)
    assert False, state
""").assert_outcomes(passed=2)


@pytest.mark.parametrize(
    "arguments, said",
    [
        ("fault='los=1%'", "invalid value 'los=1%' for '--fault <FAULTS>': unknown fault"),
        ("loss='1%'", "the marker rdma has no argument 'loss'; allowed: fault, seed, devices"),
        ("'loss=1%'", "the marker rdma takes arguments by name, and 'loss=1%' has none"),
        ("seed=7", "seed=7 of the marker rdma needs fault="),
        ("fault='loss=1%', seed='7'", "seed='7' of the marker rdma is no int"),
        ("fault='loss=1%,seed=1', seed=7", "the marker rdma has two seeds"),
        ("fault='loss=1%', seed=-1", "seed=-1 of the marker rdma is negative"),
        ("devices=0", "devices=0 of the marker rdma is not in 1 to 16"),
    ],
)
def test_wrong_arguments_are_errors_of_one_line(run, pytester, arguments, said):
    result = run(f"@pytest.mark.rdma({arguments})\ndef test_marked(rdma): pass\n")
    result.assert_outcomes(errors=1)
    assert sum(line.startswith(said) for line in result.outlines) == 1, result.outlines
    assert "Traceback" not in str(result.stdout)
    assert list(pytester.path.glob("kept/*")) == []


def test_a_folder_that_cannot_be_made_is_an_error_of_one_line(pytester):
    pytester.makepyfile("def test_one(rdma): pass")
    result = pytester.runpytest_subprocess("--rdma-captures=/proc/none")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["cannot make /proc/none/test_one: *"])
    assert "Traceback" not in str(result.stdout)


def test_the_marker_of_the_function_wins_over_that_of_the_module(run):
    run("""
pytestmark = pytest.mark.rdma(fault="loss=2%", seed=1, devices=2)

@pytest.mark.rdma(fault="loss=1%")
def test_marked(rdma):
    assert rdma.faults == "loss=1%,seed=1" and len(rdma.devices) == 2
""", "--strict-markers").assert_outcomes(passed=1)
