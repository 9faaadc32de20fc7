#!/bin/sh
# ssh.sh server|client BYTES [PRELOAD]: ssh whose connection is netcat's, which PRELOAD moves to
# rsockets. The server of ssh talks to netcat by pipes, because it forks, and rsockets end there.
# Debian 12's librspreload.so lacks accept4, which accept4.c adds.
set -eu
port=2222
preload=${3:-}
case $1 in
server)
	if [ "$preload" ]; then
		gcc -shared -fPIC -O1 -o accept4.so "$(dirname "$0")/accept4.c"
		preload=$PWD/accept4.so:$preload
	fi
	ssh-keygen -q -t ed25519 -N '' -f host
	ssh-keygen -q -t ed25519 -N '' -f user
	mkdir -p /run/sshd
	mkfifo in out
	echo ready
	env ${preload:+LD_PRELOAD="$preload"} nc.openbsd -l 127.0.0.1 "$port" >in <out &
	/usr/sbin/sshd -i -e -f /dev/null -h "$PWD/host" -o StrictModes=no -o UsePAM=no \
		-o AuthorizedKeysFile="$PWD/user.pub" <in >out
	;;
client)
	head -c "$2" /dev/urandom >sent
	start=$(date +%s%N)
	ssh -q -i user -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
		-o ProxyCommand="env ${preload:+LD_PRELOAD=$preload} nc.openbsd -N %h %p" \
		-p "$port" root@127.0.0.1 "tee $PWD/received" <sent >returned
	end=$(date +%s%N)
	cmp sent received
	cmp sent returned
	echo "verified, $((2 * $2 * 1000 / (end - start))) MB/s"
	;;
esac
