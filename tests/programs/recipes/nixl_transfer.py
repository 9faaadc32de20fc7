"""nixl_transfer.py server|client SIZE: READ and WRITE of NIXL's backend for UCX."""
import base64
import sys
import time

import torch
from nixl_cu12._api import nixl_agent, nixl_agent_config
from pair import Peer, data, finish, rate

is_server, size = sys.argv[1] == "server", int(sys.argv[2])
agent = nixl_agent(sys.argv[1], nixl_agent_config(backends=["UCX"]))
wanted = torch.from_numpy(data(size))
buffer = wanted.clone() if is_server else torch.zeros(size, dtype=torch.uint8)
registered = agent.register_memory([buffer])
local = agent.get_xfer_descs([buffer])
peer = Peer(is_server)
if is_server:
    parts = (agent.get_agent_metadata(), agent.get_serialized_descs(local))
    peer.send([base64.b64encode(part).decode() for part in parts])
    peer.receive()
    finish("server", bool((buffer == wanted.flip(0)).all()))
metadata, descriptors = (base64.b64decode(part) for part in peer.receive())
name = agent.add_remote_agent(metadata)
remote = agent.deserialize_descs(descriptors)


def transfer(operation):
    handle = agent.initialize_xfer(operation, local, remote, name)
    start = time.time()
    state = agent.transfer(handle)
    while state != "DONE":
        if state == "ERR" or time.time() - start > 30:
            finish(f"{operation} {state}", False)
        state = agent.check_xfer_state(handle)
    print(operation, rate(size, start), flush=True)


is_right = True
for _ in range(3):
    buffer.zero_()
    transfer("READ")
    is_right = is_right and bool((buffer == wanted).all())
buffer.copy_(wanted.flip(0))
transfer("WRITE")
peer.send("done")
finish("client", is_right)
