#!/bin/sh
# libfabric.sh URXE: runs libfabric's own programs over its verbs provider, in a new network
# namespace. An interface other than loopback has the address, because libfabric connects over no
# loopback interface (prov/verbs, verbs_info.c).
set -eu
urxe=$1
address=10.79.0.1
# TCP port of fi_pingpong's control connection (47592), as /proc/net/tcp prints it.
port=B9E8

ip link set lo up
ip link add urxe0 type veth peer name urxe1
ip address add $address/24 dev urxe0
ip link set urxe0 up
ip link set urxe1 up

over() {
	"$urxe" run --link rxe0=$address -- timeout 60 "$@"
}

over fi_info -p verbs
for endpoint in msg dgram rdm; do
	over fi_pingpong -p verbs -e $endpoint -I 20 -c &
	server=$!
	until grep -q ":$port .* 0A " /proc/net/tcp /proc/net/tcp6; do
		kill -0 $server
		sleep 0.02
	done
	echo "fi_pingpong $endpoint"
	over fi_pingpong -p verbs -e $endpoint -I 20 -c $address
	wait $server
done
