/*
 * Threads that sleep in calls while other threads end these calls: by an event, by a signal, by
 * cancellation, and by the destruction of the object that the call waits for.
 *
 * libibverbs lets a thread sleep in the kernel on the descriptor of a destroyed channel or of a
 * closed device. Such a thread must come back with an error after a signal, and touch no freed
 * memory.
 */
#ifndef SLEEPERS_H
#define SLEEPERS_H

#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <sys/wait.h>
#include <time.h>

#include "addresses.h"

struct sleep {
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	struct rdma_event_channel *set;
	pthread_t thread;
	int kind;
	atomic_int has_begun, is_over;
};

static void nothing(int signal)
{
	(void)signal;
}

/* Signals must end calls, and not restart them. */
static void catch_signals(void)
{
	struct sigaction action = { .sa_handler = nothing };

	MUST(!sigaction(SIGUSR1, &action, NULL));
}

static void check_interrupted(int rc)
{
	/* EINTR of the signal, or the answer for an object that is gone. */
	if (rc != -1 || (errno != EINTR && errno != EINVAL && errno != EBADF))
		fault("answer of a call that was ended", rc ? errno : 0);
	calls_made++;
}

static void over(void *argument)
{
	((struct sleep *)argument)->is_over = 1;
}

static void *fall_asleep(void *argument)
{
	struct sleep *sleep = argument;
	struct ibv_comp_channel *channel = sleep->channel;
	struct rdma_event_channel *set = sleep->set;
	struct ibv_context *context = sleep->context;
	struct ibv_async_event asynchronous;
	struct rdma_cm_event *event;
	struct ibv_cq *cq;
	void *its;

	pthread_cleanup_push(over, argument);
	sleep->has_begun = 1;
	switch (sleep->kind) {
	case 0: check_interrupted(ibv_get_cq_event(channel, &cq, &its)); break;
	case 1: check_interrupted(ibv_get_async_event(context, &asynchronous)); break;
	default: check_interrupted(rdma_get_cm_event(set, &event)); break;
	}
	pthread_cleanup_pop(1);
	return NULL;
}

static void wait_up_to(unsigned int us)
{
	struct timespec pause = { 0, below(us) * 1000 };

	nanosleep(&pause, NULL);
}

static void destroy_channel(struct sleep *sleep)
{
	if (sleep->channel)
		MUST(!ibv_destroy_comp_channel(sleep->channel));
	sleep->channel = NULL;
}

static void close_context(struct sleep *sleep)
{
	if (sleep->context)
		MUST(!ibv_close_device(sleep->context));
	sleep->context = NULL;
}

static void destroy_set(struct sleep *sleep)
{
	if (sleep->set)
		rdma_destroy_event_channel(sleep->set);
	sleep->set = NULL;
}

/* Destroys the object of the sleep. */
static void take_away(struct sleep *sleep)
{
	if (sleep->kind == 2)
		destroy_set(sleep);
	else if (sleep->kind == 1 || below(2))
		close_context(sleep);
	else
		destroy_channel(sleep);
}

/* One thread of each kind sleeps, and is ended in one of the ways. */
static void disturb_sleepers(void)
{
	struct sleep sleeps[3];

	for (int i = 0; i < 3; i++) {
		sleeps[i] = (struct sleep){ .context = open_first(), .kind = i, .set = rdma_create_event_channel() };
		MUST((sleeps[i].channel = ibv_create_comp_channel(sleeps[i].context)) && sleeps[i].set);
		MUST(!pthread_create(&sleeps[i].thread, NULL, fall_asleep, &sleeps[i]));
		while (!sleeps[i].has_begun)
			usleep(100);
	}
	for (int i = 0; i < 3; i++) {
		struct sleep *sleep = &sleeps[i];
		int is_cancelled = below(2), is_gone = below(3) > 0;

		call_now = "the end of a sleep";
		step_now++;
		wait_up_to(below(4) ? 3000 : 80000);
		if (is_gone)
			take_away(sleep);
		wait_up_to(1000);
		if (is_cancelled)
			MUST(!pthread_cancel(sleep->thread));
		/* The signal may arrive before the thread sleeps. */
		while (!sleep->is_over) {
			pthread_kill(sleep->thread, SIGUSR1);
			usleep(500);
		}
		MUST(!pthread_join(sleep->thread, NULL));
		/* Also the channel of a closed context. */
		if (below(2))
			close_context(sleep);
		destroy_channel(sleep);
		close_context(sleep);
		destroy_set(sleep);
	}
}

/* In a child, inherited objects can be queried and destroyed, and new ones made. */
static void fork_and_use(struct ibv_context *context, struct rdma_cm_id *id, int inherited)
{
	pid_t child = fork();
	int status;

	MUST(child >= 0);
	if (child == 0) {
		struct rdma_event_channel *set;
		struct rdma_cm_id *own;
		struct ibv_device_attr device;
		struct ibv_pd *pd;
		int made;

		alarm(20);
		CALL(ibv_query_device(context, &device));
		MUST((pd = ibv_alloc_pd(context)) && !ibv_dealloc_pd(pd));
		rdma_destroy_id(id);
		rclose(inherited);
		MUST((set = rdma_create_event_channel()) && !rdma_create_id(set, &own, NULL, RDMA_PS_TCP));
		MUST(!rdma_destroy_id(own));
		rdma_destroy_event_channel(set);
		MUST((made = rsocket(AF_INET, SOCK_STREAM, 0)) >= 0 && !rclose(made));
		MUST(!ibv_close_device(context));
		_exit(0);
	}
	MUST(waitpid(child, &status, 0) == child && WIFEXITED(status));
	if (WEXITSTATUS(status))
		fault("status of the child", status);
}

static void run_sleepers(void)
{
	struct rdma_event_channel *set = rdma_create_event_channel();
	struct ibv_context *context = open_first();
	struct rdma_cm_id *id;
	int inherited = rsocket(AF_INET, SOCK_STREAM, 0);

	MUST(set && inherited >= 0 && !rdma_create_id(set, &id, NULL, RDMA_PS_TCP));
	for (int i = 0; i < 10; i++)
		disturb_sleepers();
	fork_and_use(context, id, inherited);
	MUST(!rclose(inherited) && !rdma_destroy_id(id) && !ibv_close_device(context));
	rdma_destroy_event_channel(set);
}

#endif
