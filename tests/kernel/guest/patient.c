// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * patient.so - LD_PRELOAD: gives every QP of a program a local ACK timeout of 4 s (code 20).
 *
 * rdma_rxe starts its retransmission timer with the first packet in flight, and does not restart
 * the timer when all packets are acknowledged. With the 67 ms of ibv_rc_pingpong (code 14), rxe
 * therefore retransmits every 67 ms if a packet is in flight at that moment, also on a link without
 * faults (seen between 6.1 and 6.12). With 4 s, each retry that the kernel counts has a cause.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int (*next)(struct ibv_qp *, struct ibv_qp_attr *, int) = dlsym(RTLD_NEXT, "ibv_modify_qp");

	if (mask & IBV_QP_TIMEOUT)
		attr->timeout = 20;
	return next(qp, attr, mask);
}
