/*
 * Bad input for datagrams and unreliable connections: posted requests, multicast groups, and the
 * deallocation of a protection domain in use.
 */
#ifndef DATAGRAMS_H
#define DATAGRAMS_H

#include "queue_pairs.h"

#define QKEY 0x1234
#define GROUP_QPN 0xffffff

static const union ibv_gid group_gid = { .raw = { [10] = 0xff, [11] = 0xff, [12] = 239, [15] = 8 } };

/* Creates a datagram queue pair, or an unreliable connection to itself, in RTS. */
static struct ibv_qp *unreliable(enum ibv_qp_type type)
{
	struct ibv_qp *qp = new_qp(type);
	struct ibv_qp_attr attr = good(qp);
	int rtr = type == IBV_QPT_UD ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

	attr.qkey = QKEY;
	MUST(!ibv_modify_qp(qp, &attr, type == IBV_QPT_UD ? to_init_ud : to_init));
	attr.qp_state = IBV_QPS_RTR;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | rtr));
	attr.qp_state = IBV_QPS_RTS;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	return qp;
}

/* Returns the index of a GID from which IPv4 groups are reachable. */
static int of_ipv4(void)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	union ibv_gid gid;
	int i;

	for (i = 0; i < 16; i++)
		if (!ibv_query_gid(context, 1, i, &gid) && !memcmp(gid.raw, mapped, sizeof(mapped)))
			return i;
	return 0;
}

/* Creates an address handle for a group or for the device itself. */
static struct ibv_ah *address_handle(struct ibv_pd *of, const union ibv_gid *to)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };
	struct ibv_ah *ah;

	attr.grh.sgid_index = of_ipv4();
	if (to)
		attr.grh.dgid = *to;
	else
		MUST(!ibv_query_gid(context, 1, attr.grh.sgid_index, &attr.grh.dgid));
	MUST((ah = ibv_create_ah(of, &attr)));
	return ah;
}

/*
 * Uses one queue pair for each case, because rdma-core may fail the queue pair later for an
 * accepted request.
 */
static void datagram(const char *what, enum ibv_qp_type type, struct ibv_ah *ah, enum ibv_wr_opcode opcode, int length, uint32_t qpn)
{
	struct ibv_qp *qp = unreliable(type);
	struct ibv_sge sge = { .addr = (uintptr_t)buffer, .length = length, .lkey = mr->lkey };
	struct ibv_send_wr send = { .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad;
	struct ibv_wc wc;
	int answer;

	if (type == IBV_QPT_UD) {
		send.wr.ud.ah = ah;
		send.wr.ud.remote_qpn = qpn ? qpn : qp->qp_num;
		send.wr.ud.remote_qkey = QKEY;
	}
	POST(what, ibv_post_send, send, bad);
	MUST(!ibv_destroy_qp(qp));
	while (ibv_poll_cq(cq, 1, &wc) > 0)
		;
}

static void datagrams(void)
{
	struct ibv_pd *other = ibv_alloc_pd(context);
	struct ibv_ah *host = address_handle(pd, NULL), *group = address_handle(pd, &group_gid), *foreign = address_handle(other, NULL);
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 4, .max_sge = 2 } };
	struct ibv_sge sge = { .addr = (uintptr_t)buffer, .length = 64, .lkey = mr->lkey };
	struct ibv_recv_wr receive = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_qp_init_attr init = usual(IBV_QPT_UD);
	struct ibv_srq *srq = ibv_create_srq(pd, &shared);
	struct ibv_ah_attr attr;
	struct ibv_qp *qp;
	struct ibv_wc wc = { 0 };
	int answer;

	MUST(other && srq);
	datagram("post_send of a datagram longer than the MTU", IBV_QPT_UD, host, IBV_WR_SEND, 5000, 0);
	datagram("post_send of a WRITE as a datagram", IBV_QPT_UD, host, IBV_WR_RDMA_WRITE, 8, 0);
	datagram("post_send of a READ over an unreliable connection", IBV_QPT_UC, NULL, IBV_WR_RDMA_READ, 8, 0);
	datagram("post_send over an address handle of another domain", IBV_QPT_UD, foreign, IBV_WR_SEND, 8, 0);
	datagram("post_send to a host with the number of groups", IBV_QPT_UD, host, IBV_WR_SEND, 8, GROUP_QPN);
	datagram("post_send to a group with the number of a queue pair", IBV_QPT_UD, group, IBV_WR_SEND, 8, 0);
	init.srq = srq;
	MUST((qp = ibv_create_qp(pd, &init)));
	POST("post_recv to a queue pair on a shared queue", ibv_post_recv, receive, bad);
	MUST(!ibv_destroy_qp(qp) && !ibv_destroy_srq(srq));
	MINUS_ONE("init_ah_from_wc without a GRH", ibv_init_ah_from_wc(context, 1, &wc, (struct ibv_grh *)buffer, &attr));
	MUST(!ibv_destroy_ah(host) && !ibv_destroy_ah(group));
	NUMBER("dealloc_pd with an address handle in it", ibv_dealloc_pd(other));
	MUST(!ibv_destroy_ah(foreign) && (srq = ibv_create_srq(other, &shared)));
	NUMBER("dealloc_pd with a shared queue in it", ibv_dealloc_pd(other));
	init.srq = NULL;
	MUST(!ibv_destroy_srq(srq) && (qp = ibv_create_qp(other, &init)));
	NUMBER("dealloc_pd with a queue pair in it", ibv_dealloc_pd(other));
	MUST(!ibv_destroy_qp(qp) && !ibv_dealloc_pd(other));
}

static void groups(void)
{
	struct ibv_qp *qp = unreliable(IBV_QPT_UD);

	NUMBER("attach_mcast", ibv_attach_mcast(qp, &group_gid, 0));
	NUMBER("attach_mcast once more", ibv_attach_mcast(qp, &group_gid, 0));
	NUMBER("destroy_qp of one that is attached", ibv_destroy_qp(qp));
	NUMBER("detach_mcast", ibv_detach_mcast(qp, &group_gid, 0));
	NUMBER("detach_mcast once more", ibv_detach_mcast(qp, &group_gid, 0));
	MUST(!ibv_destroy_qp(qp));
}

#endif
