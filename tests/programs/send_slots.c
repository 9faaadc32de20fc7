/*
 * When the entries of a send queue are free again: by default when a request is acknowledged, and
 * with the argument "strict" when a completion of the entry or of a later one is polled. The program
 * is compiled against Debian's headers, linked with -libverbs, and does not depend on urxe.
 *
 * It prints the line of the first failed check.
 */
#include <sched.h>

#include "linked.h"

#define ENTRIES 4

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static volatile uint64_t memory[2];

/* Creates a queue pair of four sends, of which only signaled ones complete. */
static struct ibv_qp *small(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = ENTRIES, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	MUST(qp && init.cap.max_send_wr == ENTRIES);
	return qp;
}

/* Posts a WRITE of its number, and waits until it is in memory. Returns the result of the post. */
static int write_number(struct ibv_qp *qp, uint64_t number, int signaled)
{
	struct ibv_sge sge = { (uintptr_t)&memory[0], 8, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = number, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = signaled ? IBV_SEND_SIGNALED : 0 }, *bad;
	int error;

	wr.wr.rdma.remote_addr = (uintptr_t)&memory[1];
	wr.wr.rdma.rkey = mr->rkey;
	memory[0] = number;
	if ((error = ibv_post_send(qp, &wr, &bad)))
		return error;
	while (memory[1] != number)
		sched_yield();
	return 0;
}

static void poll_success(struct ibv_cq *cq, uint64_t wr_id)
{
	struct ibv_wc wc;
	int polled;

	while (!(polled = ibv_poll_cq(cq, 1, &wc)))
		sched_yield();
	MUST(polled == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == wr_id);
}

/* A thousand requests that are not signaled fit one after the other. */
static void as_rxe(struct ibv_qp *qp, struct ibv_cq *cq)
{
	uint64_t number;
	int error;

	for (number = 1; number <= 1000; number++) {
		/* The acknowledgement of the last request may be under way. */
		while ((error = write_number(qp, number, number == 1000)))
			MUST(error == ENOMEM);
	}
	poll_success(cq, 1000);
}

static void as_nic(struct ibv_qp *qp, struct ibv_cq *cq)
{
	uint64_t round, first, number;
	struct ibv_wc wc;

	for (round = 0; round < 100; round++) {
		first = 1 + round * ENTRIES;
		for (number = first; number < first + ENTRIES; number++)
			MUST(!write_number(qp, number, number == first + ENTRIES - 1));
		MUST(write_number(qp, 0, 0) == ENOMEM && write_number(qp, 0, 1) == ENOMEM);
		poll_success(cq, first + ENTRIES - 1);
	}
	/* Without a signaled request, no entry is free again. */
	for (number = 1; number <= ENTRIES; number++)
		MUST(!write_number(qp, number, 0));
	for (round = 0; round < 1000; round++) {
		MUST(write_number(qp, 0, 0) == ENOMEM);
		MUST(!ibv_poll_cq(cq, 1, &wc));
	}
}

int main(int argc, char **argv)
{
	struct ibv_qp *a, *b;
	struct ibv_cq *cq;

	context = open_first();
	MUST((pd = ibv_alloc_pd(context)));
	MUST((mr = ibv_reg_mr(pd, (void *)memory, sizeof(memory), REMOTE)));
	MUST((cq = ibv_create_cq(context, 16, NULL, NULL, 0)));
	a = small(cq);
	b = small(cq);
	link_to(a, b);
	link_to(b, a);
	if (argc > 1 && !strcmp(argv[1], "strict"))
		as_nic(a, cq);
	else
		as_rxe(a, cq);
	MUST(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
	MUST(!ibv_close_device(context));
	puts("all as expected");
	return 0;
}
