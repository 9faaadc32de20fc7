/*
 * The descriptors of completion channels, of asynchronous events and of the connection manager's
 * events, as a program's event loop uses them. The answer is the events that poll, select and epoll
 * report.
 */
#ifndef DESCRIPTORS_H
#define DESCRIPTORS_H

#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <rdma/rdma_cma.h>

#include "queue_pairs.h"

static void polled(int fd)
{
	struct pollfd entry = { fd, POLLIN | POLLOUT | POLLPRI | POLLRDHUP | POLLRDNORM | POLLWRNORM, 0 };
	int answer = poll(&entry, 1, 0);

	printf("%d, 0x%x\n", answer, entry.revents);
}

static void selected(int fd)
{
	struct timeval at_once = { 0, 0 };
	fd_set in, out, special;
	int answer;

	FD_ZERO(&in);
	FD_SET(fd, &in);
	special = out = in;
	answer = select(fd + 1, &in, &out, &special, &at_once);
	printf("%d,%s%s%s\n", answer, FD_ISSET(fd, &in) ? " in" : "", FD_ISSET(fd, &out) ? " out" : "",
	       FD_ISSET(fd, &special) ? " special" : "");
}

/* Prints the events of a descriptor in an epoll set after a wait of so many ms, and then those of a second call. */
static void waited(int set, int timeout)
{
	struct epoll_event event = { 0 };
	int first = epoll_wait(set, &event, 1, timeout), second = epoll_wait(set, &(struct epoll_event){ 0 }, 1, 0);

	printf("%d, 0x%x, again %d\n", first, event.events, second);
}

static int set_of(int fd, uint32_t mode)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | mode };
	int set = epoll_create1(EPOLL_CLOEXEC);

	MUST(set >= 0 && !epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
	return set;
}

static const char *mode_of(int fd)
{
	static char text[64];

	snprintf(text, sizeof(text), "%s%s", fcntl(fd, F_GETFL) & O_NONBLOCK ? "non-blocking" : "blocking",
		 fcntl(fd, F_GETFD) & FD_CLOEXEC ? ", closed on exec" : "");
	return text;
}

/* One completion on a queue pair that is connected with itself. */
static void complete(struct ibv_qp *qp)
{
	struct ibv_sge sge = { .addr = (uintptr_t)buffer, .length = 8, .lkey = mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
				  .wr.rdma = { .remote_addr = (uintptr_t)buffer, .rkey = mr->rkey } }, *bad;

	MUST(!ibv_post_send(qp, &wr, &bad));
}

static void empty(const char *name, int fd)
{
	char what[128];

#define NAMED(text, value) (snprintf(what, sizeof(what), text, value), what)
	int level = set_of(fd, 0);

	CASE(NAMED("the descriptor of %s, its mode", name)) puts(mode_of(fd));
	CASE(NAMED("poll of %s without an event", name)) polled(fd);
	CASE(NAMED("select of %s without an event", name)) selected(fd);
	CASE(NAMED("epoll of %s without an event", name)) waited(level, 0);
	close(level);
}

static void descriptors(void)
{
	struct rdma_event_channel *connections = rdma_create_event_channel();
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *usual_queue = cq, *signaled;
	struct ibv_qp *qp;
	struct pollfd wait;
	int edge, copy;
	void *with;

	MUST(connections && channel && (cq = ibv_create_cq(context, 16, NULL, channel, 0)));
	qp = connected();
	empty("a completion channel", channel->fd);
	empty("asynchronous events", context->async_fd);
	empty("an event channel", connections->fd);
	edge = set_of(channel->fd, EPOLLET);
	MUST((copy = dup(channel->fd)) >= 0 && !fcntl(copy, F_SETFL, O_NONBLOCK));
	CASE("the descriptor of a completion channel, its mode after a duplicate's was set") puts(mode_of(channel->fd));
	for (volatile int i = 1; i <= 2; i++) {
		char what[64];

		MUST(!ibv_req_notify_cq(cq, 0));
		complete(qp);
		wait = (struct pollfd){ channel->fd, POLLIN, 0 };
		MUST(poll(&wait, 1, 10000) == 1);
		CASE(NAMED("poll of a completion channel, events: %d", i)) polled(copy);
		CASE(NAMED("select of a completion channel, events: %d", i)) selected(channel->fd);
		/* The second event comes after the first one made the descriptor readable. */
		CASE(NAMED("edge-triggered epoll of a completion channel, events: %d", i)) waited(edge, 10000);
	}
	for (volatile int i = 1; i >= 0; i--) {
		char what[64];

		MINUS_ONE(NAMED("get_cq_event, then events: %d", i), ibv_get_cq_event(channel, &signaled, &with));
		CASE(NAMED("poll of a completion channel, then events: %d", i)) polled(channel->fd);
	}
	MINUS_ONE("get_cq_event after the last", ibv_get_cq_event(channel, &signaled, &with));
	ibv_ack_cq_events(cq, 2);
	close(edge);
	close(copy);
	MUST(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel));
	rdma_destroy_event_channel(connections);
	cq = usual_queue;
}

#endif
