/*
 * Threads that destroy while others post, poll and sleep.
 *
 * Four links of two RC queue pairs send to each other. A destroyer replaces a link, its completion
 * queue included, while the peers' packets are on their way and while the other links work. A mutex
 * of each link keeps the rule of libibverbs that no thread uses a destroyed object. Sleepers in
 * ibv_get_cq_event are woken by signals or cancelled. A child of fork() queries and ends.
 */
#ifndef THREADS_H
#define THREADS_H

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>

#include "sleepers.h"

#define LINKS	4

static struct link {
	pthread_mutex_t mutex;
	struct ibv_cq *cq;
	struct ibv_qp *ends[2];
} links[LINKS];

static struct ibv_context *shared_context;
static struct ibv_pd *shared_pd;
static struct ibv_mr *shared_mr;
static struct ibv_comp_channel *shared_channel;
static atomic_int is_over;

static void make_link(struct link *link)
{
	MUST(link->cq = ibv_create_cq(shared_context, 256, NULL, shared_channel, 0));
	MUST(!ibv_req_notify_cq(link->cq, 0));
	for (int i = 0; i < 2; i++)
		link->ends[i] = unlinked(shared_pd, link->cq, IBV_QPT_RC);
	for (int i = 0; i < 2; i++)
		link_to(link->ends[i], link->ends[!i]);
}

static void destroy_link(struct link *link, unsigned int order)
{
	MUST(!ibv_destroy_qp(link->ends[order & 1]));
	MUST(!ibv_destroy_qp(link->ends[!(order & 1)]));
	/* Waits for the sleepers' acknowledgements. */
	MUST(!ibv_destroy_cq(link->cq));
}

/* Posts a WRITE or a READ from the lower to the upper half of the arena. */
static int post_one(struct ibv_qp *qp, enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge = { (uintptr_t)arena, ARENA / 4, shared_mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)arena + ARENA / 2;
	wr.wr.rdma.rkey = shared_mr->rkey;
	return ibv_post_send(qp, &wr, &bad);
}

static void *post_and_poll(void *unused)
{
	uint64_t turn = (uintptr_t)&unused >> 6;

	while (!is_over) {
		struct link *link = &links[turn++ % LINKS];
		struct ibv_wc wc[8];
		int n;

		if (pthread_mutex_trylock(&link->mutex))
			continue;
		for (int i = 0; i < 8; i++)
			post_one(link->ends[turn & 1], turn & 2 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ);
		n = ibv_poll_cq(link->cq, 8, wc);
		MUST(n >= 0);
		for (int i = 0; i < n; i++)
			if (wc[i].status != IBV_WC_SUCCESS)
				fault("status of a completion", wc[i].status);
		MUST(!ibv_req_notify_cq(link->cq, 0));
		pthread_mutex_unlock(&link->mutex);
	}
	return NULL;
}

/* The acknowledgement must follow the event also when the thread is cancelled. */
static void *sleep_for_events(void *unused)
{
	struct ibv_cq *cq;
	void *its;
	int before;

	while (!is_over) {
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
		struct pollfd ready = { shared_channel->fd, POLLIN, 0 };

		pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
		poll(&ready, 1, 20);
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
		if (ready.revents && !ibv_get_cq_event(shared_channel, &cq, &its))
			ibv_ack_cq_events(cq, 1);
		pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
	}
	return unused;
}

/* Sleeps on a channel without events; a signal or a cancellation ends the sleep. */
static void *sleep_alone(void *channel)
{
	struct ibv_cq *cq;
	void *its;

	while (ibv_get_cq_event(channel, &cq, &its) == -1 && errno == EINTR && !is_over)
		;
	return NULL;
}

static void fork_and_query(void)
{
	pid_t child = fork();
	int status;

	MUST(child >= 0);
	if (child == 0) {
		struct ibv_port_attr port;

		alarm(20);
		_exit(ibv_query_port(shared_context, 1, &port) ? 2 : 0);
	}
	MUST(waitpid(child, &status, 0) == child && WIFEXITED(status));
	if (WEXITSTATUS(status))
		fault("status of the child", status);
}

/* Verifies every byte of a WRITE and a READ between new queue pairs, and closes the context. */
static void verify_device(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	static unsigned char from[8192], to[8192];
	struct ibv_mr *source, *target;
	struct ibv_qp *a, *b;
	struct ibv_wc wc;
	int n;

	call_now = "verification";
	MUST(pd && cq && (source = ibv_reg_mr(pd, from, sizeof(from), REMOTE)));
	MUST((target = ibv_reg_mr(pd, to, sizeof(to), REMOTE)));
	a = unlinked(pd, cq, IBV_QPT_RC);
	b = unlinked(pd, cq, IBV_QPT_RC);
	link_to(a, b);
	link_to(b, a);
	for (int is_read = 0; is_read < 2; is_read++) {
		struct ibv_sge sge = { (uintptr_t)(is_read ? to : from), sizeof(from), is_read ? target->lkey : source->lkey };
		struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

		wr.opcode = is_read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
		wr.wr.rdma.remote_addr = (uintptr_t)(is_read ? from : to);
		wr.wr.rdma.rkey = is_read ? source->rkey : target->rkey;
		for (size_t i = 0; i < sizeof(from); i++) {
			from[i] = random_64();
			to[i] = ~from[i];
		}
		MUST(!ibv_post_send(a, &wr, &bad));
		while (!(n = ibv_poll_cq(cq, 1, &wc)))
			;
		MUST(n == 1 && wc.status == IBV_WC_SUCCESS);
		MUST(!memcmp(from, to, sizeof(from)));
	}
	MUST(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_cq(cq));
	MUST(!ibv_dereg_mr(source) && !ibv_dereg_mr(target) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
}

static void disturb(struct ibv_comp_channel *quiet)
{
	pthread_t sleeper;

	MUST(!pthread_create(&sleeper, NULL, sleep_alone, quiet));
	for (int i = 0; i < 60; i++) {
		struct link *link = &links[below(LINKS)];
		struct timespec pause = { 0, below(2000000) };

		step_now++;
		nanosleep(&pause, NULL);
		pthread_mutex_lock(&link->mutex);
		destroy_link(link, below(2));
		make_link(link);
		pthread_mutex_unlock(&link->mutex);
		pthread_kill(sleeper, SIGUSR1);
		if (below(12) == 0)
			fork_and_query();
		if (below(12) == 0) {
			MUST(!pthread_cancel(sleeper) && !pthread_join(sleeper, NULL));
			MUST(!pthread_create(&sleeper, NULL, sleep_alone, quiet));
		}
	}
	MUST(!pthread_cancel(sleeper) && !pthread_join(sleeper, NULL));
}

static void run_threads(void)
{
	struct ibv_comp_channel *quiet;
	pthread_t posters[2], sleeper;

	is_over = 0;
	shared_context = open_first();
	MUST((shared_pd = ibv_alloc_pd(shared_context)) && (shared_channel = ibv_create_comp_channel(shared_context)));
	MUST((shared_mr = ibv_reg_mr(shared_pd, arena, ARENA, REMOTE)));
	MUST((quiet = ibv_create_comp_channel(shared_context)));
	MUST(!fcntl(shared_channel->fd, F_SETFL, O_NONBLOCK));
	for (int i = 0; i < LINKS; i++) {
		pthread_mutex_init(&links[i].mutex, NULL);
		make_link(&links[i]);
	}
	for (int i = 0; i < 2; i++)
		MUST(!pthread_create(&posters[i], NULL, post_and_poll, NULL));
	MUST(!pthread_create(&sleeper, NULL, sleep_for_events, NULL));
	disturb(quiet);
	is_over = 1;
	for (int i = 0; i < 2; i++)
		MUST(!pthread_join(posters[i], NULL));
	MUST(!pthread_join(sleeper, NULL));
	for (int i = 0; i < LINKS; i++)
		destroy_link(&links[i], i);
	MUST(!ibv_destroy_comp_channel(quiet) && !ibv_destroy_comp_channel(shared_channel));
	MUST(!ibv_dereg_mr(shared_mr) && !ibv_dealloc_pd(shared_pd) && !ibv_close_device(shared_context));
	verify_device(open_first());
}

#endif
