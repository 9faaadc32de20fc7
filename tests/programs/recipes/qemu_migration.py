"""qemu_migration.py rdma|tcp BYTES: QEMU moves a stopped guest with random memory to another process
of this host; the memories must be equal."""
import json
import os
import socket
import subprocess
import sys
import time

scheme, size = sys.argv[1], int(sys.argv[2])
START = 16 << 20
MEMORY = START + size
URI = f"{scheme}:127.0.0.1:4444"


class Guest:
    """A QEMU process, and its monitor."""

    def __init__(self, name, *options):
        self.memory = os.path.abspath(f"{name}.memory")
        command = ["qemu-system-x86_64", "-M", "pc,accel=tcg", "-m", f"{MEMORY >> 20}", "-S"]
        command += ["-nodefaults", "-display", "none", "-qmp", f"unix:{name}.sock,server=on,wait=off"]
        self.process = subprocess.Popen([*command, *options])
        self.socket = socket.socket(socket.AF_UNIX)
        for _ in range(200):
            try:
                self.socket.connect(f"{name}.sock")
                break
            except OSError:
                time.sleep(0.05)
        self.file = self.socket.makefile("r")
        self.file.readline()
        self.run("qmp_capabilities")

    def run(self, command, **arguments):
        request = {"execute": command, "arguments": arguments}
        self.socket.sendall(json.dumps(request).encode() + b"\n")
        for line in self.file:
            reply = json.loads(line)
            if "error" in reply:
                raise SystemExit(f"{command}: {reply}")
            if "return" in reply:
                return reply["return"]
        raise SystemExit(f"{command}: QEMU ended")

    def save(self):
        self.run("pmemsave", val=START, size=size, filename=self.memory)
        with open(self.memory, "rb") as file:
            return file.read()


with open("random", "wb") as file:
    data = os.urandom(size)
    file.write(data)
target = Guest("target", "-incoming", URI)
source = Guest("source", "-device", f"loader,file=random,addr={START},force-raw=on")
source.run("migrate-set-parameters", **{"max-bandwidth": 1 << 40})
source.run("migrate", uri=URI)
while True:
    state = source.run("query-migrate")
    if state.get("status") in ("completed", "failed"):
        break
    time.sleep(0.02)
print(state["status"], state.get("ram", {}).get("mbps"), "Mb/s", flush=True)
is_right = state["status"] == "completed" and source.save() == data == target.save()
for guest in (source, target):
    guest.run("quit")
    guest.process.wait()
print("memory", "verified" if is_right else "DIFFERS")
sys.exit(not is_right)
