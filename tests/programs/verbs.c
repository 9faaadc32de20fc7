/*
 * Behaviour of libibverbs beyond the usual path: errors and their numbers, bad_wr, events,
 * descriptors, threads. The program is compiled against Debian's headers, linked with -libverbs,
 * and does not depend on urxe.
 *
 * Two queue pairs of one process exchange messages. The program prints the line of the first failed
 * check.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <sys/wait.h>
#include <infiniband/verbs.h>

#include "check.h"

/* A call that returns NULL or -1 and sets errno. */
#define FAILS(call, number)                                                                                      \
	do {                                                                                                     \
		errno = 0;                                                                                       \
		MUST(!(call));                                                                                   \
		MUST(errno == (number));                                                                         \
	} while (0)

static struct ibv_context *context;
static char buffer[1 << 16] __attribute__((aligned(4096)));

/* Opens the first device, which must be the only one. */
static struct ibv_context *open_only(void)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);

	MUST(list && count == 1 && list[0] && !list[1]);
	MUST(!strcmp(ibv_get_device_name(list[0]), "rxe0"));
	MUST(ibv_get_device_guid(list[0]));
	ibv_free_device_list(list);
	return open_first();
}

static void attributes(void)
{
	struct ibv_device_attr_ex ex;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	struct ibv_gid_entry entries[8];
	union ibv_gid gid;
	__be16 pkey;

	MUST(!ibv_query_device(context, &attr) && attr.phys_port_cnt == 1 && attr.max_sge > 0);
	MUST(!ibv_query_device_ex(context, NULL, &ex));
	MUST(!memcmp(&ex.orig_attr, &attr, sizeof(attr)) && ex.phys_port_cnt_ex == 1);
	memset(&port, 0xff, sizeof(port));
	MUST(!ibv_query_port(context, 1, &port));
	MUST(port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_ETHERNET && port.flags == 0);
	MUST(port.lid == 0 && port.port_cap_flags2 == 0 && port.gid_tbl_len == 4);
	MUST(ibv_query_port(context, 0, &port) == EINVAL && ibv_query_port(context, 2, &port) == EINVAL);
	MUST(!ibv_query_gid(context, 1, 0, &gid) && gid.raw[10] == 0xff && gid.raw[12] == 127);
	MUST(ibv_query_gid(context, 1, 4, &gid) == -1 && errno == EINVAL);
	MUST(ibv_query_gid(context, 1, -1, &gid) == -1);
	MUST(ibv_query_gid(context, 3, 0, &gid) == -1);
	MUST(!ibv_query_gid_ex(context, 1, 1, &entries[0], 0));
	MUST(entries[0].gid_type == IBV_GID_TYPE_ROCE_V2 && entries[0].gid_index == 1 && entries[0].port_num == 1);
	MUST(entries[0].ndev_ifindex != 0);
	MUST(ibv_query_gid_ex(context, 1, 9, &entries[0], 0) == EINVAL);
	MUST(ibv_query_gid_table(context, entries, 8, 0) == 4 && entries[3].gid_index == 3);
	MUST(ibv_query_gid_table(context, entries, 3, 0) == -EINVAL);
	MUST(!ibv_query_pkey(context, 1, 0, &pkey) && ntohs(pkey) == 0xffff);
	MUST(ibv_query_pkey(context, 1, 1, &pkey) == -1);
	MUST(ibv_get_pkey_index(context, 1, htons(0xffff)) == 0 && ibv_get_pkey_index(context, 1, htons(1)) == -1);
}

static void memory(void)
{
	int local = IBV_ACCESS_LOCAL_WRITE, everything = local | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	struct ibv_pd *pd = ibv_alloc_pd(context), *other = ibv_alloc_pd(context);
	int all = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
	struct ibv_mr *mr;
	uint32_t key;

	MUST(pd && other && pd->context == context);
	FAILS(ibv_reg_mr(pd, buffer, 0, local), EINVAL);
	FAILS(ibv_reg_mr(pd, (void *)4096, 4096, local), EFAULT);
	FAILS(ibv_reg_mr(pd, (void *)"read only", 4, local), EFAULT);
	FAILS(ibv_reg_mr(pd, buffer, 16, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	FAILS(ibv_reg_mr(pd, buffer, 16, 1 << 15), EINVAL);
	FAILS(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 0, local), EOPNOTSUPP);
	mr = ibv_reg_mr(pd, buffer + 1, 100, everything);
	MUST(mr && mr->pd == pd && mr->addr == buffer + 1 && mr->length == 100 && mr->lkey && mr->rkey);
	MUST(ibv_dealloc_pd(pd) == EBUSY);
	MUST(!ibv_dereg_mr(mr));
	mr = ibv_reg_mr_iova(pd, buffer, 4096, 0x10000, local);
	MUST(mr && !ibv_dereg_mr(mr));
	FAILS(ibv_reg_mr_iova(pd, buffer, 4096, 0x10001, local), EINVAL);
	/* Unknown flags of the optional range are ignored. */
	mr = ibv_reg_mr(pd, buffer, 4096, local | IBV_ACCESS_RELAXED_ORDERING | 1 << 29);
	MUST(mr && !ibv_dereg_mr(mr));
	/* Address, domain and access change in one call. The keys stay. */
	MUST((mr = ibv_reg_mr(pd, buffer, 4096, local)) && mr->lkey == mr->rkey);
	key = mr->lkey;
	MUST(!ibv_rereg_mr(mr, all, other, buffer + 8192, 100, everything));
	MUST(mr->pd == other && mr->addr == buffer + 8192 && mr->length == 100 && mr->lkey == key && mr->rkey == key);
	MUST(ibv_dealloc_pd(other) == EBUSY && !ibv_dealloc_pd(pd));
	MUST(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(other));
}

static void queues(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq_init_attr_ex ex = { .cqe = 4, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_poll_cq_attr poll_attr = { 0 };
	struct ibv_cq_ex *cq_ex;
	struct ibv_cq *cq;
	void *cq_context;
	struct ibv_wc wc;

	MUST(channel && channel->refcnt == 0);
	FAILS(ibv_create_cq(context, 0, NULL, channel, 0), EINVAL);
	FAILS(ibv_create_cq(context, -1, NULL, channel, 0), EINVAL);
	FAILS(ibv_create_cq(context, 1 << 30, NULL, channel, 0), EINVAL);
	FAILS(ibv_create_cq(context, 1, NULL, channel, context->num_comp_vectors), EINVAL);
	FAILS(ibv_create_cq(context, 1, NULL, channel, -1), EINVAL);
	cq = ibv_create_cq(context, 10, &wc, channel, 0);
	MUST(cq && cq->cqe >= 10 && cq->channel == channel && cq->cq_context == &wc && channel->refcnt == 1);
	MUST(ibv_destroy_comp_channel(channel) == EBUSY);
	MUST(ibv_poll_cq(cq, 1, &wc) == 0 && ibv_poll_cq(cq, 0, NULL) == 0);
	MUST(!ibv_resize_cq(cq, 20) && cq->cqe >= 20 && ibv_resize_cq(cq, 0) == EINVAL);
	MUST(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK) == 0);
	MUST(ibv_get_cq_event(channel, &cq, &cq_context) == -1 && errno == EAGAIN);
	MUST(!ibv_destroy_cq(cq) && channel->refcnt == 0);
	MUST(!ibv_destroy_comp_channel(channel));

	cq_ex = ibv_create_cq_ex(context, &ex);
	MUST(cq_ex && ibv_start_poll(cq_ex, &poll_attr) == ENOENT);
	poll_attr.comp_mask = 1;
	MUST(ibv_start_poll(cq_ex, &poll_attr) == EINVAL);
	MUST(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq_ex)));
	ex.wc_flags |= IBV_WC_EX_WITH_CVLAN;
	FAILS(ibv_create_cq_ex(context, &ex), EOPNOTSUPP);
}

static struct ibv_qp *new_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 0,
		.cap = { .max_send_wr = 32, .max_recv_wr = 32, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = 64 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	MUST(qp && qp->state == IBV_QPS_RESET && qp->pd == pd && qp->send_cq == cq && qp->qp_type == IBV_QPT_RC);
	MUST(init.cap.max_send_wr >= 32 && init.cap.max_inline_data >= 64);
	return qp;
}

static void connect_qp(struct ibv_qp *qp, struct ibv_qp *peer)
{
	int to_init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	int to_rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	int to_rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		     IBV_QP_MAX_QP_RD_ATOMIC;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};
	struct ibv_qp_init_attr init;

	MUST(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == EINVAL && qp->state == IBV_QPS_RESET);
	MUST(ibv_modify_qp(qp, &attr, to_init | 1 << 30) == EOPNOTSUPP);
	MUST(!ibv_modify_qp(qp, &attr, to_init) && qp->state == IBV_QPS_INIT);
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = peer->qp_num;
	attr.rq_psn = 0x123456;
	attr.max_dest_rd_atomic = 4;
	attr.min_rnr_timer = 12;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.grh.sgid_index = 7;
	MUST(ibv_modify_qp(qp, &attr, to_rtr) == ENODATA);
	attr.ah_attr.grh.sgid_index = 1;
	attr.path_mtu = 9;
	MUST(ibv_modify_qp(qp, &attr, to_rtr) == EINVAL && qp->state == IBV_QPS_INIT);
	attr.path_mtu = IBV_MTU_1024;
	MUST(!ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid));
	MUST(!ibv_modify_qp(qp, &attr, to_rtr));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.sq_psn = 0x123456;
	attr.max_rd_atomic = 4;
	MUST(!ibv_modify_qp(qp, &attr, to_rts) && qp->state == IBV_QPS_RTS);
	memset(&attr, 0xff, sizeof(attr));
	MUST(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	MUST(attr.qp_state == IBV_QPS_RTS && attr.dest_qp_num == peer->qp_num && attr.rq_psn == 0x123456);
	MUST(attr.path_mtu == IBV_MTU_1024 && attr.timeout == 14 && attr.cap.max_send_wr >= 32);
	MUST(attr.ah_attr.is_global && attr.ah_attr.grh.sgid_index == 1 && attr.ah_attr.grh.dgid.raw[12] == 127);
	MUST(init.send_cq == qp->send_cq && init.qp_type == IBV_QPT_RC && init.cap.max_send_sge >= 4);
}

static struct ibv_wc take(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int count;

	while (!(count = ibv_poll_cq(cq, 1, &wc)))
		;
	MUST(count == 1);
	if (wc.status != IBV_WC_SUCCESS)
		printf("%s\n", ibv_wc_status_str(wc.status));
	MUST(wc.status == IBV_WC_SUCCESS);
	return wc;
}

static void refused_qps(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC };

	init.cap.max_send_wr = 1 << 30;
	FAILS(ibv_create_qp(pd, &init), EINVAL);
	init.cap.max_send_wr = 1;
	init.cap.max_send_sge = 1000;
	FAILS(ibv_create_qp(pd, &init), EINVAL);
	init.cap.max_send_sge = 1;
	init.qp_type = IBV_QPT_RAW_PACKET;
	FAILS(ibv_create_qp(pd, &init), EOPNOTSUPP);
	init.qp_type = 77;
	MUST(!ibv_create_qp(pd, &init));
	init.qp_type = IBV_QPT_RC;
	init.send_cq = NULL;
	FAILS(ibv_create_qp(pd, &init), EINVAL);
}

static void traffic(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *cq = ibv_create_cq(context, 100, buffer, channel, 0), *event_cq;
	struct ibv_qp *a, *b;
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, sizeof(buffer), access);
	struct ibv_sge sges[40] = { 0 };
	struct ibv_send_wr wrs[20] = { 0 }, *bad;
	struct ibv_recv_wr recv = { .wr_id = 7, .sg_list = sges, .num_sge = 2 }, *bad_recv;
	char inline_data[] = "inline";
	struct pollfd ready = { .fd = channel->fd, .events = POLLIN };
	void *event_context;
	struct ibv_qp_attr drain = { .qp_state = IBV_QPS_SQD };
	struct ibv_wc wc;
	uint64_t *word = (void *)(buffer + 8192);
	int i;

	MUST(pd && channel && cq && mr);
	refused_qps(pd, cq);
	a = new_qp(pd, cq);
	b = new_qp(pd, cq);
	MUST(a->qp_num != b->qp_num);
	MUST(ibv_destroy_cq(cq) == EBUSY);
	wrs[0].opcode = IBV_WR_SEND;
	bad = NULL;
	MUST(ibv_post_send(a, wrs, &bad) == EINVAL && bad == wrs);
	bad_recv = NULL;
	MUST(ibv_post_recv(a, &recv, &bad_recv) == EINVAL && bad_recv == &recv);
	connect_qp(a, b);
	connect_qp(b, a);

	/*
	 * A receive into two pieces, a send of immediate data from one piece, and the event on the
	 * channel.
	 */
	sges[0] = (struct ibv_sge){ (uintptr_t)buffer, 3, mr->lkey };
	sges[1] = (struct ibv_sge){ (uintptr_t)buffer + 100, 100, mr->lkey };
	MUST(!ibv_post_recv(b, &recv, &bad_recv));
	MUST(!ibv_req_notify_cq(cq, 1));
	sges[2] = (struct ibv_sge){ (uintptr_t)inline_data, sizeof(inline_data), 0 };
	wrs[0] = (struct ibv_send_wr){ .wr_id = 1, .sg_list = &sges[2], .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM,
				       .send_flags = IBV_SEND_INLINE | IBV_SEND_SOLICITED, .imm_data = htonl(0x01020304) };
	MUST(!ibv_post_send(a, wrs, &bad));
	memset(inline_data, 'x', sizeof(inline_data));
	MUST(poll(&ready, 1, 10000) == 1);
	MUST(!ibv_get_cq_event(channel, &event_cq, &event_context) && event_cq == cq && event_context == buffer);
	wc = take(cq);
	MUST(wc.wr_id == 7 && wc.opcode == IBV_WC_RECV && wc.byte_len == 7 && wc.qp_num == b->qp_num);
	MUST(wc.wc_flags == (IBV_WC_GRH | IBV_WC_WITH_IMM) && ntohl(wc.imm_data) == 0x01020304);
	MUST(!memcmp(buffer, "inl", 3) && !memcmp(buffer + 100, "ine", 4));
	MUST(poll(&ready, 1, 0) == 0);
	ibv_ack_cq_events(cq, 1);

	/*
	 * WRITE, READ and atomic operations. Only the last request is signaled. The lists are
	 * longer than any batch.
	 */
	strcpy(buffer + 300, "written");
	word[0] = 40;
	for (i = 0; i < 20; i++) {
		sges[i] = (struct ibv_sge){ (uintptr_t)buffer + 300, 8, mr->lkey };
		wrs[i] = (struct ibv_send_wr){ .wr_id = 100 + i, .next = i < 19 ? &wrs[i + 1] : NULL, .sg_list = &sges[i],
					       .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE };
		wrs[i].wr.rdma.remote_addr = (uintptr_t)buffer + 400 + 8 * i;
		wrs[i].wr.rdma.rkey = mr->rkey;
	}
	wrs[18].opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	wrs[18].wr.atomic.remote_addr = (uintptr_t)word;
	wrs[18].wr.atomic.compare_add = 2;
	wrs[18].wr.atomic.rkey = mr->rkey;
	sges[18].addr = (uintptr_t)&word[1];
	wrs[19].opcode = IBV_WR_RDMA_READ;
	wrs[19].send_flags = IBV_SEND_SIGNALED;
	wrs[19].wr.rdma.remote_addr = (uintptr_t)buffer + 400 + 8 * 17;
	sges[19].addr = (uintptr_t)buffer + 700;
	MUST(!ibv_post_send(a, wrs, &bad));
	wc = take(cq);
	MUST(wc.wr_id == 119 && wc.opcode == IBV_WC_RDMA_READ && wc.byte_len == 8);
	MUST(!strcmp(buffer + 400, "written") && !strcmp(buffer + 700, "written") && word[0] == 42 && word[1] == 40);

	/*
	 * The twelfth request is wrong. The requests before it are posted, the twelfth and the
	 * later ones are not.
	 */
	for (i = 0; i < 20; i++)
		wrs[i].opcode = IBV_WR_RDMA_WRITE, wrs[i].send_flags = IBV_SEND_SIGNALED;
	wrs[11].num_sge = 5;
	wrs[11].sg_list = sges;
	MUST(ibv_post_send(a, wrs, &bad) == EINVAL && bad == &wrs[11]);
	for (i = 0; i < 11; i++)
		MUST(take(cq).wr_id == 100 + (uint64_t)i);
	MUST(ibv_poll_cq(cq, 1, &wc) == 0);
	wrs[11].num_sge = 1;
	wrs[3].opcode = 99;
	MUST(ibv_post_send(a, wrs, &bad) == EINVAL && bad == &wrs[3]);
	for (i = 0; i < 3; i++)
		MUST(take(cq).wr_id == 100 + (uint64_t)i);
	/*
	 * More requests than the queue has entries, while the queue is not emptied. Otherwise the
	 * device may send a list of any length while it is posted.
	 */
	wrs[3].opcode = IBV_WR_RDMA_WRITE;
	MUST(!ibv_modify_qp(a, &drain, IBV_QP_STATE));
	for (i = 0; i < 20; i++)
		wrs[i].send_flags = 0;
	wrs[19].next = wrs;
	MUST(ibv_post_send(a, wrs, &bad) == ENOMEM);
	wrs[19].next = NULL;

	MUST(!ibv_destroy_qp(a) && !ibv_destroy_qp(b));
	while (ibv_poll_cq(cq, 1, &wc) > 0)
		;
	MUST(!ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel) && !ibv_dealloc_pd(pd));
}

/*
 * An overrun of a completion queue causes asynchronous events. Destroying the queue waits until the
 * program has acknowledged them.
 */
static void asynchronous_events(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	struct ibv_qp *a = new_qp(pd, cq), *b = new_qp(pd, cq);
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, 8, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_context *other = open_only();
	struct pollfd ready[2] = { { .fd = context->async_fd, .events = POLLIN }, { .fd = other->async_fd, .events = POLLIN } };
	struct ibv_async_event event;
	int seen = 0, posted;

	MUST(context->async_fd >= 0 && context->async_fd != other->async_fd);
	MUST(fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK) == 0);
	connect_qp(a, b);
	connect_qp(b, a);
	/* The event COMM_EST may arrive as well. */
	while (ibv_get_async_event(context, &event) == 0)
		ibv_ack_async_event(&event);
	MUST(errno == EAGAIN);
	wr.wr.rdma.remote_addr = (uintptr_t)buffer;
	wr.wr.rdma.rkey = mr->rkey;
	for (posted = 0; posted <= cq->cqe; posted++)
		MUST(!ibv_post_send(a, &wr, &bad));
	while (!seen) {
		MUST(poll(ready, 1, 10000) == 1);
		MUST(!ibv_get_async_event(context, &event));
		if (event.event_type == IBV_EVENT_CQ_ERR) {
			MUST(event.element.cq == cq);
			seen = 1;
		} else {
			MUST(event.element.qp == a || event.element.qp == b);
		}
		ibv_ack_async_event(&event);
	}
	MUST(cq->async_events_completed == 1);
	/* A context without these objects gets no event. */
	MUST(poll(&ready[1], 1, 0) == 0);
	MUST(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_cq(cq));
	MUST(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(other));
	while (ibv_get_async_event(context, &event) == 0)
		MUST(event.event_type >= IBV_EVENT_DEVICE_FATAL);
}

/*
 * A queue pair that fails takes no further receive from its shared queue, and reports
 * LAST_WQE_REACHED.
 */
static void last_wqe_reached(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &shared);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 1 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_async_event event;

	MUST(qp && !ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_ERR;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	MUST(!ibv_get_async_event(context, &event));
	MUST(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && event.element.qp == qp);
	ibv_ack_async_event(&event);
	MUST(qp->events_completed == 1);
	MUST(!ibv_destroy_qp(qp) && !ibv_destroy_srq(srq) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
}

/* Functions that few devices offer and this device has, and functions that it lacks. */
static void seldom_offered(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_xrcd_init_attr xrcd_attr = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT };
	struct ibv_alloc_dm_attr dm_attr = { .length = 64 };
	struct ibv_td *td = ibv_alloc_td(context, &td_attr);
	struct ibv_xrcd *xrcd = ibv_open_xrcd(context, &xrcd_attr);
	struct ibv_dm *dm = ibv_alloc_dm(context, &dm_attr);

	MUST(td && !ibv_dealloc_td(td));
	MUST(xrcd && !ibv_close_xrcd(xrcd));
	MUST(dm && !ibv_free_dm(dm));
	FAILS(ibv_create_flow((struct ibv_qp *)&(struct ibv_qp){ .context = context }, NULL), EOPNOTSUPP);
	MUST(!ibv_fork_init() && ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
	MUST(!ibv_dealloc_pd(pd));
}

/* All texts that the library returns without a device, compared with rdma-core's texts. */
/* Two connected queue pairs. */
struct loop {
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *a, *b;
};

static struct loop open_loop(void)
{
	struct loop loop = { .pd = ibv_alloc_pd(context), .channel = ibv_create_comp_channel(context) };

	loop.cq = ibv_create_cq(context, 16, NULL, loop.channel, 0);
	loop.mr = ibv_reg_mr(loop.pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	MUST(loop.pd && loop.channel && loop.cq && loop.mr);
	loop.a = new_qp(loop.pd, loop.cq);
	loop.b = new_qp(loop.pd, loop.cq);
	connect_qp(loop.a, loop.b);
	connect_qp(loop.b, loop.a);
	return loop;
}

/* Each second message has its lists at odd addresses, as libiscsi has them in packed structures. */
static void send_over(const struct loop *loop, uint32_t number)
{
	char odd[2][1 + sizeof(struct ibv_sge)] __attribute__((aligned(8)));
	struct ibv_sge from = { (uintptr_t)buffer, 8192, loop->mr->lkey };
	struct ibv_sge to = { (uintptr_t)buffer + 16384, 8192, loop->mr->lkey };
	struct ibv_send_wr send = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_recv_wr recv = { .sg_list = &to, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr *bad;
	int i;

	for (i = 0; i < 2048; i++)
		((uint32_t *)buffer)[i] = number * 2048 + i;
	if (number % 2) {
		memcpy(odd[0] + 1, &from, sizeof(from));
		memcpy(odd[1] + 1, &to, sizeof(to));
		send.sg_list = (struct ibv_sge *)(odd[0] + 1);
		recv.sg_list = (struct ibv_sge *)(odd[1] + 1);
	}
	MUST(!ibv_post_recv(loop->b, &recv, &bad_recv));
	MUST(!ibv_post_send(loop->a, &send, &bad));
	take(loop->cq);
	take(loop->cq);
	MUST(!memcmp(buffer, buffer + 16384, 8192));
}

static void close_loop(const struct loop *loop)
{
	MUST(!ibv_destroy_qp(loop->a));
	MUST(!ibv_destroy_qp(loop->b));
	MUST(!ibv_dereg_mr(loop->mr));
	MUST(!ibv_destroy_cq(loop->cq));
	MUST(!ibv_destroy_comp_channel(loop->channel));
	MUST(!ibv_dealloc_pd(loop->pd));
	MUST(!ibv_close_device(context));
}

static struct loop parents;
static atomic_uint sent;
static atomic_bool enough;

static void *keep_sending(void *unused)
{
	while (!enough)
		send_over(&parents, sent++);
	return unused;
}

/*
 * A child may close its copy of the device at any time. The child opens the device again at once,
 * and the parent continues.
 */
static int forks(void)
{
	struct ibv_context *inherited;
	unsigned int before;
	pthread_t thread;
	struct loop own;
	int round, i, status;
	pid_t child;

	context = inherited = open_only();
	parents = open_loop();
	MUST(!pthread_create(&thread, NULL, keep_sending, NULL));
	for (round = 0; round < 20; round++) {
		child = fork();
		MUST(child >= 0);
		if (!child) {
			if (round % 2)
				close_loop(&parents);
			context = open_only();
			own = open_loop();
			MUST(round % 2 || own.a->qp_num >> 18 != parents.a->qp_num >> 18);
			for (i = 0; i < 50; i++)
				send_over(&own, i);
			close_loop(&own);
			context = inherited;
			if (round % 4 == 2)
				close_loop(&parents);
			_exit(0);
		}
		before = sent;
		while (sent - before < 20)
			usleep(100);
		MUST(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
	}
	enough = 1;
	MUST(!pthread_join(thread, NULL));
	close_loop(&parents);
	puts("all as expected");
	return 0;
}

static int texts(void)
{
	int i;

	for (i = -2; i < 40; i++) {
		printf("%d: %s, %s, %s, %s", i, ibv_node_type_str(i), ibv_port_state_str(i), ibv_event_type_str(i),
		       ibv_wc_status_str(i));
		printf(", %d, %d, %d, %d\n", ibv_rate_to_mult(i), ibv_rate_to_mbps(i), mult_to_ibv_rate(i),
		       mbps_to_ibv_rate(i * 2500));
	}
	return 0;
}

int main(int argc, char **argv)
{
	int round;

	if (argc == 2 && !strcmp(argv[1], "texts"))
		return texts();
	if (argc == 2 && !strcmp(argv[1], "fork"))
		return forks();
	setvbuf(stdout, NULL, _IOLBF, 0);
	MUST(threads() == 1);
	for (round = 0; round < 3; round++) {
		context = open_only();
		MUST(threads() > 1);
		attributes();
		memory();
		queues();
		traffic();
		asynchronous_events();
		last_wqe_reached();
		seldom_offered();
		MUST(!ibv_close_device(context));
		MUST(threads() == 1);
	}
	puts("all as expected");
	return 0;
}
