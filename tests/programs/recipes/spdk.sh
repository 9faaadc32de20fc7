#!/bin/sh
# spdk.sh target|verify|perf SPDK [ARGUMENT]: NVMe over Fabrics by SPDK, whose built tree SPDK names.
# The target has a disk in memory, over RDMA on port 4420 and over TCP on port 4421. ARGUMENT is an
# option of the target, or `tcp` for an end without RDMA. SPDK_ADDRESS is the target's address. A
# target with SPDK_DISK has its disk in this file.
set -eu
spdk=$2
name=nqn.2016-06.io.spdk:cnode1
address=${SPDK_ADDRESS:-127.0.0.1}
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$spdk/build/lib"
case ${3:-} in
tcp) transport=TCP transports=TCP port=4421 option= ;;
*) transport=RDMA transports="RDMA TCP" port=4420 option=${3:-} ;;
esac
rpc() {
	PYTHONPATH=$spdk/python python3 "$spdk/scripts/rpc.py" -s "$PWD/target.sock" "$@"
}
case $1 in
target)
	# This process becomes the target, which ends if a command fails.
	rm -f target.sock
	(
		trap 'kill $$' EXIT
		until [ -S target.sock ]; do sleep 0.1; done
		for each in $transports; do rpc nvmf_create_transport -t "$each"; done
		if [ -n "${SPDK_DISK:-}" ]; then
			truncate -s 128M "$SPDK_DISK"
			rpc bdev_aio_create "$SPDK_DISK" Disk0 4096
		else
			rpc bdev_malloc_create -b Disk0 128 4096
		fi
		rpc nvmf_create_subsystem "$name" -a -s SPDK00000000000001 -d SPDK_Controller1
		rpc nvmf_subsystem_add_ns -u 11111111-2222-3333-4444-555555555555 \
			-g 11111111222233334444555555555555 "$name" Disk0
		for each in $transports; do
			[ "$each" = TCP ] && service=4421 || service=4420
			rpc nvmf_subsystem_add_listener "$name" -t "$each" -a "$address" -s "$service"
		done
		trap - EXIT
		echo ready
	) &
	# shellcheck disable=SC2086 # the option may be absent
	exec "$spdk/build/bin/nvmf_tgt" --no-huge -s 1024 --no-pci -m 0x1 \
		--disable-cpumask-locks -r "$PWD/target.sock" $option
	;;
verify)
	cat >bdevperf.json <<-JSON
		{"subsystems": [{"subsystem": "bdev", "config": [
		{"method": "bdev_nvme_attach_controller", "params": {"name": "Nvme0",
		"trtype": "$transport", "adrfam": "ipv4", "traddr": "$address",
		"trsvcid": "$port", "subnqn": "$name"}}]}]}
	JSON
	exec "$spdk/build/examples/bdevperf" --no-huge -s 1024 --no-pci -m 0x2 --disable-cpumask-locks \
		-r "$PWD/bdevperf.sock" --json bdevperf.json -q 16 -o 16384 -w verify -t 2
	;;
perf)
	exec "$spdk/build/bin/spdk_nvme_perf" --no-huge -s 1024 -c 0x2 -q 16 -o 131072 -w read -t 2 \
		-r "trtype:$transport adrfam:IPv4 traddr:$address trsvcid:$port subnqn:$name"
	;;
esac
