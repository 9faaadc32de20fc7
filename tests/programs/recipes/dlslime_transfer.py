"""dlslime_transfer.py server|client rdma|tcp SIZE: READ, WRITE, and over RDMA immediate data and
messages of DLSlime."""
import sys
import time

import numpy as np
from dlslime import _slime_c as slime
from pair import Peer, data, finish, rate

PART = 1 << 20
is_server, is_rdma, size = sys.argv[1] == "server", sys.argv[2] == "rdma", int(sys.argv[3])
if is_rdma:
    end = slime.RDMAEndpoint(device_name="rxe0", ib_port=1, link_type="RoCE", num_qp=1)
else:
    end = slime.TcpEndpoint("127.0.0.1", 0)
wanted = data(size)
buffer = wanted.copy() if is_server else np.zeros(size, dtype=np.uint8)
local = end.register_memory_region("buffer", buffer.ctypes.data, 0, size)
peer = Peer(is_server)
info, regions = peer.exchange(end.endpoint_info()), peer.exchange(end.mr_info())
if is_rdma or not is_server:
    end.connect(info)
remote = end.register_remote_memory_region("buffer", regions["buffer"])
peer.exchange("connected")
parts = [(local, remote, at, at, PART) for at in range(0, size, PART)]
is_right = True
if is_server:
    peer.exchange("written")
    is_right = np.array_equal(buffer, wanted[::-1])
    if is_rdma:
        peer.exchange("posted")
        end.write_with_imm([(local, remote, 0, 0, 4096)], 5).wait()
        buffer[:] = 0
        received = end.recv((buffer.ctypes.data, 0, 4096))
        peer.exchange("ready")
        received.wait()
        is_right = is_right and bool((buffer[:4096] == 7).all())
        peer.exchange("done")
else:
    for _ in range(3):
        buffer[:] = 0
        start = time.time()
        end.read(parts).wait()
        print("read", rate(size, start), flush=True)
        is_right = is_right and np.array_equal(buffer, wanted)
    buffer[:] = wanted[::-1]
    end.write(parts).wait()
    peer.exchange("written")
    if is_rdma:
        future = end.imm_recv()
        peer.exchange("posted")
        future.wait()
        peer.exchange("ready")
        buffer[:4096] = 7
        end.send((buffer.ctypes.data, 0, 4096)).wait()
        peer.exchange("done")
finish(sys.argv[1], is_right)
