// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * slow_connect.so - LD_PRELOAD: delays each rdma_connect of a program by a second.
 *
 * The server of perftest with -R closes its listener after the first connection and opens another
 * one. The client makes its second connection at once. An emulated server needs longer than the
 * client and would refuse the connection, because it does not listen yet.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	int (*next)(struct rdma_cm_id *, struct rdma_conn_param *) =
		dlsym(RTLD_NEXT, "rdma_connect");

	sleep(1);
	return next(id, param);
}
