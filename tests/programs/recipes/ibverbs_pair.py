"""ibverbs_pair.py server|client SIZE: WRITE and READ by the Python bindings of the package ibverbs."""
import base64
import sys
import time

import ibverbs as ib
import numpy as np
from pair import Peer, data, finish, rate

is_server, size = sys.argv[1] == "server", int(sys.argv[2])
context = ib.get_device_list()[0].open()
domain = context.alloc_pd()
queue = context.create_cq(64)
flags = ib.AccessFlags
access = flags.LOCAL_WRITE | flags.REMOTE_WRITE | flags.REMOTE_READ | flags.REMOTE_ATOMIC
buffer = np.zeros(size, dtype=np.uint8)
region = domain.reg_mr(buffer.ctypes.data, size, access)
pair = domain.create_qp(ib.QPInitAttr(send_cq=queue, recv_cq=queue, qp_type=ib.QPType.RC))
local = ib.local_qp_info(pair, context.query_port(1), context.query_gid(1, 1), port=1, psn=0)
peer = Peer(is_server)
remote = peer.exchange(base64.b64encode(local.to_bytes()).decode())
remote = ib.QPInfo.from_bytes(base64.b64decode(remote))
ib.connect_rc(pair, remote, port=1, sgid_index=1, access=access)
address, key = peer.exchange([region.addr, region.rkey])
wanted = data(size)


def do(opcode):
    start = time.time()
    pair.post_send(ib.SendWR(
        wr_id=1, sg_list=[ib.SGE(region, size)], opcode=opcode,
        send_flags=ib.SendFlags.SIGNALED, remote_addr=address, rkey=key))
    while time.time() - start < 30:
        for completion in queue.poll(16):
            completion.raise_for_status()
            return print(opcode.name, rate(size, start), flush=True)
    finish("no completion", False)


if is_server:
    peer.exchange("written")
    is_right = np.array_equal(buffer, wanted)
else:
    buffer[:] = wanted
    do(ib.WROpcode.RDMA_WRITE)
    peer.exchange("written")
    buffer[:] = 0
    do(ib.WROpcode.RDMA_READ)
    is_right = np.array_equal(buffer, wanted)
peer.exchange("done")
finish(sys.argv[1], is_right)
