#!/bin/sh
# inside.sh ROOT COMMAND: runs COMMAND as the user nobody with the root folder ROOT, in a new mount
# namespace. Needs root.
root=$1
shift
exec unshare --mount sh -c '
	root=$1; shift
	for folder in proc sys dev; do mount --rbind "/$folder" "$root/$folder"; done
	exec chroot --userspec=65534:65534 "$root" env -i HOME=/home/nobody URXE_LOG="${URXE_LOG-}" \
		PATH=/usr/bin:/bin:/usr/sbin:/sbin:/opt/urxe/bin "$@"' sh "$root" "$@"
