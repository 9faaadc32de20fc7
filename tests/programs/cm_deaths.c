// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * cm_deaths - the events of one side of rdma_cm when the process of the other side ends, in each
 * state of a connection.
 *
 *	cm_deaths dies STATE ADDRESS PORT	reaches STATE, then ends by the signal that it gets
 *	cm_deaths stays STATE ADDRESS PORT	is the other side, and reaches its part of STATE
 *	cm_deaths				prints the names of the states
 *
 * Both sides print "here, process N" in that state. SIGUSR1 reports the death to the surviving
 * side. This side then prints the event that it gets, the results of further calls, and the
 * milliseconds since the signal:
 *
 *	event	nothing 0				1501
 *	answers	errno 0					1501
 *	then	RDMA_CM_EVENT_UNREACHABLE -110		70232
 *
 * The dying side ends as the signal says: SIGKILL kills it, SIGUSR2 makes it exit, SIGHUP _exit, and
 * SIGURG execute another program. SIGWINCH makes it fork a child that exits; the side itself stays.
 *
 * ADDRESS is the address of the passive side, which binds to it. In states that begin with "a-",
 * the active side is killed. In states that begin with "p-", the passive side is killed.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#include "check.h"

/*
 * Milliseconds. SOON: packets of a killed process have arrived. TIMEOUT: a side without an answer
 * has given up its retries.
 */
#define SOON	1500
#define TIMEOUT	200000
/* One retry, so that a queue pair fails within seconds. */
#define RETRIES	1

/* The last step that a side takes. */
enum step {
	/* Steps of the active side. */
	ADDRESS, ROUTE, REQUEST, RESPONSE,
	/* Steps of the passive side. */
	LISTEN, REQUESTED, ACCEPT,
	/* Steps of both sides. */
	CONNECTED, DISCONNECT, DISCONNECTED,
};

/* The calls of the surviving side after the signal. */
enum then {
	NOTHING,
	/* Its request is sent, and it waits for the answer. */
	WAIT,
	/* Accepts the request. */
	ANSWER,
	/* Sends a message and disconnects. */
	USE,
	/* Disconnects, too. */
	AGREE,
};

static const struct state {
	const char *name;
	enum rdma_port_space space;
	enum step active, passive;
	enum then then;
} STATES[] = {
	{ "a-address", RDMA_PS_TCP, ADDRESS, LISTEN, NOTHING },
	{ "a-route", RDMA_PS_TCP, ROUTE, LISTEN, NOTHING },
	{ "a-req-sent", RDMA_PS_TCP, REQUEST, REQUESTED, ANSWER },
	{ "a-rep-received", RDMA_PS_TCP, RESPONSE, ACCEPT, WAIT },
	{ "a-connected", RDMA_PS_TCP, CONNECTED, CONNECTED, USE },
	{ "a-dreq-sent", RDMA_PS_TCP, DISCONNECT, DISCONNECTED, AGREE },
	{ "a-sidr-req-sent", RDMA_PS_UDP, REQUEST, REQUESTED, ANSWER },
	{ "p-req-received", RDMA_PS_TCP, REQUEST, REQUESTED, WAIT },
	{ "p-rep-sent", RDMA_PS_TCP, RESPONSE, ACCEPT, USE },
	{ "p-connected", RDMA_PS_TCP, CONNECTED, CONNECTED, USE },
	{ "p-dreq-received", RDMA_PS_TCP, DISCONNECT, DISCONNECTED, WAIT },
	{ "p-sidr-req-received", RDMA_PS_UDP, REQUEST, REQUESTED, WAIT },
};
#define COUNT	(sizeof(STATES) / sizeof(STATES[0]))

static const struct state *state;
static struct rdma_event_channel *channel;
static struct sockaddr_in place;
/* The identifier of the connection, or of the listener before a request. */
static struct rdma_cm_id *id;
static struct timespec signaled;

static int has_event(int ms)
{
	struct pollfd wait = { .fd = channel->fd, .events = POLLIN };

	return poll(&wait, 1, ms) == 1;
}

static void expect_event(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	MUST(has_event(TIMEOUT));
	MUST(rdma_get_cm_event(channel, &event) == 0);
	if (event->event != type) {
		printf("%s, status %d, expected %s\n", rdma_event_str(event->event), event->status,
		       rdma_event_str(type));
		exit(1);
	}
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
		id = event->id;
	MUST(rdma_ack_cm_event(event) == 0);
}

static int make_qp(void)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = state->space == RDMA_PS_TCP ? IBV_QPT_RC : IBV_QPT_UD,
	};

	return rdma_create_qp(id, NULL, &attr);
}

static struct rdma_conn_param param(void)
{
	return (struct rdma_conn_param) { .retry_count = RETRIES, .rnr_retry_count = 7, .qp_num = id->qp->qp_num };
}

static int answer(void)
{
	struct rdma_conn_param attributes;

	/* Fails here if the request no longer exists. */
	if (make_qp() != 0)
		return -1;
	attributes = param();
	return rdma_accept(id, &attributes);
}

static void be_active(enum step last)
{
	struct rdma_conn_param attributes;

	MUST(rdma_create_id(channel, &id, NULL, state->space) == 0);
	MUST(rdma_resolve_addr(id, NULL, (struct sockaddr *)&place, 2000) == 0);
	expect_event(RDMA_CM_EVENT_ADDR_RESOLVED);
	if (last == ADDRESS)
		return;
	MUST(rdma_resolve_route(id, 2000) == 0);
	expect_event(RDMA_CM_EVENT_ROUTE_RESOLVED);
	if (last == ROUTE)
		return;
	MUST(make_qp() == 0);
	attributes = param();
	MUST(rdma_connect(id, &attributes) == 0);
	if (last == REQUEST)
		return;
	/* The event is queued, but not taken, so that no RTU is sent. */
	MUST(has_event(TIMEOUT));
	if (last == RESPONSE)
		return;
	expect_event(RDMA_CM_EVENT_ESTABLISHED);
}

static void be_passive(enum step last)
{
	MUST(rdma_create_id(channel, &id, NULL, state->space) == 0);
	MUST(rdma_bind_addr(id, (struct sockaddr *)&place) == 0 && rdma_listen(id, 4) == 0);
	printf("listens\n");
	if (last == LISTEN)
		return;
	expect_event(RDMA_CM_EVENT_CONNECT_REQUEST);
	if (last == REQUESTED)
		return;
	MUST(answer() == 0);
	if (last == ACCEPT)
		return;
	expect_event(RDMA_CM_EVENT_ESTABLISHED);
	if (last == DISCONNECTED)
		expect_event(RDMA_CM_EVENT_DISCONNECTED);
}

static void print_result(const char *what, const char *result, int number)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	printf("%s\t%s %d\t%ld\n", what, result, number,
	       (now.tv_sec - signaled.tv_sec) * 1000 + (now.tv_nsec - signaled.tv_nsec) / 1000000);
}

/* Prints the next event, if one arrives in time. */
static void print_event(const char *what, int ms)
{
	struct rdma_cm_event *event;

	while (has_event(ms)) {
		if (rdma_get_cm_event(channel, &event) == 0) {
			print_result(what, rdma_event_str(event->event), event->status);
			MUST(rdma_ack_cm_event(event) == 0);
			return;
		}
		/*
		 * The library handled an event itself: the rejection of a connection that it failed
		 * to establish.
		 */
		MUST(errno == EAGAIN);
	}
	print_result(what, "nothing", 0);
}

/* Sends a message to the killed side and disconnects. */
static void use(void)
{
	struct ibv_send_wr *bad, wr = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_wc done = { 0 };

	MUST(ibv_post_send(id->qp, &wr, &bad) == 0);
	for (int ms = 0; ibv_poll_cq(id->send_cq, 1, &done) == 0 && ms < TIMEOUT; ms += 10)
		usleep(10000);
	print_result("sends", ibv_wc_status_str(done.status), (int)done.status);
	print_result("disconnects", "errno", rdma_disconnect(id) == 0 ? 0 : errno);
	/* A connection that was never established has no DISCONNECTED event. */
	print_event("then", done.status == IBV_WC_WR_FLUSH_ERR ? SOON : TIMEOUT);
}

static void stay(void)
{
	print_event("event", state->then == WAIT ? TIMEOUT : SOON);
	switch (state->then) {
	case NOTHING:
	case WAIT:
		break;
	case ANSWER: {
		int result = answer();

		print_result("answers", "errno", result == 0 ? 0 : errno);
		/* No event follows the answer to a SIDR request. */
		if (result == 0)
			print_event("then", state->space == RDMA_PS_TCP ? TIMEOUT : SOON);
		break;
	}
	case USE:
		use();
		break;
	case AGREE:
		print_result("disconnects", "errno", rdma_disconnect(id) == 0 ? 0 : errno);
		print_event("then", TIMEOUT);
		break;
	}
}

/* A forked child has copies of all objects. Its normal end must not end the connection. */
static void fork_child(void)
{
	pid_t child = fork();
	int status;

	if (child == 0)
		exit(0);
	MUST(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	printf("the child ended\n");
}

int main(int argc, char **argv)
{
	int stays, is_active, number;
	enum step last;
	sigset_t death;

	setbuf(stdout, NULL);
	if (argc == 1) {
		for (unsigned at = 0; at < COUNT; at++)
			printf("%s\n", STATES[at].name);
		return 0;
	}
	MUST(argc == 5);
	alarm(600);
	sigemptyset(&death);
	sigaddset(&death, SIGUSR1);
	sigaddset(&death, SIGUSR2);
	sigaddset(&death, SIGHUP);
	sigaddset(&death, SIGURG);
	sigaddset(&death, SIGWINCH);
	MUST(sigprocmask(SIG_BLOCK, &death, NULL) == 0);
	stays = strcmp(argv[1], "stays") == 0;
	for (unsigned at = 0; at < COUNT; at++)
		if (strcmp(STATES[at].name, argv[2]) == 0)
			state = &STATES[at];
	MUST(state);
	place.sin_family = AF_INET;
	place.sin_port = htons((uint16_t)atoi(argv[4]));
	MUST(inet_pton(AF_INET, argv[3], &place.sin_addr) == 1);
	channel = rdma_create_event_channel();
	MUST(channel && fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK) == 0);
	is_active = (state->name[0] == 'a') != stays;
	last = is_active ? state->active : state->passive;
	if (is_active)
		be_active(last);
	else
		be_passive(last);
	if (last == DISCONNECT)
		MUST(rdma_disconnect(id) == 0);
	printf("here, process %d\n", getpid());
	for (;;) {
		MUST(sigwait(&death, &number) == 0);
		if (number != SIGWINCH)
			break;
		fork_child();
	}
	if (number == SIGUSR2)
		exit(0);
	if (number == SIGHUP)
		_exit(0);
	if (number == SIGURG) {
		/* Other tests wait for the end of this process. */
		execlp("sleep", "sleep", "10", (char *)NULL);
		perror("sleep");
	}
	clock_gettime(CLOCK_MONOTONIC, &signaled);
	if (stays)
		stay();
	/* Cleaning up would wait for an answer. */
	_exit(0);
}
