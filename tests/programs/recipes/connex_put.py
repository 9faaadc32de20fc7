"""connex_put.py server|client SIZE: WRITE with a message, and READ, by the package connex-rs."""
import sys

import connex_rs
import numpy as np
from pair import Peer, data, finish

is_server, size = sys.argv[1] == "server", int(sys.argv[2])
peer = Peer(is_server)
engine = connex_rs.Engine(
    "model", stage=int(is_server), shard=0, replica=0, listen_ip="127.0.0.1",
    port=51001 + is_server, heartbeat_ms=1000, heartbeat_timeout_ms=30000)
buffer = np.zeros(size, dtype=np.uint8)
engine.register_memory(buffer.ctypes.data, size)
wanted = data(size)
url, address = peer.exchange([engine.local_url, buffer.ctypes.data])

if is_server:
    message = None
    while message is None:
        message = engine.recv_msg(timeout_ms=100)
    is_right = message[1] == b"written" and np.array_equal(buffer, wanted)
else:
    buffer[:] = wanted
    is_right = engine.put_signal(url, buffer.ctypes.data, address, size, b"written").wait()
    buffer[:] = 0
    is_right &= engine.transfer_sync_read(url, buffer.ctypes.data, address, size) == 0
    is_right &= np.array_equal(buffer, wanted)
peer.exchange("done")
finish(sys.argv[1], is_right)
