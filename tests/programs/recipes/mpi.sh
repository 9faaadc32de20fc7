#!/bin/sh
# mpi.sh openmpi|mpich RANKS COUNT: compiles mpi.c for an MPI library and runs it.
set -eu
"mpicc.$1" -O2 -Wall -o mpi "$(dirname "$0")/mpi.c"
case $1 in
openmpi) exec mpirun.openmpi --oversubscribe -n "$2" ./mpi "$3" ;;
mpich) exec mpiexec.mpich -n "$2" ./mpi "$3" ;;
esac
