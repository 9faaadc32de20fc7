#!/bin/sh
# imb.sh PYTHON COUNT: a benchmark of Intel MPI over Debian's libfabric, which the package lacks.
set -eu
home=$(dirname "$(dirname "$1")")
export I_MPI_ROOT="$home" LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$home/lib"
exec "$home/bin/mpirun" -n 2 "$home/bin/IMB-MPI1" -iter "$2" -msglog 16:20 PingPong Allreduce
