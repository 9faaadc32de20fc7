#!/bin/sh
# netpipe.sh: NetPIPE over Open MPI, first with its check of the data, then with its rates.
set -eu
mpirun.openmpi --oversubscribe -n 2 NPopenmpi -i -u 140000 -n 3 2>&1
mpirun.openmpi --oversubscribe -n 2 NPopenmpi -u 140000 -n 3 2>&1
