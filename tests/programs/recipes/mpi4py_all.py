"""mpi4py_all.py COUNT: messages, collectives of objects, and one-sided accesses of mpi4py, with every
byte compared."""
import sys
import time

import numpy as np
from mpi4py import MPI

SIZE = 1 << 20
comm = MPI.COMM_WORLD
rank, ranks = comm.rank, comm.size
count = int(sys.argv[1])
data = [np.random.default_rng(r).integers(0, 256, SIZE, dtype=np.uint8) for r in range(ranks)]
mine, got = data[rank], np.zeros(SIZE, dtype=np.uint8)
after, before = (rank + 1) % ranks, (rank - 1) % ranks

comm.Sendrecv(mine, after, recvbuf=got, source=before)
assert np.array_equal(got, data[before])
assert comm.allgather({"rank": rank}) == [{"rank": r} for r in range(ranks)]
assert comm.alltoall([(rank, r) for r in range(ranks)]) == [(r, rank) for r in range(ranks)]
assert comm.allreduce(rank + 1) == ranks * (ranks + 1) // 2
got[:] = data[0] if rank == 0 else 0
comm.Bcast(got)
assert np.array_equal(got, data[0])

window = MPI.Win.Allocate(SIZE, 1, comm=comm)
memory = np.frombuffer(window.tomemory(), dtype=np.uint8)
window.Fence()
window.Put(mine, after)
window.Fence()
assert np.array_equal(memory, data[before])
window.Get(got, after)
window.Fence()
assert np.array_equal(got, mine)
# Over UCX, Open MPI posts the READ of the old values and the WRITE of the new ones without a fence.
for length in (4, 36, 4096, 70000, SIZE):
    window.Lock(after)
    window.Put(mine[:length], after)
    window.Flush(after)
    got[:] = 0
    window.Get_accumulate(data[before][:length], got[:length], after, op=MPI.REPLACE)
    window.Flush(after)
    assert np.array_equal(got[:length], mine[:length]), length
    window.Get(got[:length], after)
    window.Unlock(after)
    assert np.array_equal(got[:length], data[before][:length]), length
window.Free()

start = time.time()
for _ in range(count if rank < 2 else 0):
    comm.Sendrecv(mine, 1 - rank, recvbuf=got, source=1 - rank)
    assert np.array_equal(got, data[1 - rank])
rate = 2 * count * SIZE / 1e6 / (time.time() - start)
comm.Barrier()
if rank == 0:
    print(f"{ranks} ranks verified, {rate:.1f} MB/s")
