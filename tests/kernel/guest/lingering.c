// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * lingering.so - LD_PRELOAD: delays the destruction of a program's QPs until 300 ms after its first
 * call.
 *
 * The client of ibv_rc_pingpong ends after the last message that it receives. If the network loses
 * the acknowledgement of that message, the server repeats the message to a destroyed QP, and fails
 * with a transport error. On links that lose packets, the delay leaves time for four more
 * repetitions.
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
