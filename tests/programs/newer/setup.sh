#!/bin/sh
# Unpacks (never installs) the RDMA programs and rdma-core's tests of Debian 13 (trixie) and of
# Debian's sid, with all dependencies down to the C library, into folders for chroot. A second run
# downloads nothing. --refresh downloads newer packages. --root SUITE prints the folder.
#
# The cache folder is $URXE_PROGRAMS_CACHE, else ${XDG_CACHE_HOME:-~/.cache}/urxe/programs. For each
# suite it contains
#   SUITE/root/   the packages' files
#   SUITE/stamp   the version of rdma-core, written last: a folder without it is incomplete
set -eu

# Programs and tests of rdma-core, programs that the tests call (ip, cat), and perftest.
packages='ibverbs-utils python3-pyverbs perftest iproute2 bash dash coreutils'

cache=${URXE_PROGRAMS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/urxe/programs}

refresh=
case "${1-} ${2-}" in
	' ') ;;
	'--refresh ') refresh=1 ;;
	'--root trixie' | '--root sid') echo "$cache/$2/root"; exit 0 ;;
	*) echo "usage: $0 [--refresh | --root trixie | --root sid]" >&2; exit 2 ;;
esac

archive=$(apt-cache policy libibverbs1 | sed -n 's/^ *[0-9]* \([a-z]*:[^ ]*\) [a-z]*\/main .*/\1/p' | head -n 1)
[ -n "$archive" ] || { echo "rdma-core: no Debian archive in this apt's sources" >&2; exit 1; }

# unpack SUITE
unpack() {
	suite=$1
	dir=$cache/$suite
	root=$dir/root
	if [ -z "$refresh" ] && [ -s "$dir/stamp" ]; then
		echo "rdma-core $(cat "$dir/stamp"): already here"
		return
	fi
	rm -rf "$dir"
	mkdir -p "$root" "$dir/lists/partial" "$dir/archives/partial"
	# Package lists of the suite, separate from the lists of this machine, from the same archive.
	echo "deb $archive $suite main" >"$dir/sources"
	# With an empty list of installed packages, so that apt downloads all dependencies as well.
	apart="-o Dir::Etc::sourcelist=$dir/sources -o Dir::Etc::sourceparts=- -o Dir::State::lists=$dir/lists -o Dir::State::status=/dev/null
	 -o Dir::Cache::archives=$dir/archives -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root"
	apt-get -qq $apart update
	apt-get -qq $apart --download-only -y --no-install-recommends install $packages >"$dir/download.log" 2>&1 ||
		{ cat "$dir/download.log" >&2; exit 1; }
	version=$(apt-cache $apart policy libibverbs1 | sed -n 's/^ *Candidate: //p')
	for package in "$dir"/archives/*.deb; do dpkg -x "$package" "$root"; done

	# Files that an ordinary user needs.
	echo 'nobody:x:65534:65534:nobody:/home/nobody:/bin/sh' >"$root/etc/passwd"
	echo '127.0.0.1 localhost' >"$root/etc/hosts"
	mkdir -p "$root/home/nobody" "$root/proc" "$root/sys" "$root/dev" "$root/opt/suite"
	chown 65534 "$root/home/nobody"
	# The tests run `rdma link show -j` for the kernel's devices, which fails on a kernel without RDMA.
	# This replacement prints an empty list.
	rm -f "$root/usr/bin/rdma"
	printf '#!/bin/sh\necho "[]"\n' >"$root/usr/bin/rdma"
	chmod 755 "$root/usr/bin/rdma"
	cp -rL "$root/usr/share/doc/rdma-core/tests" "$root/opt/suite/"
	gunzip -rf "$root/opt/suite/tests"
	rm -rf "$dir/archives" "$dir/lists" "$dir/sources" "$dir/download.log"
	echo "$version" >"$dir/stamp"
	echo "rdma-core $version: unpacked into $root"
}

unpack trixie
unpack sid
