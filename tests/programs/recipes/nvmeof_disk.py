"""nvmeof_disk.py: the initiator of the package nvmeof writes and reads blocks of SPDK's disk."""
import random
import sys

import nvmeof

with nvmeof.Controller.connect("127.0.0.1", "nqn.2016-06.io.spdk:cnode1", timeout=60) as controller:
    disk = controller.namespace(1)
    generator = random.Random(7)
    for size in (4096, 65536, 131072, 1 << 20, 4 << 20):
        with controller.allocate(size) as out, controller.allocate(size) as back:
            data = generator.randbytes(size)
            out.write(data)
            disk.write(out, slba=64)
            disk.read(back, slba=64)
            if back.read() != data:
                sys.exit(f"{size} bytes differ")
    disk.flush()
print("disk verified")
