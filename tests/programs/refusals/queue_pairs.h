/*
 * Bad input for queue pairs (create, modify, post), for address handles, and for multicast groups.
 */
#ifndef QUEUE_PAIRS_H
#define QUEUE_PAIRS_H

#include "case.h"

static void queue_pairs(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_init_attr_ex ex = { .qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq, .pd = pd };

#define REFUSED(what, field, value)                                                                              \
	init = usual(IBV_QPT_RC);                                                                                \
	init.field = value;                                                                                      \
	POINTER("create_qp, " what, ibv_create_qp(pd, &init))

	REFUSED("max_send_wr above the device's", cap.max_send_wr, device.max_qp_wr + 1);
	REFUSED("max_recv_wr above the device's", cap.max_recv_wr, device.max_qp_wr + 1);
	REFUSED("max_send_sge above the device's", cap.max_send_sge, device.max_sge + 1);
	REFUSED("max_recv_sge above the device's", cap.max_recv_sge, device.max_sge + 1);
	REFUSED("max_inline_data above the device's", cap.max_inline_data, 1 << 20);
	REFUSED("raw packets", qp_type, IBV_QPT_RAW_PACKET);
	REFUSED("of the driver's own type", qp_type, IBV_QPT_DRIVER);
	REFUSED("of an unknown type", qp_type, 77);
	REFUSED("QP0 (type 0)", qp_type, 0);
	REFUSED("QP1 (type 1)", qp_type, 1);
	REFUSED("XRC without an extended call", qp_type, IBV_QPT_XRC_RECV);

	ex.cap = usual(IBV_QPT_RC).cap;
	ex.comp_mask = IBV_QP_INIT_ATTR_PD | 1 << 20;
	POINTER("create_qp_ex, unknown comp_mask", ibv_create_qp_ex(context, &ex));
	ex.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
	ex.create_flags = 1 << 30;
	POINTER("create_qp_ex, unknown create_flags", ibv_create_qp_ex(context, &ex));
	ex.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	ex.create_flags = 0;
	ex.send_ops_flags = 1ull << 40;
	POINTER("create_qp_ex, unknown send_ops_flags", ibv_create_qp_ex(context, &ex));
	ex.send_ops_flags = IBV_QP_EX_WITH_TSO;
	POINTER("create_qp_ex, TSO", ibv_create_qp_ex(context, &ex));
	ex.qp_type = IBV_QPT_UC;
	ex.send_ops_flags = IBV_QP_EX_WITH_BIND_MW;
	POINTER("create_qp_ex, UC with BIND_MW", ibv_create_qp_ex(context, &ex));
	ex.send_ops_flags = IBV_QP_EX_WITH_LOCAL_INV;
	POINTER("create_qp_ex, UC with LOCAL_INV", ibv_create_qp_ex(context, &ex));
	ex.send_ops_flags = IBV_QP_EX_WITH_SEND_WITH_INV;
	POINTER("create_qp_ex, UC with SEND_WITH_INV", ibv_create_qp_ex(context, &ex));
	ex.qp_type = IBV_QPT_UD;
	ex.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
	POINTER("create_qp_ex, WRITE for datagrams", ibv_create_qp_ex(context, &ex));
}

static const int to_init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
static const int to_init_ud = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
static const int to_rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			  IBV_QP_MIN_RNR_TIMER;
static const int to_rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			  IBV_QP_MAX_QP_RD_ATOMIC;

/*
 * Returns the attributes that move a queue pair connected with itself from each state to the next.
 */
static struct ibv_qp_attr good(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
		.min_rnr_timer = 12, .max_dest_rd_atomic = 1, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } },
	};

	MUST(!ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid));
	return attr;
}

/* Creates a queue pair in this state, and stores the attributes that move it to the next state. */
static struct ibv_qp *in_state(enum ibv_qp_state state, struct ibv_qp_attr *next)
{
	struct ibv_qp *qp = new_qp(IBV_QPT_RC);
	const int masks[] = { [IBV_QPS_INIT] = to_init, [IBV_QPS_RTR] = to_rtr, [IBV_QPS_RTS] = to_rts };

	*next = good(qp);
	for (next->qp_state = IBV_QPS_INIT; next->qp_state <= state; next->qp_state++)
		MUST(!ibv_modify_qp(qp, next, masks[next->qp_state]));
	return qp;
}

static struct ibv_qp *connected(void)
{
	struct ibv_qp_attr unused;

	return in_state(IBV_QPS_RTS, &unused);
}

static void transitions(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_qp *qp;

#define MODIFIED(from, what, field, value, mask)                                                                 \
	qp = in_state(IBV_QPS_##from, &attr);                                                                    \
	attr.field = value;                                                                                      \
	NUMBER("modify_qp in " #from ", " what, ibv_modify_qp(qp, &attr, mask));                                 \
	MUST(!ibv_destroy_qp(qp))

	MODIFIED(RESET, "to INIT without its attributes", qp_state, IBV_QPS_INIT, IBV_QP_STATE);
	MODIFIED(RESET, "to RTR", qp_state, IBV_QPS_RTR, to_rtr);
	MODIFIED(RESET, "to RTS", qp_state, IBV_QPS_RTS, to_rts);
	MODIFIED(RESET, "to an unknown state", qp_state, 77, IBV_QP_STATE);
	MODIFIED(RESET, "unknown mask", qp_state, IBV_QPS_INIT, to_init | 1 << 30);
	MODIFIED(RESET, "an attribute too many", qp_state, IBV_QPS_INIT, to_init | IBV_QP_SQ_PSN);
	MODIFIED(RESET, "port 0", port_num, 0, to_init);
	MODIFIED(RESET, "port 2", port_num, 2, to_init);
	MODIFIED(RESET, "P_Key index 1000", pkey_index, 1000, to_init);
	MODIFIED(RESET, "unknown access", qp_access_flags, 1 << 15, to_init);
	MODIFIED(RESET, "another current state", cur_qp_state, IBV_QPS_RTS, to_init | IBV_QP_CUR_STATE);
	MODIFIED(INIT, "to RTR without its attributes", qp_state, IBV_QPS_RTR, IBV_QP_STATE);
	MODIFIED(INIT, "GID index 250", ah_attr.grh.sgid_index, 250, to_rtr);
	MODIFIED(INIT, "a peer on port 2", ah_attr.port_num, 2, to_rtr);
	MODIFIED(INIT, "path MTU 0", path_mtu, 0, to_rtr);
	MODIFIED(INIT, "path MTU 9", path_mtu, 9, to_rtr);
	MODIFIED(INIT, "max_dest_rd_atomic above the device's", max_dest_rd_atomic, 255, to_rtr);
	MODIFIED(INIT, "min_rnr_timer 32", min_rnr_timer, 32, to_rtr);
	MODIFIED(INIT, "an alternate path", alt_port_num, 1, to_rtr | IBV_QP_ALT_PATH);
	MODIFIED(RTR, "timeout 32", timeout, 32, to_rts);
	MODIFIED(RTR, "retry_cnt 8", retry_cnt, 8, to_rts);
	MODIFIED(RTR, "rnr_retry 8", rnr_retry, 8, to_rts);
	MODIFIED(RTR, "max_rd_atomic above the device's", max_rd_atomic, 255, to_rts);
	MODIFIED(RTS, "to INIT", qp_state, IBV_QPS_INIT, to_init);
	MODIFIED(RTS, "to SQE", qp_state, IBV_QPS_SQE, IBV_QP_STATE);
	MODIFIED(RTS, "to ERR", qp_state, IBV_QPS_ERR, IBV_QP_STATE);
	MODIFIED(RTS, "to RESET", qp_state, IBV_QPS_RESET, IBV_QP_STATE);
	qp = connected();
	NUMBER("query_qp, unknown mask", ibv_query_qp(qp, &attr, 1 << 30, &init));
	attr.qp_state = IBV_QPS_ERR;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	NUMBER("modify_qp in ERR, to RTS", ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	NUMBER("destroy_qp", ibv_destroy_qp(qp));
	qp = new_qp(IBV_QPT_UD);
	attr = good(qp);
	attr.qkey = 0x80010000;
	NUMBER("modify_qp in RESET, a privileged Q_Key", ibv_modify_qp(qp, &attr, to_init_ud));
	MUST(!ibv_destroy_qp(qp));
}

/*
 * Attribute values at and beyond the limits of their fields in packets. The answer is that of
 * ibv_modify_qp, and the value that ibv_query_qp returns afterwards.
 */
static void values(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr, now;
	struct ibv_qp *qp;
	int answer;

#define VALUE(from, field, value, mask)                                                                          \
	qp = in_state(IBV_QPS_##from, &attr);                                                                    \
	attr.field = value;                                                                                      \
	CASE("modify_qp in " #from ", " #field " = " #value) {                                                   \
		answer = ibv_modify_qp(qp, &attr, mask);                                                         \
		if (answer || ibv_query_qp(qp, &now, mask, &init))                                               \
			puts(name_of(answer));                                                                   \
		else                                                                                             \
			printf("0, then %lld\n", (long long)now.field);                                          \
	}                                                                                                        \
	MUST(!ibv_destroy_qp(qp))

	VALUE(RESET, pkey_index, 1, to_init);
	VALUE(RESET, pkey_index, 65535, to_init);
	VALUE(INIT, path_mtu, 5, to_rtr);
	VALUE(INIT, path_mtu, 6, to_rtr);
	VALUE(INIT, dest_qp_num, 0x1000000, to_rtr);
	VALUE(INIT, dest_qp_num, 0, to_rtr);
	VALUE(INIT, rq_psn, 0x1000001, to_rtr);
	VALUE(INIT, min_rnr_timer, 31, to_rtr);
	VALUE(INIT, min_rnr_timer, 33, to_rtr);
	VALUE(INIT, min_rnr_timer, 255, to_rtr);
	VALUE(INIT, max_dest_rd_atomic, 0, to_rtr);
	VALUE(INIT, max_dest_rd_atomic, 3, to_rtr);
	VALUE(INIT, max_dest_rd_atomic, 128, to_rtr);
	VALUE(INIT, max_dest_rd_atomic, 129, to_rtr);
	VALUE(INIT, ah_attr.sl, 16, to_rtr);
	VALUE(INIT, ah_attr.static_rate, 255, to_rtr);
	VALUE(INIT, ah_attr.src_path_bits, 200, to_rtr);
	VALUE(INIT, ah_attr.dlid, 0xffff, to_rtr);
	VALUE(INIT, ah_attr.grh.hop_limit, 0, to_rtr);
	VALUE(INIT, ah_attr.grh.traffic_class, 255, to_rtr);
	VALUE(INIT, ah_attr.grh.flow_label, 0x1fffff, to_rtr);
	VALUE(INIT, ah_attr.is_global, 0, to_rtr);
	VALUE(RTR, sq_psn, 0x1000001, to_rts);
	VALUE(RTR, timeout, 0, to_rts);
	VALUE(RTR, timeout, 31, to_rts);
	VALUE(RTR, timeout, 255, to_rts);
	VALUE(RTR, retry_cnt, 0, to_rts);
	VALUE(RTR, retry_cnt, 9, to_rts);
	VALUE(RTR, retry_cnt, 255, to_rts);
	VALUE(RTR, rnr_retry, 0, to_rts);
	VALUE(RTR, rnr_retry, 9, to_rts);
	VALUE(RTR, rnr_retry, 255, to_rts);
	VALUE(RTR, max_rd_atomic, 0, to_rts);
	VALUE(RTR, max_rd_atomic, 3, to_rts);
	VALUE(RTR, max_rd_atomic, 128, to_rts);
	VALUE(RTR, max_rd_atomic, 129, to_rts);
	VALUE(RTS, en_sqd_async_notify, 2, IBV_QP_EN_SQD_ASYNC_NOTIFY);
	VALUE(RTS, path_mig_state, IBV_MIG_MIGRATED, IBV_QP_PATH_MIG_STATE);
	VALUE(RTS, path_mig_state, IBV_MIG_ARMED, IBV_QP_PATH_MIG_STATE);
	VALUE(RTS, path_mig_state, 7, IBV_QP_PATH_MIG_STATE);
	VALUE(RTS, cur_qp_state, IBV_QPS_SQD, IBV_QP_CUR_STATE | IBV_QP_STATE);
	VALUE(RTS, min_rnr_timer, 40, IBV_QP_MIN_RNR_TIMER);
	VALUE(RTS, qp_access_flags, 0, IBV_QP_ACCESS_FLAGS);
	VALUE(RTS, qp_access_flags, 0xf0, IBV_QP_ACCESS_FLAGS);
}

static void posts(void)
{
	struct ibv_qp *qp = new_qp(IBV_QPT_RC);
	struct ibv_sge sges[40] = { { .addr = (uintptr_t)buffer, .length = 4096, .lkey = mr->lkey } };
	struct ibv_send_wr send = { .sg_list = sges, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE }, *bad_send;
	struct ibv_recv_wr receive = { .sg_list = sges, .num_sge = 1 }, *bad_receive;
	struct ibv_wc wc;
	int answer, i;

#define POST(what, verb, request, bad)                                                                           \
	bad = NULL;                                                                                              \
	CASE(what) {                                                                                             \
		answer = verb(qp, &request, &bad);                                                               \
		printf("%s%s\n", answer ? name_of(answer) : "0",                                                 \
		       !answer ? "" : bad == &request ? ", bad_wr it" : ", bad_wr another");                     \
	}
	POST("post_recv in RESET", ibv_post_recv, receive, bad_receive);
	MUST(!ibv_destroy_qp(qp));
	qp = connected();
	send.num_sge = 20;
	POST("post_send of more entries than the queue pair has", ibv_post_send, send, bad_send);
	send.num_sge = 1;
	send.send_flags = IBV_SEND_INLINE;
	POST("post_send of more inline data than the queue pair has", ibv_post_send, send, bad_send);
	send.send_flags = 0;
	send.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	sges[0].length = 4;
	POST("post_send of an atomic of 4 bytes", ibv_post_send, send, bad_send);
	sges[0].length = 8;
	send.wr.atomic.remote_addr = (uintptr_t)buffer + 1;
	POST("post_send of an atomic on an odd address", ibv_post_send, send, bad_send);
	receive.num_sge = 20;
	POST("post_recv of more entries than the queue pair has", ibv_post_recv, receive, bad_receive);
	CASE("post_recv to a full queue") {
		receive.num_sge = 1;
		for (i = 0; i < 1 << 20 && !(answer = ibv_post_recv(qp, &receive, &bad_receive)); i++)
			;
		printf("%s, bad_wr %s\n", name_of(answer), bad_receive == &receive ? "it" : "another");
	}
	MUST(!ibv_destroy_qp(qp));
	while (ibv_poll_cq(cq, 1, &wc) > 0)
		;
}

static void addresses(void)
{
	struct ibv_ah_attr usual_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } }, attr;
	struct ibv_qp *rc = new_qp(IBV_QPT_RC), *ud = new_qp(IBV_QPT_UD);
	union ibv_gid group = { .raw = { [10] = 0xff, [11] = 0xff, [12] = 239, [15] = 7 } }, host;

	MUST(!ibv_query_gid(context, 1, 0, &usual_attr.grh.dgid));
	host = usual_attr.grh.dgid;
#define ADDRESS(what, field, value)                                                                              \
	attr = usual_attr;                                                                                       \
	attr.field = value;                                                                                      \
	POINTER("create_ah, " what, ibv_create_ah(pd, &attr))

	ADDRESS("port 0", port_num, 0);
	ADDRESS("port 2", port_num, 2);
	ADDRESS("GID index 250", grh.sgid_index, 250);
	ADDRESS("without a GID", is_global, 0);
	NUMBER("destroy_ah", ibv_destroy_ah(ibv_create_ah(pd, &usual_attr)));
	NUMBER("attach_mcast of a connection", ibv_attach_mcast(rc, &group, 0));
	NUMBER("attach_mcast to a host's GID", ibv_attach_mcast(ud, &host, 0));
	NUMBER("detach_mcast of a group without attachment", ibv_detach_mcast(ud, &group, 0));
	MUST(!ibv_destroy_qp(rc) && !ibv_destroy_qp(ud));
}

#endif
