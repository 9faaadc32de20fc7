#!/bin/sh
# enter.sh ROOT CHECK: runs the script CHECK.sh as root in a folder with a Debian. cargo xtask chroots
# calls it in namespaces for mounts and processes, so all mounts and processes end with the script.
#
#   /mnt/source     the checkout, read-only
#   /mnt/packages   the folder $PACKAGES, read-only
#   /mnt/rust       the toolchain $RUST, read-only
#   /mnt/cargo      cargo's folder $CARGO with the downloaded crates
set -eu
root=$1
# debootstrap leaves the name out.
echo "127.0.0.1 localhost" > "$root/etc/hosts"
mount --make-rprivate /
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
for pair in "source=$PWD" "packages=$PACKAGES" "rust=$RUST"; do
	mkdir -p "$root/mnt/${pair%%=*}"
	mount -o bind,ro "${pair#*=}" "$root/mnt/${pair%%=*}"
done
mkdir -p "$root/mnt/cargo/registry"
mount --bind "$CARGO/registry" "$root/mnt/cargo/registry"
exec chroot "$root" env -i HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
	PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
	sh -eu "/mnt/source/tests/chroots/$2.sh"
