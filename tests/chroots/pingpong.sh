# Both sides of ibv_rc_pingpong exchange messages by `urxe run`. The server listens when the client's
# connection succeeds.
set -e
urxe run -- ibv_rc_pingpong -g 1 -p 18590 &
server=$!
tries=0
until urxe run -- ibv_rc_pingpong -g 1 -p 18590 localhost; do
	tries=$((tries + 1))
	[ $tries -lt 50 ] || { kill $server; exit 1; }
	sleep 0.1
done
wait $server
