"""mooncake_engine.py server|client rdma|tcp SIZE: WRITE and READ of Mooncake's transfer engine."""
import sys
import time

import numpy as np
from mooncake.engine import TransferEngine
from pair import Peer, data, finish, rate

is_server, protocol, size = sys.argv[1] == "server", sys.argv[2], int(sys.argv[3])
engine = TransferEngine()
device = "rxe0" if protocol == "rdma" else ""
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", protocol, device) == 0
wanted = data(size)
buffer = np.zeros(size, dtype=np.uint8) if is_server else wanted.copy()
assert engine.register_memory(buffer.ctypes.data, size) == 0
peer = Peer(is_server)
if is_server:
    peer.send([f"127.0.0.1:{engine.get_rpc_port()}", buffer.ctypes.data])
    peer.receive()
    finish("server", np.array_equal(buffer, wanted))
name, address = peer.receive()
for _ in range(3):
    start = time.time()
    assert engine.transfer_sync_write(name, buffer.ctypes.data, address, size) == 0
    print("write", rate(size, start), flush=True)
buffer[:] = 0
assert engine.transfer_sync_read(name, buffer.ctypes.data, address, size) == 0
peer.send("done")
finish("client", np.array_equal(buffer, wanted))
