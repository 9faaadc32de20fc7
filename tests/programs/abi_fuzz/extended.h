/*
 * The extended functions of queue pairs and completion queues: work request builders (`ibv_wr_*`)
 * and polling of one completion after another (`ibv_start_poll`).
 *
 * The functions are called in any order between start and complete, and with setters before the
 * first request. A completion queue with these functions has the fields that it was created with
 * in `cq_context`.
 */
#ifndef EXTENDED_H
#define EXTENDED_H

#include "objects.h"

/* Sets data of the request: entries of any region, or inline data of the arena. */
static void set_data(struct ibv_qp_ex *qp)
{
	struct ibv_mr *mr = pick(MR);
	uint32_t key = mr && below(10) ? mr->lkey : (uint32_t)number(256);
	uint64_t address = below(12) ? (uintptr_t)arena + below(ARENA) : number(65536);
	struct ibv_sge sges[64];
	struct ibv_data_buf pieces[4];
	unsigned int count = below(12) ? below(5) : below(64);

	for (unsigned int i = 0; i < 64; i++)
		sges[i] = (struct ibv_sge){ (uintptr_t)arena + below(ARENA), below(64), key };
	/* Inline data that is longer than the limit is not read, so its length may be any. */
	for (unsigned int i = 0; i < 4; i++) {
		pieces[i] = (struct ibv_data_buf){ arena + below(ARENA / 2), below(100) };
		if (below(30) == 0)
			pieces[i].length = ARENA + number(ARENA);
	}
	switch (below(5)) {
	case 0: ibv_wr_set_sge(qp, key, address, number(4096)); break;
	case 1: ibv_wr_set_sge_list(qp, count, sges); break;
	case 2: ibv_wr_set_inline_data(qp, pieces[0].addr, pieces[0].length); break;
	case 3: ibv_wr_set_inline_data_list(qp, below(5), pieces); break;
	default: break;
	}
}

static void set_destination(struct ibv_qp_ex *qp)
{
	uint32_t number_of_queue = below(4) && pick(QP) ? ((struct ibv_qp *)pick(QP))->qp_num : number(1 << 24);

	if (below(2))
		ibv_wr_set_ud_addr(qp, pick(AH), number_of_queue, number(4));
	else
		ibv_wr_set_xrc_srqn(qp, number(64));
}

static void begin_request(struct ibv_qp_ex *qp)
{
	struct ibv_mr *mr = pick(MR);
	uint32_t key = mr && below(8) ? mr->rkey : number(256);
	uint64_t address = below(8) ? (uintptr_t)arena + below(ARENA) : number(65536);
	struct ibv_mw_bind_info bind = { mr, (uintptr_t)arena + below(ARENA), number(ARENA), flags(0xff) };

	qp->wr_id = random_64();
	qp->wr_flags = flags(0x1f);
	switch (below(11)) {
	case 0: ibv_wr_send(qp); break;
	case 1: ibv_wr_send_imm(qp, random_64()); break;
	case 2: ibv_wr_send_inv(qp, key); break;
	case 3: ibv_wr_local_inv(qp, key); break;
	case 4: ibv_wr_rdma_read(qp, key, address); break;
	case 5: ibv_wr_rdma_write(qp, key, address); break;
	case 6: ibv_wr_rdma_write_imm(qp, key, address, random_64()); break;
	case 7: ibv_wr_atomic_cmp_swp(qp, key, address, random_64(), random_64()); break;
	case 8: ibv_wr_atomic_fetch_add(qp, key, address, random_64()); break;
	case 9: ibv_wr_atomic_write(qp, key, address, arena + below(ARENA / 2)); break;
	default: ibv_wr_bind_mw(qp, below(8) ? pick(MW) : NULL, key, below(8) ? &bind : NULL); break;
	}
}

/* Posts a batch, or drops it. */
static void build_requests(struct ibv_qp *plain)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(plain);
	unsigned int count = below(30) ? below(6) : below(200);

	if (!qp)
		return;
	call_now = "ibv_wr_start";
	ibv_wr_start(qp);
	for (unsigned int i = 0; i < count; i++) {
		call_now = "ibv_wr_*";
		calls_made++;
		if (below(12))
			begin_request(qp);
		if (below(4))
			set_data(qp);
		if (below(2))
			set_destination(qp);
	}
	if (below(8) == 0) {
		call_now = "ibv_wr_abort";
		ibv_wr_abort(qp);
	} else {
		CALL(ibv_wr_complete(qp));
	}
}

/* Returns the queue with its extended functions, or NULL. */
static struct ibv_cq_ex *extended(struct ibv_cq *cq)
{
	return cq && (uintptr_t)cq->cq_context & IS_EXTENDED ? (struct ibv_cq_ex *)cq : NULL;
}

static void read_fields(struct ibv_cq_ex *cq, uint64_t fields)
{
	if (cq->status > IBV_WC_TM_RNDV_INCOMPLETE || !ibv_wc_status_str(cq->status))
		fault("status of a completion", cq->status);
	if (ibv_wc_read_opcode(cq) > IBV_WC_DRIVER3)
		fault("opcode of a completion", ibv_wc_read_opcode(cq));
	ibv_wc_read_vendor_err(cq);
	ibv_wc_read_wc_flags(cq);
	if (fields & IBV_WC_EX_WITH_BYTE_LEN)
		ibv_wc_read_byte_len(cq);
	if (fields & IBV_WC_EX_WITH_IMM)
		ibv_wc_read_imm_data(cq);
	if (fields & IBV_WC_EX_WITH_QP_NUM)
		ibv_wc_read_qp_num(cq);
	if (fields & IBV_WC_EX_WITH_SRC_QP)
		ibv_wc_read_src_qp(cq);
	if (fields & IBV_WC_EX_WITH_SLID)
		ibv_wc_read_slid(cq);
	if (fields & IBV_WC_EX_WITH_SL)
		ibv_wc_read_sl(cq);
	if (fields & IBV_WC_EX_WITH_DLID_PATH_BITS)
		ibv_wc_read_dlid_path_bits(cq);
	if (fields & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
		ibv_wc_read_completion_ts(cq);
	if (fields & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
		ibv_wc_read_completion_wallclock_ns(cq);
}

/* Takes some completions one by one. Other calls on the queue may come between. */
static void poll_extended(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = { .comp_mask = below(12) ? 0 : number(4) };
	struct ibv_modify_cq_attr moderation = { .attr_mask = flags(1), .moderate = { number(8), number(64) } };
	uint64_t fields = (uintptr_t)ibv_cq_ex_to_cq(cq)->cq_context & 0xffffffff;
	int rc;

	call_now = "ibv_start_poll";
	calls_made++;
	rc = ibv_start_poll(cq, &attr);
	if (rc) {
		check_error(rc);
		return;
	}
	for (unsigned int left = below(20); !rc; left--) {
		read_fields(cq, fields);
		if (below(12) == 0)
			CALL(ibv_req_notify_cq(ibv_cq_ex_to_cq(cq), number(1)));
		if (below(12) == 0)
			CALL(ibv_modify_cq(ibv_cq_ex_to_cq(cq), &moderation));
		if (!left)
			break;
		call_now = "ibv_next_poll";
		calls_made++;
		rc = ibv_next_poll(cq);
		if (rc)
			check_error(rc);
	}
	call_now = "ibv_end_poll";
	ibv_end_poll(cq);
}

/* The moderation of a queue that may have events. */
static void moderate(struct ibv_cq *cq)
{
	struct ibv_modify_cq_attr attr = { .attr_mask = flags(1), .moderate = { number(8), number(64) } };

	CALL(ibv_modify_cq(cq, &attr));
}

#endif
