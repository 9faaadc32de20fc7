#!/bin/sh
# mpi.sh URXE FOLDER: runs the programs of recipes/mpi.c in FOLDER by four ranks, over Debian's MPICH
# and Open MPI and over each of their ways to RDMA, without any variable. Captures go to
# FOLDER/NAME-PID.pcapng.
#
# Ranks of one host use shared memory beside RDMA. Each rank has an IPC namespace, as ranks in
# containers have, so that UCX uses RDMA between them. MPICH's own shared memory is for ranks of one
# host, so each rank gets a host name. Debian's configuration of Open MPI turns UCX and libfabric
# off (/etc/openmpi/openmpi-mca-params.conf), and the options turn them on.
set -eu
urxe=$1
folder=$2
open_mpi="mpirun.openmpi --allow-run-as-root --oversubscribe -n 4"

over() {
	name=$1
	shift
	echo "mpi over $name"
	timeout 60 "$urxe" run --capture "$folder/$name-%p.pcapng" --capture-headers -- "$@"
}

ip link set lo up
over mpich-ucx mpirun.mpich -launcher fork -hosts a,b,c,d -n 4 unshare --ipc "$folder/mpi-mpich"
over openmpi-ucx $open_mpi --mca pml ucx --mca osc ucx unshare --ipc "$folder/mpi-openmpi"
# libfabric 1.17 may crash in MPI_Finalize, about once in forty runs: rxm_close_conn closes an
# endpoint and then handles receives that completed there before (rxm_flush_msg_cq). All data is
# checked before.
over openmpi-libfabric $open_mpi --mca mtl ofi "$folder/mpi-openmpi" || test $? = 139
