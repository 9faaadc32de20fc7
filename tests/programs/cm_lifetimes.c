// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * cm_lifetimes - the lifetime of identifiers, events and channels of librdmacm, in several threads.
 *
 *	cm_lifetimes ADDRESS	an address of this host's RDMA device
 *
 * rdma_destroy_id, rdma_migrate_id and rdma_leave_multicast wait until the program has acknowledged
 * each event that it took. They do not wait for events in the queue. The program prints the line of
 * the first failed check.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#include "check.h"

/*
 * Milliseconds. SOON: the limit of a call that does not wait, on a busy machine. WHILE: the time
 * that a waiting call is observed.
 */
#define SOON	20000
#define WHILE	300

static struct sockaddr_in own;

static struct rdma_event_channel *new_channel(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();

	MUST(channel);
	return channel;
}

static struct rdma_cm_id *new_id(struct rdma_event_channel *channel, enum rdma_port_space space)
{
	struct rdma_cm_id *id;

	MUST(rdma_create_id(channel, &id, NULL, space) == 0);
	return id;
}

static int is_waiting(struct rdma_event_channel *channel, int ms)
{
	struct pollfd wait = { .fd = channel->fd, .events = POLLIN };

	return poll(&wait, 1, ms) == 1;
}

static struct rdma_cm_event *take(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	MUST(is_waiting(channel, SOON));
	MUST(rdma_get_cm_event(channel, &event) == 0);
	if (event->event != type) {
		printf("%s, status %d, expected %s\n", rdma_event_str(event->event), event->status,
		       rdma_event_str(type));
		exit(1);
	}
	return event;
}

static void skip(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	MUST(rdma_ack_cm_event(take(channel, type)) == 0);
}

static struct sockaddr *with_port(int port)
{
	static struct sockaddr_in place;

	place = own;
	place.sin_port = htons((uint16_t)port);
	return (struct sockaddr *)&place;
}

/* A call in its own thread. */
struct call {
	int (*what)(struct call *);
	struct rdma_cm_id *id;
	struct rdma_event_channel *channel;
	struct sockaddr_in group;
	pthread_t thread;
	int result;
	atomic_int is_over;
};

static void *made(void *argument)
{
	struct call *call = argument;

	call->result = call->what(call);
	call->is_over = 1;
	return NULL;
}

static void begin(struct call *call)
{
	MUST(pthread_create(&call->thread, NULL, made, call) == 0);
}

/* Checks that the call waits, by its state after WHILE. */
static void must_wait(const struct call *call)
{
	usleep(WHILE * 1000);
	MUST(!call->is_over);
}

static void must_end(struct call *call)
{
	for (int ms = 0; !call->is_over && ms < SOON; ms++)
		usleep(1000);
	MUST(call->is_over);
	pthread_join(call->thread, NULL);
	MUST(call->result == 0);
}

static int destroy(struct call *call)
{
	return rdma_destroy_id(call->id);
}

static int migrate(struct call *call)
{
	return rdma_migrate_id(call->id, call->channel);
}

static int leave(struct call *call)
{
	return rdma_leave_multicast(call->id, (struct sockaddr *)&call->group);
}

/* Two events of one identifier must both be acknowledged. */
static void destroying(void)
{
	struct rdma_event_channel *channel = new_channel();
	struct call call = { .what = destroy, .id = new_id(channel, RDMA_PS_TCP) };
	struct rdma_cm_event *address, *route;

	MUST(rdma_resolve_addr(call.id, NULL, with_port(17101), 2000) == 0);
	address = take(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(rdma_resolve_route(call.id, 2000) == 0);
	route = take(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	begin(&call);
	must_wait(&call);
	MUST(rdma_ack_cm_event(address) == 0);
	must_wait(&call);
	/* Acknowledging the event of another identifier does not end the wait. */
	struct rdma_cm_id *other = new_id(channel, RDMA_PS_TCP);
	MUST(rdma_resolve_addr(other, NULL, with_port(17101), 2000) == 0);
	skip(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	must_wait(&call);
	MUST(rdma_ack_cm_event(route) == 0);
	must_end(&call);
	/* An event in the queue disappears with its identifier. */
	MUST(rdma_resolve_route(other, 2000) == 0);
	MUST(is_waiting(channel, SOON));
	MUST(rdma_destroy_id(other) == 0);
	MUST(!is_waiting(channel, 0));
	rdma_destroy_event_channel(channel);
}

/*
 * A request is an event of its listener. Destroying the listener waits for it, destroying the new
 * identifier does not.
 */
static void requests(void)
{
	struct rdma_event_channel *channel = new_channel(), *client_channel = new_channel();
	struct rdma_cm_id *client = new_id(client_channel, RDMA_PS_TCP);
	struct call call = { .what = destroy, .id = new_id(channel, RDMA_PS_TCP) };
	struct rdma_conn_param param = { .qp_num = 0x77, .retry_count = 7 };
	struct rdma_cm_event *request;

	MUST(rdma_bind_addr(call.id, with_port(17102)) == 0 && rdma_listen(call.id, 2) == 0);
	MUST(rdma_resolve_addr(client, NULL, with_port(17102), 2000) == 0);
	skip(client_channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(rdma_resolve_route(client, 2000) == 0);
	skip(client_channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	MUST(rdma_connect(client, &param) == 0);
	request = take(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	MUST(request->listen_id == call.id && request->id != call.id);
	MUST(rdma_destroy_id(request->id) == 0);
	begin(&call);
	must_wait(&call);
	MUST(rdma_ack_cm_event(request) == 0);
	must_end(&call);
	skip(client_channel, RDMA_CM_EVENT_REJECTED);
	MUST(rdma_destroy_id(client) == 0);
	rdma_destroy_event_channel(client_channel);
	rdma_destroy_event_channel(channel);
}

/*
 * Queued events move to the new channel. The call waits for the event that was taken from the old
 * channel.
 */
static void migrating(void)
{
	struct rdma_event_channel *from = new_channel();
	struct call call = { .what = migrate, .id = new_id(from, RDMA_PS_TCP), .channel = new_channel() };
	struct rdma_cm_event *event;

	MUST(rdma_resolve_addr(call.id, NULL, with_port(17103), 2000) == 0);
	event = take(from, RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(rdma_resolve_route(call.id, 2000) == 0);
	MUST(is_waiting(from, SOON));
	begin(&call);
	must_wait(&call);
	MUST(rdma_ack_cm_event(event) == 0);
	must_end(&call);
	MUST(call.id->channel == call.channel && !is_waiting(from, 0));
	skip(call.channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	rdma_destroy_event_channel(from);
	MUST(rdma_destroy_id(call.id) == 0);
	rdma_destroy_event_channel(call.channel);
}

static void leaving(void)
{
	struct rdma_event_channel *channel = new_channel();
	struct call call = { .what = leave, .id = new_id(channel, RDMA_PS_UDP), .group = { .sin_family = AF_INET } };
	struct rdma_cm_event *event;

	MUST(inet_pton(AF_INET, "239.79.0.7", &call.group.sin_addr) == 1);
	MUST(rdma_bind_addr(call.id, with_port(0)) == 0);
	MUST(rdma_join_multicast(call.id, (struct sockaddr *)&call.group, &call) == 0);
	event = take(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
	MUST(event->param.ud.private_data == &call);
	begin(&call);
	must_wait(&call);
	MUST(rdma_ack_cm_event(event) == 0);
	must_end(&call);
	MUST(rdma_destroy_id(call.id) == 0);
	rdma_destroy_event_channel(channel);
}

/* Destroying a channel closes its descriptor. */
static void channels(void)
{
	struct rdma_event_channel *channel = new_channel(), *other = new_channel();
	struct rdma_cm_id *id = new_id(channel, RDMA_PS_TCP);
	int fd = channel->fd, flags = fcntl(fd, F_GETFL);
	struct rdma_cm_event *event;

	MUST(flags >= 0 && !(flags & O_NONBLOCK));
	/* The program may make the descriptor non-blocking. */
	MUST(fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0);
	MUST(rdma_get_cm_event(channel, &event) == -1 && errno == EAGAIN);
	MUST(rdma_resolve_addr(id, NULL, with_port(17104), 2000) == 0);
	event = take(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	/* The event does not appear on another channel. */
	MUST(!is_waiting(other, 0));
	MUST(rdma_ack_cm_event(event) == 0);
	MUST(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(channel);
	MUST(fcntl(fd, F_GETFL) == -1 && errno == EBADF);
	rdma_destroy_event_channel(other);
}

/*
 * Destroying a channel ends the identifiers that still use it. The server destroys the channel of a
 * connection that its peer has disconnected (qperf 0.4.11 does so), or that is established.
 */
static void channels_with_identifiers(int disconnects)
{
	struct rdma_event_channel *channel = new_channel(), *client_channel = new_channel();
	struct rdma_cm_id *listener = new_id(channel, RDMA_PS_TCP), *client = new_id(client_channel, RDMA_PS_TCP);
	struct rdma_conn_param param = { .qp_num = 0x78, .retry_count = 7 };
	struct rdma_cm_event *request;
	struct timespec start, end;

	MUST(rdma_bind_addr(listener, with_port(17105)) == 0 && rdma_listen(listener, 2) == 0);
	MUST(rdma_resolve_addr(client, NULL, with_port(17105), 2000) == 0);
	skip(client_channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(rdma_resolve_route(client, 2000) == 0);
	skip(client_channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	MUST(rdma_connect(client, &param) == 0);
	request = take(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	param.qp_num++;
	MUST(rdma_accept(request->id, &param) == 0);
	MUST(rdma_ack_cm_event(request) == 0);
	skip(client_channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
	MUST(rdma_establish(client) == 0);
	skip(channel, RDMA_CM_EVENT_ESTABLISHED);
	if (disconnects) {
		MUST(rdma_disconnect(client) == 0);
		skip(channel, RDMA_CM_EVENT_DISCONNECTED);
		MUST(rdma_destroy_id(listener) == 0);
	}
	clock_gettime(CLOCK_MONOTONIC, &start);
	rdma_destroy_event_channel(channel);
	skip(client_channel, RDMA_CM_EVENT_DISCONNECTED);
	clock_gettime(CLOCK_MONOTONIC, &end);
	/* The DREQ would be repeated after 4.8 s. */
	MUST(end.tv_sec - start.tv_sec < 4);
	MUST(rdma_destroy_id(client) == 0);
	rdma_destroy_event_channel(client_channel);
}

int main(int argc, char **argv)
{
	MUST(argc == 2);
	setbuf(stdout, NULL);
	alarm(100);
	own.sin_family = AF_INET;
	MUST(inet_pton(AF_INET, argv[1], &own.sin_addr) == 1);
	destroying();
	requests();
	migrating();
	leaving();
	channels();
	channels_with_identifiers(1);
	channels_with_identifiers(0);
	printf("all as expected\n");
	return 0;
}
