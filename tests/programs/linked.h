/*
 * Two connected queue pairs of one process.
 */
#ifndef LINKED_H
#define LINKED_H

#include <stdint.h>

#include "check.h"

/* The exponent of the time for an acknowledgement: 67 ms. */
#ifndef LINK_TIMEOUT
#define LINK_TIMEOUT 14
#endif

#define REMOTE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* Returns the attributes that move a queue pair connected with `peer` to each state. */
__attribute__((unused)) static struct ibv_qp_attr attributes_towards(struct ibv_qp *peer)
{
	struct ibv_qp_attr attr = {
		.port_num = 1, .qp_access_flags = REMOTE, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp_num,
		.max_dest_rd_atomic = 4, .min_rnr_timer = 1, .timeout = LINK_TIMEOUT, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } },
	};

	MUST(!ibv_query_gid(peer->context, 1, 0, &attr.ah_attr.grh.dgid));
	return attr;
}

__attribute__((unused)) static void link_to(struct ibv_qp *qp, struct ibv_qp *peer)
{
	struct ibv_qp_attr attr = attributes_towards(peer);
	int rc = qp->qp_type == IBV_QPT_RC;

	attr.qp_state = IBV_QPS_INIT;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)));
	attr.qp_state = IBV_QPS_RTS;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN |
			    (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0)));
}

/* Creates a queue pair of this service, not yet connected. */
__attribute__((unused)) static struct ibv_qp *unlinked(struct ibv_pd *pd, struct ibv_cq *cq, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = type, .sq_sig_all = 1,
		.cap = { .max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	MUST(qp);
	return qp;
}

#endif
