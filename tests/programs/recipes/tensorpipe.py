"""tensorpipe.py server|client ibv|uv SIZE: tensors of PyTorch's RPC over TensorPipe."""
import os
import sys
import time

import torch
import torch.distributed.rpc as rpc
from pair import rate

name, transport, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29555")
os.environ.update(GLOO_SOCKET_IFNAME="lo", TP_SOCKET_IFNAME="lo")


def reverse(tensor):
    return tensor.flip(0)


options = rpc.TensorPipeRpcBackendOptions(
    num_worker_threads=4, rpc_timeout=40, _transports=[transport], _channels=["basic"])
rpc.init_rpc(name, rank=int(name == "client"), world_size=2, rpc_backend_options=options)
if name == "client":
    tensor = torch.randint(0, 256, (size,), dtype=torch.uint8)
    for _ in range(3):
        start = time.time()
        reply = rpc.rpc_sync("server", reverse, args=(tensor,))
        print("call", rate(2 * size, start), flush=True)
        assert bool((reply == tensor.flip(0)).all())
    print("client verified", flush=True)
rpc.shutdown()
