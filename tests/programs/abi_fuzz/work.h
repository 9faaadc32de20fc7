/*
 * Random work requests, completions and events.
 *
 * Not generated, because libibverbs defines no answer:
 *
 * - pointers to destroyed objects, or to memory that is not mapped;
 * - NULL in place of an object whose function the header calls through the object itself
 *   (ibv_post_send, ibv_poll_cq, ibv_wr_start);
 * - inline data at an invalid address, which the posting thread reads;
 * - more entries in num_sge than sg_list has, up to the limit of the queue;
 * - the reading of a field of a completion that wc_flags did not request, and calls of the builder
 *   outside of ibv_wr_start and ibv_wr_complete;
 * - the destruction of an object while events of it are not acknowledged, which waits for ever.
 */
#ifndef WORK_H
#define WORK_H

#include <poll.h>

#include "extended.h"
#include "newer.h"

static struct ibv_sge some_sges[3][64];

/* Fills a list with keys of any region: of another domain, without rights, or of none. */
static int fill_sges(struct ibv_sge *sges, int is_inline)
{
	int count = below(12) ? (int)below(4) : (int)number(64);

	for (int i = 0; i < 64; i++) {
		struct ibv_mr *mr = pick(MR);
		unsigned int offset = below(ARENA);

		sges[i].addr = (uintptr_t)arena + offset;
		sges[i].length = below(64);
		sges[i].lkey = mr && below(10) ? mr->lkey : (uint32_t)number(256);
		if (is_inline) {
			sges[i].addr = (uintptr_t)arena + offset / 2;
		} else if (below(12) == 0) {
			sges[i].addr = number(65536);
			sges[i].length = number(ARENA);
		}
	}
	/* Larger numbers exceed the limit of every queue. Inline data is read before that limit. */
	return is_inline && count > 64 ? 64 : count;
}

static void post_send(struct ibv_qp *qp)
{
	struct ibv_send_wr wrs[3], *bad = NULL;
	struct ibv_mr *mr = pick(MR);
	int count = 1 + below(3);

	memset(wrs, 0, sizeof(wrs));
	for (int i = 0; i < count; i++) {
		struct ibv_send_wr *wr = &wrs[i];

		wr->wr_id = random_64();
		wr->next = i + 1 < count ? &wrs[i + 1] : NULL;
		wr->opcode = below(30) ? below(15) : (unsigned int)random_64();
		/* Without IP checksums, and inline only for the arena. */
		wr->send_flags = flags(0x1f);
		wr->num_sge = fill_sges(some_sges[i], wr->send_flags & IBV_SEND_INLINE);
		wr->sg_list = below(20) ? some_sges[i] : NULL;
		if (wr->opcode == IBV_WR_BIND_MW) {
			wr->bind_mw.mw = pick(MW);
			wr->bind_mw.rkey = number(1000);
			wr->bind_mw.bind_info =
				(struct ibv_mw_bind_info){ mr, (uintptr_t)arena + below(ARENA), number(ARENA), flags(0xff) };
		} else if (qp->qp_type == IBV_QPT_UD) {
			wr->wr.ud.ah = pick(AH);
			wr->wr.ud.remote_qpn = below(4) && pick(QP) ? ((struct ibv_qp *)pick(QP))->qp_num : number(1 << 24);
			wr->wr.ud.remote_qkey = number(4);
			if (wr->opcode == IBV_WR_TSO) {
				wr->tso.hdr = arena;
				wr->tso.hdr_sz = below(256);
				wr->tso.mss = number(4096);
			}
		} else {
			wr->wr.atomic.remote_addr = below(8) ? (uintptr_t)arena + below(ARENA) : number(65536);
			wr->wr.atomic.rkey = mr && below(8) ? mr->rkey : number(256);
			if (wr->opcode < IBV_WR_ATOMIC_CMP_AND_SWP)
				wr->wr.rdma.rkey = wr->wr.atomic.rkey;
			wr->qp_type.xrc.remote_srqn = number(64);
		}
	}
	CALL(ibv_post_send(qp, wrs, &bad));
}

static void post_receive(struct ibv_qp *qp, struct ibv_srq *srq)
{
	struct ibv_recv_wr wr = { .wr_id = random_64(), .sg_list = below(20) ? some_sges[0] : NULL }, *bad = NULL;

	wr.num_sge = fill_sges(some_sges[0], 0);
	if (srq)
		CALL(ibv_post_srq_recv(srq, &wr, &bad));
	else
		CALL(ibv_post_recv(qp, &wr, &bad));
}

static void bind_window(struct ibv_qp *qp)
{
	struct ibv_mw *mw = pick(MW);
	struct ibv_mw_bind bind = { .wr_id = random_64(), .send_flags = flags(0xf) };

	bind.bind_info = (struct ibv_mw_bind_info){
		pick(MR), (uintptr_t)arena + below(ARENA), number(ARENA), flags(0xff) };
	if (mw)
		CALL(ibv_bind_mw(qp, mw, &bind));
}

static void poll_queue(void)
{
	struct ibv_cq *cq = pick(CQ);
	struct ibv_wc wc[16];
	int n;

	if (!cq)
		return;
	if (extended(cq) && below(3)) {
		poll_extended(extended(cq));
		return;
	}
	call_now = "ibv_poll_cq";
	n = ibv_poll_cq(cq, below(10) ? 16 : (int)below(2), wc);
	calls_made++;
	if (n > 16)
		fault("number of completions", n);
	for (int i = 0; i < n; i++)
		if (wc[i].status > IBV_WC_TM_RNDV_INCOMPLETE || wc[i].status < 0 || !ibv_wc_status_str(wc[i].status))
			fault("status of a completion", wc[i].status);
	if (below(4) == 0)
		CALL(ibv_req_notify_cq(cq, number(1)));
}

static void take_events(void)
{
	struct ibv_comp_channel *channel = pick(CHANNEL);
	struct ibv_context *context = pick(CONTEXT);
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *its;

	if (channel && !ibv_get_cq_event(channel, &cq, &its))
		ibv_ack_cq_events(cq, 1);
	while (context) {
		struct pollfd ready = { context->async_fd, POLLIN, 0 };

		if (poll(&ready, 1, 0) != 1 || ibv_get_async_event(context, &event))
			break;
		if (!ibv_event_type_str(event.event_type))
			fault("type of an event", event.event_type);
		ibv_ack_async_event(&event);
	}
}

static void one_step(void)
{
	struct ibv_qp *qp = pick(QP);
	unsigned int dice = below(100);

	if (dice < 6)
		make_small();
	else if (dice < 12)
		make_memory();
	else if (dice < 17)
		make_queue();
	else if (dice < 23)
		make_queue_pair();
	else if (dice < 29)
		modify_queue_pair();
	else if (dice < 33)
		query();
	else if (dice < 36)
		change_memory();
	else if (dice < 38)
		pick(CQ) ? moderate(pick(CQ)) : make_queue();
	else if (dice < 46)
		qp ? build_requests(qp) : make_queue_pair();
	else if (dice < 48)
		use_newer();
	else if (dice < 59)
		qp ? post_send(qp) : make_queue_pair();
	else if (dice < 68)
		qp ? post_receive(qp, NULL) : make_queue_pair();
	else if (dice < 72 && pick(SRQ))
		post_receive(NULL, pick(SRQ));
	else if (dice < 75 && qp)
		bind_window(qp);
	else if (dice < 90)
		poll_queue();
	else if (dice < 95)
		take_events();
	else {
		enum kind kind = PD + below(KINDS - PD);
		void *object = pick(kind);

		if (object)
			destroy(kind, object);
	}
}

#endif
