"""A project's tests with the fixture ``rdma`` of the plugin for pytest."""
import time

import pytest


def pingpong(rdma):
    server, client = rdma.devices
    command = ["ibv_rc_pingpong", "-g", "1", "-n", "300", "-p", "18591"]
    listener = rdma.start(command, device=server)
    for _ in range(100):
        done = rdma.run([*command, "localhost"], device=client, timeout=60, capture_output=True)
        if b"Couldn't connect" not in done.stderr:
            break
        time.sleep(0.1)
    assert done.returncode == 0, done
    assert listener.wait(60) == 0


@pytest.mark.rdma(devices=2)
def test_two_hosts(rdma):
    pingpong(rdma)


@pytest.mark.rdma(fault="loss=1%", seed=7, devices=2)
def test_two_hosts_with_loss(rdma):
    assert rdma.faults == "loss=1%,seed=7"
    pingpong(rdma)
