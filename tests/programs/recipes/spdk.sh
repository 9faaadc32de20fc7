#!/bin/sh
# spdk.sh target|verify|perf SPDK [ARGUMENT]: NVMe over Fabrics by SPDK, whose built tree SPDK names.
# The target has a disk in memory, over RDMA on port 4420 and over TCP on port 4421. ARGUMENT is an
# option of the target, or the transport of an initiator.
set -eu
spdk=$2
name=nqn.2016-06.io.spdk:cnode1
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$spdk/build/lib"
case ${3:-} in
tcp) transport=TCP port=4421 ;;
*) transport=RDMA port=4420 ;;
esac
rpc() {
	PYTHONPATH=$spdk/python python3 "$spdk/scripts/rpc.py" -s "$PWD/target.sock" "$@"
}
case $1 in
target)
	# shellcheck disable=SC2086 # the option may be absent
	"$spdk/build/bin/nvmf_tgt" --no-huge -s 512 --no-pci -m 0x1 -r "$PWD/target.sock" ${3:-} &
	target=$!
	trap 'kill $target' TERM
	until [ -S target.sock ]; do
		kill -0 "$target"
		sleep 0.1
	done
	rpc nvmf_create_transport -t RDMA
	rpc nvmf_create_transport -t TCP
	rpc bdev_malloc_create -b Malloc0 -u 11111111-2222-3333-4444-555555555555 128 4096
	rpc nvmf_create_subsystem "$name" -a -s SPDK00000000000001 -d SPDK_Controller1
	rpc nvmf_subsystem_add_ns "$name" Malloc0
	rpc nvmf_subsystem_add_listener "$name" -t rdma -a 127.0.0.1 -s 4420
	rpc nvmf_subsystem_add_listener "$name" -t tcp -a 127.0.0.1 -s 4421
	echo ready
	wait
	;;
verify)
	cat >bdevperf.json <<-JSON
		{"subsystems": [{"subsystem": "bdev", "config": [
		{"method": "bdev_nvme_attach_controller", "params": {"name": "Nvme0",
		"trtype": "$transport", "adrfam": "ipv4", "traddr": "127.0.0.1",
		"trsvcid": "$port", "subnqn": "$name"}}]}]}
	JSON
	exec "$spdk/build/examples/bdevperf" --no-huge -s 512 --no-pci -m 0x2 \
		-r "$PWD/bdevperf.sock" --json bdevperf.json -q 16 -o 16384 -w verify -t 2
	;;
perf)
	exec "$spdk/build/bin/spdk_nvme_perf" --no-huge -s 512 -c 0x2 -q 16 -o 131072 -w read -t 2 \
		-r "trtype:$transport adrfam:IPv4 traddr:127.0.0.1 trsvcid:$port subnqn:$name"
	;;
esac
