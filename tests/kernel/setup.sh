#!/bin/sh
# Installs the requirements of the kernel peers on Debian or Ubuntu: the packages below, and
# Debian's kernels 6.1 and 6.12, which it unpacks (never installs) into the cache folder. A second
# run downloads nothing. --refresh downloads newer kernels.
#
# The cache folder is $URXE_KERNEL_CACHE, else ${XDG_CACHE_HOME:-~/.cache}/urxe/kernels. For each
# kernel it contains
#   SERIES/root/   files of the package: boot/vmlinuz-VERSION, lib/modules/VERSION (with modules.dep)
#   SERIES/stamp   the package's name, written last: a folder without it is incomplete
# The guest's program posts FLUSH and ATOMIC WRITE, which the rdma-core of Debian 12 lacks. For this
# program, the folder contains files of Debian 13:
#   verbs/root/    libibverbs with its header, its provider and the libraries that they load
#   verbs/stamp    its version
#
# --kernel newest prepares, besides these kernels, the newest one of trixie-backports and sid. Its files
# come from several packages, whose names are linux-binary-..., linux-modules-... and linux-base-...
#   newest/root/, newest/stamp
#
# --arch arm64 prepares guests with AArch64 kernels in the folder "arm64" of the cache folder. It
# has the same folders, and the guest's programs of that architecture:
#   programs/root/  the packages with all that they depend on
#   programs/stamp  written last
set -eu

# On the host: emulator, image and network. In the guest: RDMA programs. gcc compiles the guest's
# program.
packages='qemu-system-x86 busybox-static kmod xz-utils iproute2 tcpdump util-linux
 ibverbs-utils rdmacm-utils perftest rdma-core ibverbs-providers ethtool
 gcc libc6-dev libibverbs-dev librdmacm-dev'

cache=${URXE_KERNEL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/urxe/kernels}

refresh=
newest=
arch=amd64
while [ $# -gt 0 ]; do
	case "$1 ${2-}" in
		'--refresh '*) refresh=1 ;;
		'--packages '*) echo $packages; exit 0 ;;
		'--kernel newest') newest=1; shift ;;
		'--arch amd64' | '--arch arm64') arch=$2; shift ;;
		*) echo "usage: $0 [--packages | [--refresh] [--kernel newest] [--arch amd64 | --arch arm64]]" >&2; exit 2 ;;
	esac
	shift
done
# Options for the packages of an architecture that this machine does not have.
foreign=
if [ $arch = arm64 ]; then
	packages="$packages qemu-system-arm gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
	cache=$cache/arm64
	mkdir -p "$cache/lists/partial"
	: >"$cache/no-packages"
	foreign="-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::status=$cache/no-packages \
		-o Dir::State::lists=$cache/lists -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
		-o APT::Sandbox::User=root"
fi

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

updated=
update_once() {
	[ -n "$updated" ] || as_root apt-get -qq $foreign update
	updated=1
}

# Prints the dependency of the meta package: linux-image-amd64 -> linux-image-6.1.0-56-amd64.
image_of() {
	apt-cache $foreign depends --no-recommends --no-suggests "$1" 2>/dev/null |
		sed -n 's/^ *Depends: \(linux-image-[0-9].*\)$/\1/p' | head -n 1
}

# unpack_kernel SERIES OPTIONS-OF-APT PACKAGE...
unpack_kernel() {
	dir=$cache/$1
	options=$2
	shift 2
	rm -rf "$dir/root" "$dir/stamp"
	mkdir -p "$dir/root"
	(cd "$dir" && apt-get -qq $options download "$@" 2>"$dir/download.log") || { cat "$dir/download.log" >&2; exit 1; }
	for package in "$dir"/*.deb; do dpkg -x "$package" "$dir/root"; done
	rm -f "$dir"/*.deb "$dir/download.log"
	# Packages of Debian 13 have usr/lib/modules, but depmod and the image builder read
	# lib/modules.
	[ -d "$dir/root/lib/modules" ] || ln -s usr/lib "$dir/root/lib"
	for modules in "$dir"/root/lib/modules/*; do
		# A split package keeps the kernel beside its modules.
		if [ -f "$modules/vmlinuz" ]; then
			mkdir -p "$dir/root/boot"
			ln -s "../lib/modules/${modules##*/}/vmlinuz" "$dir/root/boot/vmlinuz-${modules##*/}"
		fi
		PATH=$PATH:/usr/sbin:/sbin depmod -b "$dir/root" "${modules##*/}"
	done
}

# kernel SERIES META-PACKAGE
kernel() {
	dir=$cache/$1
	if [ -z "$refresh" ] && [ -s "$dir/stamp" ]; then
		echo "kernel $1: $(cat "$dir/stamp"), already here"
		return
	fi
	update_once
	image=$(image_of "$2")
	case "$image" in
		linux-image-"$1".*) ;;
		*) echo "kernel $1: $2 stands for '${image:-nothing}' in this apt's sources; add Debian 12's (bookworm and" \
			"bookworm-security)" >&2; exit 1 ;;
	esac
	if [ "$(cat "$dir/stamp" 2>/dev/null)" = "$image" ]; then
		echo "kernel $1: $image, still the newest"
		return
	fi
	unpack_kernel "$1" "$foreign" "$image"
	echo "$image" >"$dir/stamp"
	echo "kernel $1: $image, unpacked into $dir"
}

# of_suites SUITE...: sets $apart to options for package lists of these suites of Debian. They are
# separate from the lists of this machine, in the folder $dir, and come from the same archive.
of_suites() {
	archive=$(apt-cache policy libibverbs1 | sed -n 's/^ *[0-9]* \([a-z]*:[^ ]*\) [a-z]*\/main .*/\1/p' | head -n 1)
	[ -n "$archive" ] || { echo "no Debian archive in this apt's sources" >&2; exit 1; }
	lists=$dir/lists
	rm -rf "$lists"
	mkdir -p "$lists/partial"
	for suite in "$@"; do echo "deb $archive $suite main"; done >"$dir/sources"
	# shellcheck disable=SC2089,SC2090
	apart="-o Dir::Etc::sourcelist=$dir/sources -o Dir::Etc::sourceparts=- -o Dir::State::lists=$lists \
		-o Dir::State::status=/dev/null -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
		-o APT::Sandbox::User=root -o APT::Architecture=$arch -o APT::Architectures=$arch"
	as_root apt-get -qq $apart update
}

newest_kernel() {
	dir=$cache/newest
	if [ -z "$refresh" ] && [ -s "$dir/stamp" ]; then
		echo "newest kernel: $(cat "$dir/stamp"), already here"
		return
	fi
	of_suites trixie-backports sid
	# "linux-image-amd64 | 7.2.13-1 | ...", a line for each version. backports has a lower priority, so
	# apt's candidate is not always the newest.
	version=
	for each in $(apt-cache $apart madison linux-image-$arch | cut -d '|' -f 2); do
		if [ -z "$version" ] || dpkg --compare-versions "$each" gt "$version"; then version=$each; fi
	done
	[ -n "$version" ] || { echo "newest kernel: no linux-image-$arch in trixie-backports and sid" >&2; exit 1; }
	image=$(apt-cache $apart show "linux-image-$arch=$version" | sed -n 's/^Depends:.*\(linux-image-[0-9][^ ,]*\).*/\1/p')
	parts=
	for part in binary modules base; do
		parts="$parts linux-$part-${image#linux-image-}"
	done
	unpack_kernel newest "$apart" $parts
	rm -rf "$dir/lists" "$dir/sources"
	echo "$image" >"$dir/stamp"
	echo "newest kernel: $image, unpacked into $dir"
}

# The packages that the guest's program is compiled against and runs with.
verbs_packages='libibverbs1 ibverbs-providers libibverbs-dev libnl-3-200 libnl-route-3-200 libc6'

verbs() {
	dir=$cache/verbs
	if [ -z "$refresh" ] && [ -s "$dir/stamp" ]; then
		echo "rdma-core: $(cat "$dir/stamp"), already here"
		return
	fi
	update_once
	rm -rf "$dir"
	mkdir -p "$dir/root"
	of_suites trixie
	version=$(apt-cache $apart policy libibverbs1 | sed -n 's/^ *Candidate: //p')
	(cd "$dir" && apt-get -qq $apart download $verbs_packages 2>"$dir/download.log") ||
		{ cat "$dir/download.log" >&2; exit 1; }
	for package in "$dir"/*.deb; do dpkg -x "$package" "$dir/root"; done
	rm -rf "$dir"/*.deb "$dir/download.log" "$dir/lists" "$dir/sources"
	echo "$version" >"$dir/stamp"
	echo "rdma-core: $version, unpacked into $dir"
}

# The guest's programs, and those of the init script.
programs_packages='busybox-static iproute2 ethtool ibverbs-utils rdmacm-utils perftest ibverbs-providers
 libgcc-s1 librdmacm1'

programs() {
	dir=$cache/programs
	if [ -z "$refresh" ] && [ -s "$dir/stamp" ]; then
		echo "programs: already here"
		return
	fi
	update_once
	rm -rf "$dir"
	mkdir -p "$dir/root" "$dir/packages/partial"
	as_root apt-get -qq $foreign -o Dir::Cache::archives="$dir/packages" --no-install-recommends \
		--download-only -y install $programs_packages
	for package in "$dir"/packages/*.deb; do dpkg -x "$package" "$dir/root"; done
	rm -rf "$dir/packages"
	echo "$programs_packages" >"$dir/stamp"
	echo "programs: unpacked into $dir"
}

missing=
for package in $packages; do
	case "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" in
		installed) ;;
		*) missing="$missing $package" ;;
	esac
done
if [ -n "$missing" ]; then
	as_root apt-get -qq update
	DEBIAN_FRONTEND=noninteractive as_root apt-get -qq install -y --no-install-recommends $missing
	[ $arch != amd64 ] || updated=1
fi
kernel 6.1 linux-image-$arch
kernel 6.12 linux-image-6.12-$arch
[ -z "$newest" ] || newest_kernel
verbs
[ $arch = amd64 ] || programs
