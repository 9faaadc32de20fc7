#!/bin/sh
# rpma.sh server|client COUNT: compiles rpma.c and runs one end.
set -eu
cc -O1 -Wall -o "rpma-$1" "$(dirname "$0")/rpma.c" -lrpma -libverbs
exec "./rpma-$1" "$@"
