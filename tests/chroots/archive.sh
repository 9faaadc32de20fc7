# The archive: unpacked, moved, and moved again while links to its former place exist.
. /mnt/source/tests/chroots/common.sh

install ibverbs-utils
remember

for place in /opt/first /home/user/second; do
	heading "in $place"
	if [ -e /opt/first ]; then
		mv /opt/first "$place"
	else
		mkdir "$place"
		tar -xzf /mnt/packages/urxe-*-"$(uname -m)".tar.gz -C "$place" --strip-components=1
	fi
	as_user "$place/bin" 'urxe doctor'
	pingpong "$place/bin"
	as_user "$place/bin" 'urxe run -- sh -c "rdma link show"'
done
rm -r /home/user/second
nothing_left
