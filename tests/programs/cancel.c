/*
 * Cancels threads (pthread_cancel) while they wait for events and while they post and poll. A
 * cancelled thread must end, and the objects that it used must go on working. The program is
 * compiled against Debian's headers, linked with -libverbs and -lrdmacm, and does not depend on
 * urxe.
 *
 * It prints the line of the first failed check.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <unistd.h>

#include "linked.h"

#define ROUNDS 100

static struct ibv_context *context;
static struct ibv_comp_channel *completions;
static struct rdma_event_channel *connections;
static struct ibv_cq *cq;
static struct ibv_qp *a, *b;
static struct ibv_mr *mr;
static char buffer[4096];
static atomic_uint written;

static void *wait_for_completion(void *unused)
{
	struct ibv_cq *of;
	void *its;

	MUST(!ibv_get_cq_event(completions, &of, &its));
	return unused;
}

static void *wait_for_event(void *unused)
{
	struct ibv_async_event event;

	MUST(!ibv_get_async_event(context, &event));
	return unused;
}

static void *wait_for_connection(void *unused)
{
	struct rdma_cm_event *event;

	MUST(!rdma_get_cm_event(connections, &event));
	return unused;
}

/* Cancels the thread, which must end by that. */
static void cancel(pthread_t thread)
{
	void *result;

	MUST(!pthread_cancel(thread) && !pthread_join(thread, &result));
	MUST(result == PTHREAD_CANCELED);
}

/* Cancels waiting threads: both after they went to sleep and on the way there. */
static void waits(void)
{
	void *(*const functions[])(void *) = { wait_for_completion, wait_for_event, wait_for_connection };
	const useconds_t delays[] = { 0, 1000, 150000 };
	pthread_t threads[3];
	unsigned int i, j;

	for (i = 0; i < 3; i++)
		for (j = 0; j < 3; j++) {
			MUST(!pthread_create(&threads[0], NULL, functions[i], NULL));
			usleep(delays[j]);
			cancel(threads[0]);
		}
	for (i = 0; i < 3; i++)
		MUST(!pthread_create(&threads[i], NULL, functions[i], NULL));
	usleep(150000);
	for (i = 0; i < 3; i++)
		cancel(threads[i]);
}

static void write_once(void)
{
	struct ibv_sge sge = { (uintptr_t)buffer, 8, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE }, *bad;
	struct ibv_wc wc;
	int taken;

	wr.wr.rdma.remote_addr = (uintptr_t)buffer + 64;
	wr.wr.rdma.rkey = mr->rkey;
	MUST(!ibv_post_send(a, &wr, &bad));
	while (!(taken = ibv_poll_cq(cq, 1, &wc)))
		;
	MUST(taken == 1 && wc.status == IBV_WC_SUCCESS);
	written++;
}

static void *write_on(void *unused)
{
	for (;;) {
		write_once();
		pthread_testcancel();
	}
	return unused;
}

/* Cancels a thread that posts and polls, at any moment, and then posts from this thread. */
static void posts(void)
{
	unsigned int round, before;
	pthread_t thread;

	for (round = 0; round < ROUNDS; round++) {
		before = written;
		MUST(!pthread_create(&thread, NULL, write_on, NULL));
		while (written < before + 1 + round % 7)
			;
		cancel(thread);
		write_once();
	}
}

/* A verb leaves the state of cancellation as it was. */
static void keeps_the_state(void)
{
	int state;

	MUST(!pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state) && state == PTHREAD_CANCEL_ENABLE);
	write_once();
	MUST(!pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state) && state == PTHREAD_CANCEL_DISABLE);
}

/* An event that arrives while a thread sleeps still wakes that thread. */
static void wakes(void)
{
	pthread_t thread;
	struct ibv_wc wc;
	void *result;

	MUST(!ibv_req_notify_cq(cq, 0));
	MUST(!pthread_create(&thread, NULL, wait_for_completion, &result));
	usleep(150000);
	write_once();
	MUST(!pthread_join(thread, &result) && result == &result);
	ibv_ack_cq_events(cq, 1);
	MUST(!ibv_poll_cq(cq, 1, &wc));
}

int main(void)
{
	struct ibv_pd *pd;

	/*
	 * Ends the program if a cancelled thread does not end.
	 */
	alarm(60);
	context = open_first();
	MUST((pd = ibv_alloc_pd(context)) && (completions = ibv_create_comp_channel(context)));
	MUST((cq = ibv_create_cq(context, 64, NULL, completions, 0)) && (connections = rdma_create_event_channel()));
	MUST((mr = ibv_reg_mr(pd, buffer, sizeof(buffer), REMOTE)));
	a = unlinked(pd, cq, IBV_QPT_RC);
	b = unlinked(pd, cq, IBV_QPT_RC);
	link_to(a, b);
	link_to(b, a);
	waits();
	posts();
	keeps_the_state();
	wakes();
	waits();
	rdma_destroy_event_channel(connections);
	MUST(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(completions));
	MUST(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("all as expected");
	return 0;
}
