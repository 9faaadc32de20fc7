/*
 * Queue pairs after they are connected: the drained send queue (SQD), the send queue after an error
 * (SQE), and the alternate path. The program is compiled against Debian's headers, linked with
 * -libverbs, and does not depend on urxe.
 *
 * It prints the line of the first failed check.
 */
#include <poll.h>

#include "linked.h"

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static char buffer[4096];

static void post(struct ibv_qp *qp, uint64_t wr_id, uint32_t lkey)
{
	struct ibv_sge sge = { (uintptr_t)buffer, 64, lkey };
	struct ibv_send_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	MUST(!ibv_post_send(qp, &wr, &bad));
}

static void post_receive(struct ibv_qp *qp, uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)buffer + 1024, 1024, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	MUST(!ibv_post_recv(qp, &wr, &bad));
}

static void expect(uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc;
	int count;

	while (!(count = ibv_poll_cq(cq, 1, &wc)))
		;
	MUST(count == 1);
	if (wc.wr_id != wr_id || wc.status != status)
		printf("%d: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status));
	MUST(wc.wr_id == wr_id && wc.status == status);
}

/* Expects two successful completions, in either order. */
static void expect_both(uint64_t one, uint64_t other)
{
	uint64_t seen = 0;
	struct ibv_wc wc;
	int count, left;

	for (left = 2; left;) {
		MUST((count = ibv_poll_cq(cq, 1, &wc)) >= 0);
		if (!count)
			continue;
		MUST(wc.status == IBV_WC_SUCCESS);
		seen |= 1ull << wc.wr_id;
		left--;
	}
	MUST(seen == (1ull << one | 1ull << other));
}

static int nothing_comes(int milliseconds)
{
	struct ibv_wc wc;

	poll(NULL, 0, milliseconds);
	return ibv_poll_cq(cq, 1, &wc) == 0;
}

static enum ibv_qp_state state_of(struct ibv_qp *qp, struct ibv_qp_attr *attr)
{
	struct ibv_qp_init_attr init;

	MUST(!ibv_query_qp(qp, attr, IBV_QP_STATE | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE, &init));
	return attr->qp_state;
}

static void go_to(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

/* Waits for an event of the queue pair, and ignores other events before it. */
static void await_event(struct ibv_qp *qp, enum ibv_event_type due)
{
	struct ibv_async_event event;
	enum ibv_event_type type;

	do {
		MUST(!ibv_get_async_event(context, &event));
		type = event.event_type;
		MUST(type != due || event.element.qp == qp);
		ibv_ack_async_event(&event);
	} while (type != due);
}

/* A request posted to a drained queue waits. Attributes that change meanwhile apply to it. */
static void drained(void)
{
	struct ibv_qp *a = unlinked(pd, cq, IBV_QPT_RC), *b = unlinked(pd, cq, IBV_QPT_RC);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1, .rnr_retry = 0 };
	struct ibv_qp_init_attr init;

	link_to(a, b);
	link_to(b, a);
	MUST(!ibv_modify_qp(a, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
	await_event(a, IBV_EVENT_SQ_DRAINED);
	MUST(state_of(a, &attr) == IBV_QPS_SQD && !attr.sq_draining);
	post_receive(b, 1);
	post(a, 2, mr->lkey);
	MUST(nothing_comes(50));
	attr.rnr_retry = 0;
	MUST(!ibv_modify_qp(a, &attr, IBV_QP_RNR_RETRY));
	go_to(a, IBV_QPS_RTS);
	expect_both(1, 2);
	/* Without a receive and without retries, the request fails at once. */
	post(a, 3, mr->lkey);
	expect(3, IBV_WC_RNR_RETRY_EXC_ERR);
	/* The structure has the state of the last call that set or queried the state. */
	MUST(!ibv_query_qp(a, &attr, IBV_QP_AV, &init) && attr.qp_state == IBV_QPS_ERR && a->state == IBV_QPS_RTS);
	MUST(state_of(a, &attr) == IBV_QPS_ERR && a->state == IBV_QPS_ERR);
	MUST(!ibv_destroy_qp(a) && !ibv_destroy_qp(b));
}

/* A failed send of an unreliable connection stops only its send queue. */
static void after_an_error(void)
{
	struct ibv_qp *a = unlinked(pd, cq, IBV_QPT_UC), *b = unlinked(pd, cq, IBV_QPT_UC);
	struct ibv_qp_attr attr;

	link_to(a, b);
	link_to(b, a);
	post(a, 1, mr->lkey ^ 1);
	expect(1, IBV_WC_LOC_PROT_ERR);
	MUST(state_of(a, &attr) == IBV_QPS_SQE);
	post(a, 2, mr->lkey);
	expect(2, IBV_WC_WR_FLUSH_ERR);
	post_receive(a, 3);
	post(b, 4, mr->lkey);
	expect_both(4, 3);
	go_to(a, IBV_QPS_RTS);
	post_receive(b, 5);
	post(a, 6, mr->lkey);
	expect_both(6, 5);
	MUST(!ibv_destroy_qp(a) && !ibv_destroy_qp(b));
}

/* An alternate path is stored and returned. Requests to arm it or to migrate to it are refused. */
static void alternate_path(void)
{
	struct ibv_qp *a = unlinked(pd, cq, IBV_QPT_RC), *b = unlinked(pd, cq, IBV_QPT_RC);
	struct ibv_qp_attr attr = attributes_towards(b), found;
	enum ibv_mig_state state;

	link_to(a, b);
	attr.alt_ah_attr = attr.ah_attr;
	attr.alt_ah_attr.grh.traffic_class = 0x40;
	attr.alt_ah_attr.grh.sgid_index = 1;
	attr.alt_port_num = 1;
	attr.alt_timeout = 17;
	MUST(!ibv_modify_qp(a, &attr, IBV_QP_ALT_PATH));
	MUST(state_of(a, &found) == IBV_QPS_RTS);
	MUST(found.alt_timeout == 17 && found.alt_port_num == 1 && found.alt_pkey_index == 0);
	MUST(found.alt_ah_attr.is_global && found.alt_ah_attr.grh.traffic_class == 0x40);
	MUST(found.alt_ah_attr.grh.sgid_index == 1);
	MUST(!memcmp(&found.alt_ah_attr.grh.dgid, &attr.ah_attr.grh.dgid, sizeof(union ibv_gid)));
	for (state = IBV_MIG_REARM; state <= IBV_MIG_ARMED; state++) {
		attr.path_mig_state = state;
		MUST(ibv_modify_qp(a, &attr, IBV_QP_PATH_MIG_STATE) == EOPNOTSUPP);
	}
	attr.path_mig_state = IBV_MIG_MIGRATED;
	MUST(!ibv_modify_qp(a, &attr, IBV_QP_PATH_MIG_STATE));
	attr.alt_port_num = 2;
	MUST(ibv_modify_qp(a, &attr, IBV_QP_ALT_PATH) == EINVAL);
	MUST(state_of(a, &found) == IBV_QPS_RTS && found.path_mig_state == IBV_MIG_MIGRATED && found.alt_port_num == 1);
	MUST(!ibv_destroy_qp(a) && !ibv_destroy_qp(b));
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	context = open_first();
	MUST((pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, 64, NULL, NULL, 0)));
	MUST((mr = ibv_reg_mr(pd, buffer, sizeof(buffer), REMOTE)));
	drained();
	after_an_error();
	alternate_path();
	MUST(!ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("all as expected");
	return 0;
}
