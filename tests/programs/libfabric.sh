#!/bin/sh
# libfabric.sh URXE: runs libfabric's own programs over its verbs provider, in a new network
# namespace: over the default device on loopback, and over the address of an interface.
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

# play ADDRESS ENDPOINTS: OPTIONS are those of urxe.
play() {
	echo "fi_info over $1"
	"$urxe" run $options -- timeout 60 fi_info -p verbs
	for endpoint in $2; do
		"$urxe" run $options -- timeout 60 fi_pingpong -p verbs -e $endpoint -I 20 -c &
		server=$!
		until grep -q ":$port .* 0A " /proc/net/tcp /proc/net/tcp6; do
			kill -0 $server
			sleep 0.02
		done
		echo "fi_pingpong $endpoint over $1"
		"$urxe" run $options -- timeout 60 fi_pingpong -p verbs -e $endpoint -I 20 -c $1
		wait $server
	done
}

options=--sysfs
play 127.0.0.1 "msg rdm"
options="--link rxe0=$address"
play $address "msg dgram rdm"
