"""mooncake_store.py server|client rdma|tcp SIZE: objects of Mooncake's store; the server also starts
the store's master."""
import os
import subprocess
import sys
import time

from mooncake.store import MooncakeDistributedStore
from pair import Peer, data, finish, rate

is_server, protocol, size = sys.argv[1] == "server", sys.argv[2], int(sys.argv[3])
if is_server:
    program = os.path.join(os.path.dirname(sys.executable), "mooncake_master")
    master = subprocess.Popen([program, "--port", "50051"])
    time.sleep(1)
peer = Peer(is_server)
store = MooncakeDistributedStore()
own = "127.0.0.1:" + ("17001" if is_server else "17002")
device = "rxe0" if protocol == "rdma" else ""
segment = 8 * size + (64 << 20) if is_server else 0
assert store.setup(own, "P2PHANDSHAKE", segment, 64 << 20, protocol, device, "127.0.0.1:50051") == 0
peer.exchange("ready")
if is_server:
    peer.receive()
    master.terminate()
    finish("server", True)
wanted = data(size).tobytes()
start = time.time()
for nr in range(4):
    assert store.put(f"key{nr}", wanted) == 0
print("put", rate(4 * size, start))
is_right = all(store.get(f"key{nr}") == wanted for nr in range(4))
peer.send("done")
finish("client", is_right)
