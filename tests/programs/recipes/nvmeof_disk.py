"""nvmeof_disk.py HOST NQN ROUNDS: the initiator of the package nvmeof writes and reads blocks of a disk."""
import random
import sys

import nvmeof

host, name, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
with nvmeof.Controller.connect(host, name, timeout=60) as controller:
    disk = controller.namespace(1)
    generator = random.Random(7)
    for round in range(rounds):
        for size in (4096, 65536, 131072, 1 << 20, 4 << 20):
            with controller.allocate(size) as out, controller.allocate(size) as back:
                data = generator.randbytes(size)
                out.write(data)
                disk.write(out, slba=64)
                disk.read(back, slba=64)
                if back.read() != data:
                    sys.exit(f"{size} bytes differ")
        disk.flush()
        print(f"round {round} verified", flush=True)
print("disk verified")
