/*
 * Completions in a C program: polling by several threads in turn, moderated events, and events of
 * completions from before their request. The program is compiled against Debian's headers, linked
 * with -libverbs, and does not depend on urxe.
 *
 * It prints the line of the first failed check.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "linked.h"

#define THREADS 4
#define MESSAGES 4000
#define UNDER_WAY 32

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static char buffer[4096];

static void write_once(struct ibv_qp *from, uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)buffer, 8, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE }, *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)buffer + 64;
	wr.wr.rdma.rkey = mr->rkey;
	MUST(!ibv_post_send(from, &wr, &bad));
}

static struct ibv_cq_ex *shared;
static atomic_uint seen[MESSAGES], taken;

/* Polls the queue batch by batch. The completion between start and end must not change. */
static void *take_turns(void *unused)
{
	struct ibv_poll_cq_attr attr = { 0 };
	uint64_t wr_id;

	while (taken < MESSAGES) {
		if (ibv_start_poll(shared, &attr))
			continue;
		do {
			wr_id = shared->wr_id;
			MUST(shared->status == IBV_WC_SUCCESS && ibv_wc_read_opcode(shared) == IBV_WC_RDMA_WRITE);
			sched_yield();
			MUST(shared->wr_id == wr_id && wr_id < MESSAGES);
			seen[wr_id]++;
			taken++;
		} while (!ibv_next_poll(shared));
		ibv_end_poll(shared);
	}
	return unused;
}

static void turns(void)
{
	struct ibv_cq_init_attr_ex init = { .cqe = 2 * UNDER_WAY, .wc_flags = IBV_WC_STANDARD_FLAGS };
	pthread_t thread[THREADS];
	struct ibv_qp *a, *b;
	unsigned int i;

	MUST((shared = ibv_create_cq_ex(context, &init)));
	a = unlinked(pd, ibv_cq_ex_to_cq(shared), IBV_QPT_RC);
	b = unlinked(pd, ibv_cq_ex_to_cq(shared), IBV_QPT_RC);
	link_to(a, b);
	link_to(b, a);
	for (i = 0; i < THREADS; i++)
		MUST(!pthread_create(&thread[i], NULL, take_turns, NULL));
	for (i = 0; i < MESSAGES; i++) {
		while (i - taken >= UNDER_WAY)
			sched_yield();
		write_once(a, i);
	}
	for (i = 0; i < THREADS; i++)
		MUST(!pthread_join(thread[i], NULL));
	for (i = 0; i < MESSAGES; i++)
		MUST(seen[i] == 1);
	MUST(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_cq(ibv_cq_ex_to_cq(shared)));
}

static int is_readable(int fd, int milliseconds)
{
	struct pollfd ready = { .fd = fd, .events = POLLIN };

	return poll(&ready, 1, milliseconds) == 1;
}

static void post_writes(struct ibv_qp *from, int count)
{
	while (count--)
		write_once(from, count);
}

/* Returns the current value of the clock of completion timestamps. */
static uint64_t now(void)
{
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };

	MUST(!ibv_query_rt_values_ex(context, &values) && values.comp_mask == IBV_VALUES_MASK_RAW_CLOCK);
	return values.raw_clock.tv_sec * 1000000000ull + values.raw_clock.tv_nsec;
}

/*
 * Three completions cause one event, however long the first two wait. Their timestamps increase and
 * lie between the clock values before and after.
 */
static void held_back(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq_init_attr_ex init = { .cqe = 16, .channel = channel,
					    .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP };
	struct ibv_modify_cq_attr moderate = { .attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = { .cq_count = 3 } };
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &init);
	struct ibv_cq *plain = ibv_cq_ex_to_cq(cq), *signaled;
	struct ibv_qp *a = unlinked(pd, plain, IBV_QPT_RC), *b = unlinked(pd, plain, IBV_QPT_RC);
	uint64_t before, last, stamp;
	int round, count;
	void *with;

	MUST(channel && cq);
	link_to(a, b);
	link_to(b, a);
	MUST(!ibv_modify_cq(plain, &moderate));
	for (round = 0; round < 3; round++) {
		before = last = now();
		MUST(!ibv_req_notify_cq(plain, 0));
		post_writes(a, 2);
		MUST(!is_readable(channel->fd, 100));
		post_writes(a, 1);
		MUST(is_readable(channel->fd, 10000));
		MUST(!ibv_get_cq_event(channel, &signaled, &with) && signaled == plain);
		MUST(!ibv_start_poll(cq, &attr));
		for (count = 1;; count++) {
			stamp = ibv_wc_read_completion_ts(cq);
			MUST(stamp >= last && stamp <= now());
			last = stamp;
			if (ibv_next_poll(cq))
				break;
		}
		ibv_end_poll(cq);
		MUST(count == 3 && last > before);
		MUST(!is_readable(channel->fd, 0));
	}
	ibv_ack_cq_events(plain, round);
	MUST(plain->comp_events_completed == (uint32_t)round);
	MUST(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_cq(plain) && !ibv_destroy_comp_channel(channel));
}

/* Makes completions at once: the queue pair is in the error state. */
static void post_receives(struct ibv_qp *broken, int count)
{
	struct ibv_recv_wr wr = { 0 }, *bad;

	while (count--)
		MUST(!ibv_post_recv(broken, &wr, &bad));
}

static void take_event(struct ibv_comp_channel *channel)
{
	struct ibv_cq *signaled;
	void *with;

	MUST(is_readable(channel->fd, 10000));
	MUST(!ibv_get_cq_event(channel, &signaled, &with));
	ibv_ack_cq_events(signaled, 1);
}

/*
 * A completion that came between the last empty poll and the request of an event causes the event,
 * because UCX sleeps next. A program that takes an event, requests the next one and then polls gets
 * no extra event.
 */
static void missed(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq_init_attr_ex init = { .cqe = 64, .channel = channel, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &init);
	struct ibv_cq *plain = ibv_cq_ex_to_cq(cq);
	struct ibv_qp *qp = unlinked(pd, plain, IBV_QPT_RC);
	struct ibv_wc wc[8];
	int empty_poll;

	MUST(channel && cq);
	link_to(qp, qp);
	MUST(!ibv_modify_qp(qp, &error, IBV_QP_STATE));
	for (empty_poll = 0; empty_poll < 3; empty_poll++) {
		/* The first completion has its event. The program does not know the second yet. */
		MUST(!ibv_req_notify_cq(plain, 0));
		post_receives(qp, 2);
		take_event(channel);
		MUST(!ibv_req_notify_cq(plain, 0) && !is_readable(channel->fd, 0));
		MUST(ibv_poll_cq(plain, 2, wc) == 2);
		post_receives(qp, 1);
		take_event(channel);

		/* The queue is found empty in each of three ways. */
		if (empty_poll == 0) {
			MUST(ibv_poll_cq(plain, 8, wc) == 1);
		} else if (empty_poll == 1) {
			MUST(ibv_poll_cq(plain, 1, wc) == 1 && ibv_poll_cq(plain, 1, wc) == 0);
		} else {
			MUST(!ibv_start_poll(cq, &attr) && ibv_next_poll(cq) == ENOENT);
			ibv_end_poll(cq);
		}
		post_receives(qp, 1);
		MUST(!ibv_req_notify_cq(plain, 0));
		take_event(channel);
		/* A batch has the completions from after the request, because they cause no event. */
		post_receives(qp, 1);
		MUST(!ibv_start_poll(cq, &attr) && !ibv_next_poll(cq) && ibv_next_poll(cq) == ENOENT);
		ibv_end_poll(cq);
		MUST(!is_readable(channel->fd, 0));
	}
	MUST(!ibv_destroy_qp(qp) && !ibv_destroy_cq(plain) && !ibv_destroy_comp_channel(channel));
}

/* Stores the processors of the library's thread. */
static void processors_of_background(cpu_set_t *set)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;
	int found = 0;

	while ((task = readdir(tasks))) {
		if (task->d_name[0] != '.' && atoi(task->d_name) != getpid()) {
			MUST(!sched_getaffinity(atoi(task->d_name), sizeof(*set), set));
			found++;
		}
	}
	closedir(tasks);
	MUST(found == 1);
}

/*
 * The library's thread may run on all processors of the process, although the thread that opens the
 * device is pinned to one. With the argument "inherits", it inherits that one.
 */
static void pinned(int inherits)
{
	cpu_set_t all, one, background;
	int cpu = 0, tries;

	MUST(!sched_getaffinity(0, sizeof(all), &all));
	while (!CPU_ISSET(cpu, &all))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	MUST(!sched_setaffinity(0, sizeof(one), &one));
	context = open_first();
	/* The thread sets its processors when it starts. */
	for (tries = 0; tries < 1000; tries++) {
		processors_of_background(&background);
		if (CPU_EQUAL(&background, inherits ? &one : &all))
			break;
		usleep(10000);
	}
	MUST(tries < 1000);
	MUST(!sched_setaffinity(0, sizeof(all), &all));
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	pinned(argc == 2 && !strcmp(argv[1], "inherits"));
	MUST((pd = ibv_alloc_pd(context)) && (mr = ibv_reg_mr(pd, buffer, sizeof(buffer), REMOTE)));
	turns();
	held_back();
	missed();
	MUST(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("all as expected");
	return 0;
}
