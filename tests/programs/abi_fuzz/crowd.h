/*
 * Threads that build requests, poll one by one, and re-register the region of both, on the same
 * queue pairs and completion queue, while a destroyer replaces these objects.
 *
 * A lock for reading keeps the rule of libibverbs that no thread uses a destroyed object. All other
 * calls run at the same time. Requests may fail, because the region moves while they are under way.
 */
#ifndef CROWD_H
#define CROWD_H

#include "sleepers.h"

#define CROWD	3

static struct {
	pthread_rwlock_t lock;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_mr *mr;
	atomic_uint lkey, rkey;
	struct ibv_cq_ex *cq;
	struct ibv_qp *ends[2];
	atomic_int is_over;
} crowd = { .lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP };

static struct ibv_qp *crowd_qp(void)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_RC, .send_cq = ibv_cq_ex_to_cq(crowd.cq), .recv_cq = ibv_cq_ex_to_cq(crowd.cq),
		.pd = crowd.pd, .sq_sig_all = below(2), .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.cap = { 64, 64, 2, 2, 64 },
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ,
	};
	struct ibv_qp *made = ibv_create_qp_ex(crowd.context, &init);

	MUST(made);
	return made;
}

static void gather_crowd(void)
{
	struct ibv_cq_init_attr_ex init = { .cqe = 512, .wc_flags = IBV_WC_STANDARD_FLAGS };

	MUST((crowd.cq = ibv_create_cq_ex(crowd.context, &init)));
	MUST((crowd.mr = ibv_reg_mr(crowd.pd, arena, ARENA, REMOTE)));
	crowd.lkey = crowd.mr->lkey;
	crowd.rkey = crowd.mr->rkey;
	for (int i = 0; i < 2; i++)
		crowd.ends[i] = crowd_qp();
	for (int i = 0; i < 2; i++)
		link_to(crowd.ends[i], crowd.ends[!i]);
}

static void disperse_crowd(void)
{
	if (below(2)) {
		MUST(!ibv_dereg_mr(crowd.mr));
		crowd.mr = NULL;
	}
	MUST(ibv_destroy_cq(ibv_cq_ex_to_cq(crowd.cq)) == EBUSY);
	MUST(!ibv_destroy_qp(crowd.ends[0]) && !ibv_destroy_qp(crowd.ends[1]));
	MUST(!ibv_destroy_cq(ibv_cq_ex_to_cq(crowd.cq)));
	if (crowd.mr)
		MUST(!ibv_dereg_mr(crowd.mr));
}

static void build_some(void)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(crowd.ends[below(2)]);
	unsigned int requests = 1 + below(4);

	call_now = "ibv_wr_start";
	ibv_wr_start(qp);
	for (unsigned int i = 0; i < requests; i++) {
		qp->wr_id = i;
		qp->wr_flags = flags(IBV_SEND_SIGNALED | IBV_SEND_FENCE);
		switch (below(3)) {
		case 0: ibv_wr_rdma_write(qp, crowd.rkey, (uintptr_t)arena + ARENA / 2); break;
		case 1: ibv_wr_rdma_read(qp, crowd.rkey, (uintptr_t)arena + ARENA / 2); break;
		default: ibv_wr_send(qp); break;
		}
		ibv_wr_set_sge(qp, crowd.lkey, (uintptr_t)arena, below(ARENA / 4));
	}
	if (below(8) == 0)
		ibv_wr_abort(qp);
	else
		CALL(ibv_wr_complete(qp));
}

static void poll_some(void)
{
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_wc wc[8];
	int rc;

	if (below(4) == 0) {
		call_now = "ibv_poll_cq";
		rc = ibv_poll_cq(ibv_cq_ex_to_cq(crowd.cq), 8, wc);
		if (rc > 8)
			fault("number of completions", rc);
		return;
	}
	call_now = "ibv_start_poll";
	rc = ibv_start_poll(crowd.cq, &attr);
	if (rc) {
		check_error(rc);
		return;
	}
	for (int i = 0; i < 8 && !rc; i++) {
		if (crowd.cq->status > IBV_WC_TM_RNDV_INCOMPLETE)
			fault("status of a completion", crowd.cq->status);
		ibv_wc_read_opcode(crowd.cq);
		ibv_wc_read_byte_len(crowd.cq);
		rc = ibv_next_poll(crowd.cq);
	}
	ibv_end_poll(crowd.cq);
}

/* Threads make and destroy queues of one channel. */
static void use_channel(void)
{
	struct ibv_cq *cq;

	call_now = "ibv_create_cq";
	MUST((cq = ibv_create_cq(crowd.context, 4, NULL, crowd.channel, 0)));
	CALL(ibv_resize_cq(cq, 1 + below(64)));
	MUST(!ibv_destroy_cq(cq));
}

static void *crowd_thread(void *number_of_thread)
{
	struct ibv_sge sge = { (uintptr_t)arena, 256, 0 };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	begin_thread((uintptr_t)number_of_thread);
	while (!crowd.is_over) {
		pthread_rwlock_rdlock(&crowd.lock);
		switch (below(7)) {
		case 0:
		case 1: build_some(); break;
		case 3: CALL(ibv_query_qp(crowd.ends[below(2)], &attr, IBV_QP_STATE, &init)); break;
		case 4: use_channel(); break;
		case 2:
			sge.lkey = crowd.lkey;
			CALL(ibv_post_recv(crowd.ends[below(2)], &wr, &bad));
			break;
		default: poll_some(); break;
		}
		pthread_rwlock_unlock(&crowd.lock);
	}
	return NULL;
}

static void run_crowd(unsigned int round)
{
	pthread_t made[CROWD];

	crowd.is_over = 0;
	crowd.context = open_first();
	MUST((crowd.pd = ibv_alloc_pd(crowd.context)) && (crowd.channel = ibv_create_comp_channel(crowd.context)));
	gather_crowd();
	for (uintptr_t i = 0; i < CROWD; i++)
		MUST(!pthread_create(&made[i], NULL, crowd_thread, (void *)(CROWD * round + i + 1)));
	for (int i = 0; i < 60; i++) {
		step_now++;
		wait_up_to(3000);
		if (below(2)) {
			/* Moves the region while requests use it. Only this thread uses its structure. */
			call_now = "ibv_rereg_mr";
			ibv_rereg_mr(crowd.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, arena, 1 + below(ARENA), 0);
			continue;
		}
		pthread_rwlock_wrlock(&crowd.lock);
		disperse_crowd();
		gather_crowd();
		pthread_rwlock_unlock(&crowd.lock);
	}
	crowd.is_over = 1;
	for (int i = 0; i < CROWD; i++)
		MUST(!pthread_join(made[i], NULL));
	disperse_crowd();
	MUST(!ibv_destroy_comp_channel(crowd.channel));
	MUST(!ibv_dealloc_pd(crowd.pd) && !ibv_close_device(crowd.context));
}

#endif
