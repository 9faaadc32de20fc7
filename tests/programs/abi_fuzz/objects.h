/*
 * Random creations, changes and queries of objects.
 *
 * Addresses of peers are the device's own or in 127.0.0.0/8, so that no packet leaves the machine.
 */
#ifndef OBJECTS_H
#define OBJECTS_H

#include <fcntl.h>

#include "memory.h"

#define ATTACHED	64
/* Marks the `cq_context` of a queue with extended functions. */
#define IS_EXTENDED	(1ul << 32)

/* The multicast groups of queue pairs, which cannot be destroyed before they are detached. */
static struct {
	struct ibv_qp *qp;
	union ibv_gid gid;
	uint16_t lid;
} attached[ATTACHED];
static int attached_count;

static void detach_all(void)
{
	while (attached_count) {
		attached_count--;
		/* A random call may have detached it before. Queue pairs that are gone had no groups. */
		for (int i = 0; i < live.counts[QP]; i++)
			if (live.objects[QP][i] == attached[attached_count].qp)
				CALL(ibv_detach_mcast(live.objects[QP][i], &attached[attached_count].gid,
						      attached[attached_count].lid));
	}
}

static union ibv_gid some_gid(struct ibv_context *context)
{
	union ibv_gid gid = { .raw = { 0 } };

	if (below(4)) {
		MUST(!ibv_query_gid(context, 1, 0, &gid));
	} else if (below(2)) {
		gid.raw[10] = gid.raw[11] = 0xff;
		gid.raw[12] = 127;
		gid.raw[14] = below(2);
		gid.raw[15] = below(256);
	}
	return gid;
}

static struct ibv_ah_attr some_ah(struct ibv_context *context)
{
	return (struct ibv_ah_attr){
		.is_global = below(10) > 0, .port_num = below(10) ? 1 : below(256), .sl = below(10) ? 0 : below(256),
		.static_rate = below(10) ? 0 : below(256), .dlid = below(4) ? 0 : below(65536),
		.grh = { .dgid = some_gid(context), .hop_limit = below(256), .sgid_index = below(10) ? 0 : below(256),
			 .traffic_class = below(256), .flow_label = number(1 << 20) },
	};
}

static void make_queue(void)
{
	struct ibv_context *context = pick(CONTEXT);
	struct ibv_srq_init_attr srq = {
		.attr = { .max_wr = number(32), .max_sge = number(4), .srq_limit = number(4) },
	};
	struct ibv_srq_init_attr_ex srq_ex = {
		.attr = srq.attr, .comp_mask = flags(0x1f), .srq_type = number(3), .pd = pick(PD), .xrcd = pick(XRCD),
		.cq = pick(CQ), .tm_cap = { number(4), number(4) },
	};
	struct ibv_cq_init_attr_ex cq_ex = {
		.cqe = number(128), .channel = pick(CHANNEL), .comp_vector = number(0), .wc_flags = flags(0x8ff),
		.comp_mask = flags(1), .flags = flags(3), .parent_domain = NULL,
	};

	/* `extended.h` reads the fields that the queue was created with. */
	cq_ex.cq_context = (void *)(uintptr_t)((cq_ex.wc_flags & 0xffffffff) | IS_EXTENDED);

	if (is_full(CQ) || is_full(SRQ))
		return;
	switch (below(4)) {
	case 0:
		call_now = "ibv_create_cq_ex";
		errno = 0;
		cq_ex.comp_mask &= ~2; /* an undefined parent domain */
		{
			struct ibv_cq_ex *made = ibv_create_cq_ex(context, &cq_ex);

			keep(CQ, made ? ibv_cq_ex_to_cq(made) : NULL);
		}
		break;
	case 1:
		if (pick(PD))
			MAKE(SRQ, ibv_create_srq(pick(PD), &srq));
		break;
	case 2: MAKE(SRQ, ibv_create_srq_ex(context, &srq_ex)); break;
	default: MAKE(CQ, ibv_create_cq(context, number(128), NULL, pick(CHANNEL), number(0))); break;
	}
}

static void make_queue_pair(void)
{
	static const int types[] = {
		IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV, IBV_QPT_RAW_PACKET,
	};
	int type = below(20) ? types[below(7)] : (int)random_64();
	struct ibv_qp_cap cap = {
		.max_send_wr = number(64), .max_recv_wr = number(64), .max_send_sge = number(4), .max_recv_sge = number(4),
		.max_inline_data = number(256),
	};
	struct ibv_qp_init_attr init = {
		.send_cq = pick(CQ), .recv_cq = pick(CQ), .srq = below(4) ? NULL : pick(SRQ), .cap = cap, .qp_type = type,
		.sq_sig_all = number(1),
	};
	struct ibv_qp_init_attr_ex ex = {
		.send_cq = pick(CQ), .recv_cq = pick(CQ), .srq = below(4) ? NULL : pick(SRQ), .cap = cap, .qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_PD | flags(IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS),
		.pd = pick(PD), .xrcd = pick(XRCD), .create_flags = below(4) ? 0 : number(255),
	};

	if (is_full(QP))
		return;
	if (below(3)) {
		MAKE(QP, ibv_create_qp(pick(PD), &init));
		return;
	}
	/* Each queue pair with SEND_OPS has all operations of RC, so that the builder may be called. */
	if (below(2)) {
		ex.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		ex.send_ops_flags = flags(0x7ff);
	}
	if (pick(CONTEXT))
		MAKE(QP, ibv_create_qp_ex(pick(CONTEXT), &ex));
}

static void make_small(void)
{
	struct ibv_context *context = pick(CONTEXT);
	struct ibv_xrcd_init_attr xrcd = { .comp_mask = flags(3), .fd = -1, .oflags = number(0777) };
	struct ibv_alloc_dm_attr dm = { .length = number(8192), .log_align_req = number(8), .comp_mask = below(9) == 0 };

	switch (below(5)) {
	case 0:
		if (!is_full(PD))
			MAKE(PD, ibv_alloc_pd(context));
		break;
	case 1:
		if (!is_full(CHANNEL)) {
			MAKE(CHANNEL, ibv_create_comp_channel(context));
			/* ibv_get_cq_event must not sleep in this thread. */
			struct ibv_comp_channel *channel = pick(CHANNEL);

			if (live.counts[CHANNEL])
				channel = live.objects[CHANNEL][live.counts[CHANNEL] - 1];
			if (channel)
				fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
		}
		break;
	case 2:
		if (!is_full(XRCD))
			MAKE(XRCD, ibv_open_xrcd(context, &xrcd));
		break;
	case 3:
		if (!is_full(DM))
			MAKE(DM, ibv_alloc_dm(context, &dm));
		break;
	default: {
		struct ibv_ah_attr attr = some_ah(context);

		if (!is_full(AH) && pick(PD))
			MAKE(AH, ibv_create_ah(pick(PD), &attr));
	}
	}
}

static void modify_queue_pair(void)
{
	struct ibv_qp *qp = pick(QP), *peer = pick(QP);
	struct ibv_qp_attr attr = { 0 };
	struct ibv_qp_init_attr init;
	int mask, is_wild = below(6) == 0;

	if (!qp)
		return;
	attr = attributes_towards(peer);
	attr.qkey = number(4);
	if (is_wild) {
		attr.qp_state = number(7);
		attr.path_mtu = number(6);
		attr.qp_access_flags = flags(0xff);
		attr.max_rd_atomic = attr.max_dest_rd_atomic = number(16);
		attr.min_rnr_timer = attr.timeout = below(256);
		attr.pkey_index = number(1);
		attr.rq_psn = attr.sq_psn = number(1 << 24);
		attr.port_num = below(3);
		attr.ah_attr = some_ah(qp->context);
		attr.alt_ah_attr = some_ah(qp->context);
		attr.cap.max_send_wr = number(64);
		attr.cap.max_recv_wr = number(64);
		attr.dest_qp_num = number(1 << 24);
		CALL(ibv_modify_qp(qp, &attr, flags(0x1ffffff)));
		return;
	}
	/* Each usual transition in order; refused where the state or the service does not fit. */
	for (attr.qp_state = IBV_QPS_INIT; attr.qp_state <= IBV_QPS_RTS; attr.qp_state++) {
		int is_connected = qp->qp_type != IBV_QPT_UD, is_rc = is_connected && qp->qp_type != IBV_QPT_UC;

		mask = IBV_QP_STATE;
		if (attr.qp_state == IBV_QPS_INIT)
			mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | (is_connected ? IBV_QP_ACCESS_FLAGS : IBV_QP_QKEY);
		if (attr.qp_state == IBV_QPS_RTR && is_connected)
			mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				(is_rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0);
		if (attr.qp_state == IBV_QPS_RTS)
			mask |= IBV_QP_SQ_PSN | (is_rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						 IBV_QP_MAX_QP_RD_ATOMIC : 0);
		CALL(ibv_modify_qp(qp, &attr, mask));
	}
	CALL(ibv_query_qp(qp, &attr, flags(0x1ffffff), &init));
}

static void change_groups(struct ibv_qp *qp)
{
	union ibv_gid gid = { .raw = { [10] = 0xff, [11] = 0xff, [12] = 239, [13] = 1, [14] = 2, [15] = below(4) } };
	uint16_t lid = below(2);

	if (!qp || attached_count == ATTACHED)
		return;
	if (below(6) == 0)
		gid = some_gid(qp->context);
	if (below(3) == 0) {
		CALL(ibv_detach_mcast(qp, &gid, lid));
	} else if (!CALL(ibv_attach_mcast(qp, &gid, lid))) {
		attached[attached_count].qp = qp;
		attached[attached_count].gid = gid;
		attached[attached_count++].lid = lid;
	}
}

static void query(void)
{
	struct ibv_context *context = pick(CONTEXT);
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	struct ibv_srq_attr srq = { .max_wr = number(32), .srq_limit = number(8) };
	union ibv_gid gid;
	__be16 pkey;

	switch (below(8)) {
	case 0: CALL(ibv_query_device(context, &device)); break;
	case 1: CALL(ibv_query_port(context, number(2), &port)); break;
	case 2: CALL(ibv_query_gid(context, number(2), (int)number(4), &gid)); break;
	case 3: CALL(ibv_query_pkey(context, number(2), (int)number(4), &pkey)); break;
	case 4:
		if (pick(SRQ))
			CALL(ibv_modify_srq(pick(SRQ), &srq, flags(3)));
		break;
	case 5:
		if (pick(SRQ))
			CALL(ibv_query_srq(pick(SRQ), &srq));
		break;
	case 6:
		if (pick(CQ))
			CALL(ibv_resize_cq(pick(CQ), (int)number(256)));
		break;
	default:
		change_groups(pick(QP));
	}
}

#endif
