/*
 * A forked child of a process that sends through shared memory. Two processes connect a queue pair
 * each. The first one sends numbered messages and waits for each reply. Then it forks, and its child
 * posts messages and polls on the inherited queue pair. Nothing of the child may arrive: the second
 * process checks that the numbers follow each other.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { BEFORE = 5000, AFTER = 500, OF_CHILD = 100 };

/* What the other process needs to connect. */
struct end {
	uint32_t qpn;
	union ibv_gid gid;
};

static uint64_t buffer[2];
static struct ibv_mr *mr;
static struct ibv_cq *cq;
static struct ibv_qp *qp;

static void connect_over(int in, int out)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 128, .max_recv_wr = 16,
									 .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp_attr attr = {
		.port_num = 1, .path_mtu = IBV_MTU_1024, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } },
	};
	struct end own, other;

	MUST(pd && (cq = ibv_create_cq(context, 256, NULL, NULL, 0)));
	MUST((mr = ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE)));
	init.send_cq = init.recv_cq = cq;
	MUST((qp = ibv_create_qp(pd, &init)));
	own.qpn = qp->qp_num;
	MUST(!ibv_query_gid(context, 1, 0, &own.gid));
	MUST(write(out, &own, sizeof(own)) == sizeof(own) && read(in, &other, sizeof(other)) == sizeof(other));
	attr.dest_qp_num = other.qpn;
	attr.ah_attr.grh.dgid = other.gid;
	attr.qp_state = IBV_QPS_INIT;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void post_receive(void)
{
	struct ibv_sge to = { (uintptr_t)&buffer[1], sizeof(buffer[1]), mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &to, .num_sge = 1 }, *bad;

	MUST(!ibv_post_recv(qp, &wr, &bad));
}

static int post_number(uint64_t number)
{
	struct ibv_sge from = { (uintptr_t)&buffer[0], sizeof(buffer[0]), mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;

	buffer[0] = number;
	return ibv_post_send(qp, &wr, &bad);
}

/* Waits for the completions of a sent and of a received message. */
static void take_two(void)
{
	struct ibv_wc wc;
	int left = 2;

	while (left) {
		int count = ibv_poll_cq(cq, 1, &wc);

		MUST(count >= 0 && (!count || wc.status == IBV_WC_SUCCESS));
		left -= count;
	}
}

static void exchange(uint64_t first, uint64_t count)
{
	uint64_t number;

	for (number = first; number < first + count; number++) {
		post_receive();
		MUST(!post_number(number));
		take_two();
		MUST(buffer[1] == number);
	}
}

/* Replies to each message with its number. */
static void reply(uint64_t count)
{
	struct ibv_wc wc;
	uint64_t number = 0;
	int polled;

	post_receive();
	while (number < count) {
		polled = ibv_poll_cq(cq, 1, &wc);
		MUST(polled >= 0 && (!polled || wc.status == IBV_WC_SUCCESS));
		if (!polled || wc.opcode != IBV_WC_RECV)
			continue;
		MUST(buffer[1] == number);
		post_receive();
		MUST(!post_number(number));
		number++;
	}
	/* The last reply arrives before this process ends. */
	while (!ibv_poll_cq(cq, 1, &wc))
		;
}

int main(void)
{
	int to_second[2], to_first[2], status, i;
	pid_t second, child;
	struct ibv_wc wc;

	MUST(!pipe(to_second) && !pipe(to_first));
	second = fork();
	MUST(second >= 0);
	if (!second) {
		/* If the first process fails, no message comes. */
		alarm(60);
		connect_over(to_second[0], to_first[1]);
		MUST(write(to_first[1], "r", 1) == 1);
		reply(BEFORE + AFTER);
		exit(0);
	}
	connect_over(to_first[0], to_second[1]);
	MUST(read(to_first[0], &status, 1) == 1);
	exchange(0, BEFORE);
	child = fork();
	MUST(child >= 0);
	if (!child) {
		for (i = 0; i < OF_CHILD; i++) {
			post_number(1 << 30 | i);
			ibv_poll_cq(cq, 1, &wc);
		}
		_exit(0);
	}
	MUST(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
	exchange(BEFORE, AFTER);
	MUST(waitpid(second, &status, 0) == second && WIFEXITED(status) && !WEXITSTATUS(status));
	puts("all as expected");
	return 0;
}
