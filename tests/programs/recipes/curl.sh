#!/bin/sh
# curl.sh server|client BYTES [PRELOAD]: curl and Python's HTTP server, whose sockets PRELOAD moves to
# rsockets. Debian 12's librspreload.so lacks accept4, which accept4.c adds.
set -eu
port=8080
preload=${3:-}
case $1 in
server)
	if [ "$preload" ]; then
		gcc -shared -fPIC -O1 -o accept4.so "$(dirname "$0")/accept4.c"
		preload=$PWD/accept4.so:$preload
	fi
	head -c "$2" /dev/urandom >page
	exec env ${preload:+LD_PRELOAD="$preload"} python3 -u -m http.server --bind 127.0.0.1 "$port"
	;;
client)
	env ${preload:+LD_PRELOAD="$preload"} curl -sS -o copy -w '%{speed_download} bytes/s\n' \
		"http://127.0.0.1:$port/page"
	cmp page copy
	echo verified
	;;
esac
