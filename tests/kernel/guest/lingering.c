// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * lingering.so - LD_PRELOAD: a program's QPs live 300 ms longer than the program wants, counted from the first that it
 * destroys.
 *
 * ibv_rc_pingpong's client ends with the last message that it receives. If the acknowledgement of that message is lost,
 * its server sends it again, to nobody, and fails with a transport error. On links that lose packets, this leaves time
 * for four more tries.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <unistd.h>

int ibv_destroy_qp(struct ibv_qp *qp)
{
	int (*next)(struct ibv_qp *) = dlsym(RTLD_NEXT, "ibv_destroy_qp");
	static int lingered;

	if (!lingered++)
		usleep(300 * 1000);
	return next(qp);
}
