// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * cm_refusals - the answers of librdmacm to calls in a wrong state or with wrong values.
 *
 *	cm_refusals ADDRESS	an address of this host's RDMA device
 *
 * The program prints a line for each call: its name, and 0 or the name of the errno. No line
 * depends on the address, so the outputs of two devices can be compared.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#include "check.h"

static struct rdma_event_channel *channel;
static struct sockaddr_in own, unreachable;

static void print_result(const char *what, int result)
{
	printf("%s: %s\n", what, result == 0 ? "0" : result == -1 ? strerrorname_np(errno) : "neither 0 nor -1");
}

static sigjmp_buf before;

static int trying;

static void crashed(int number)
{
	if (!trying)
		_exit(139);
	siglongjmp(before, number);
}

/* rdma-core dereferences pointers of identifiers that have no device. */
#define TRY(what, call)                                                                                          \
	do {                                                                                                     \
		errno = 0;                                                                                       \
		trying = 1;                                                                                      \
		if (sigsetjmp(before, 1))                                                                        \
			printf("%s: crashes\n", what);                                                           \
		else                                                                                             \
			print_result(what, call);                                                                        \
		trying = 0;                                                                                      \
	} while (0)

static struct rdma_cm_id *new_id(void)
{
	struct rdma_cm_id *id;

	MUST(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	return id;
}

static struct sockaddr *with_port(struct sockaddr_in *place, const struct sockaddr_in *of, int port)
{
	*place = *of;
	place->sin_port = htons(port);
	return (struct sockaddr *)place;
}

/* Takes the next event, which arrives soon. */
static void expect(const char *what)
{
	struct pollfd wait = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	if (poll(&wait, 1, 20000) != 1) {
		printf("%s: no event\n", what);
		return;
	}
	MUST(rdma_get_cm_event(channel, &event) == 0);
	printf("%s: %s, status %d\n", what, rdma_event_str(event->event), event->status);
	rdma_ack_cm_event(event);
}

static void idle(void)
{
	struct rdma_conn_param param = { 0 };
	struct rdma_cm_id *id = new_id();
	struct ibv_qp_init_attr qp = { .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	int mask, one = 1;
	unsigned char tos = 1;

	TRY("resolve a route of nothing", rdma_resolve_route(id, 1000));
	TRY("connect nothing", rdma_connect(id, &param));
	TRY("accept nothing", rdma_accept(id, &param));
	TRY("accept nothing with nothing", rdma_accept(id, NULL));
	TRY("refuse nothing", rdma_reject(id, NULL, 0));
	TRY("disconnect nothing", rdma_disconnect(id));
	TRY("establish nothing", rdma_establish(id));
	TRY("notify of nothing", rdma_notify(id, IBV_EVENT_COMM_EST));
	TRY("a queue pair without a device", rdma_create_qp(id, NULL, &qp));
	TRY("attributes of nothing", rdma_init_qp_attr(id, &attr, &mask));
	TRY("join a group from nowhere", rdma_join_multicast(id, (struct sockaddr *)&own, NULL));
	TRY("leave a group that was not joined", rdma_leave_multicast(id, (struct sockaddr *)&own));
	TRY("an option of no level", rdma_set_option(id, 7, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)));
	TRY("an option of no name", rdma_set_option(id, RDMA_OPTION_ID, 77, &one, sizeof(one)));
	TRY("a type of service of four bytes", rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &one, sizeof(one)));
	TRY("a type of service", rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)));
	TRY("reuse of one byte", rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &tos, sizeof(tos)));
	TRY("a path that is none", rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &one, sizeof(one)));
	rdma_destroy_id(id);
}

static void bound(void)
{
	struct rdma_cm_id *id = new_id(), *other = new_id();
	struct sockaddr_in place, far = unreachable, unbindable = unreachable;
	int one = 1;

	TRY("bind to an address of another host", rdma_bind_addr(id, with_port(&place, &unbindable, 0)));
	TRY("bind", rdma_bind_addr(id, with_port(&place, &own, 17001)));
	TRY("bind again", rdma_bind_addr(id, with_port(&place, &own, 17002)));
	TRY("bind to a port that is taken", rdma_bind_addr(other, with_port(&place, &own, 17001)));
	TRY("bind to all addresses with a port that is taken on one",
	    rdma_bind_addr(other, with_port(&place, &(struct sockaddr_in){ .sin_family = AF_INET }, 17001)));
	TRY("bind to another port", rdma_bind_addr(other, with_port(&place, &own, 17003)));
	TRY("reuse after binding", rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof(one)));
	TRY("one's own family after binding", rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one, sizeof(one)));
	TRY("resolve a route of a bound identifier", rdma_resolve_route(id, 1000));
	TRY("listen", rdma_listen(id, 1));
	TRY("listen again", rdma_listen(id, 1));
	TRY("bind a listener", rdma_bind_addr(id, with_port(&place, &own, 17004)));
	TRY("resolve from a listener", rdma_resolve_addr(id, NULL, with_port(&place, &own, 17005), 1000));
	TRY("connect a listener", rdma_connect(id, &(struct rdma_conn_param){ 0 }));
	TRY("one's own family after listening", rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one, sizeof(one)));
	rdma_destroy_id(other);
	other = new_id();
	TRY("resolve to nowhere", rdma_resolve_addr(other, NULL, with_port(&place, &far, 17006), 1000));
	rdma_destroy_id(other);
	rdma_destroy_id(id);
}

static void resolved(void)
{
	struct rdma_cm_id *id = new_id();
	struct sockaddr_in place;
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	static unsigned char data[255];
	struct rdma_conn_param param = { .private_data = data, .private_data_len = 57 };
	struct ibv_qp_init_attr qp = { .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };

	TRY("resolve an address", rdma_resolve_addr(id, NULL, with_port(&place, &own, 17007), 1000));
	expect("then");
	TRY("resolve it again", rdma_resolve_addr(id, NULL, with_port(&place, &own, 17007), 1000));
	TRY("bind a resolved identifier", rdma_bind_addr(id, with_port(&place, &own, 17008)));
	TRY("connect without a route", rdma_connect(id, &param));
	TRY("a route", rdma_resolve_route(id, 1000));
	expect("then");
	TRY("a route again", rdma_resolve_route(id, 1000));
	TRY("join a group by TCP", rdma_join_multicast(id, (struct sockaddr *)&own, NULL));
	TRY("a queue pair", rdma_create_qp(id, NULL, &qp));
	TRY("a second queue pair", rdma_create_qp(id, NULL, &qp));
	TRY("more private data than there may be", rdma_connect(id, &param));
	param.private_data_len = 56;
	TRY("as much as there may be", rdma_connect(id, &param));
	expect("no listener");
	TRY("disconnect after a rejection", rdma_disconnect(id));
	if (id->qp)
		rdma_destroy_qp(id);
	rdma_destroy_id(id);
	id = new_id();
	TRY("from IPv4 to IPv6", rdma_resolve_addr(id, with_port(&place, &own, 0), (struct sockaddr *)&six, 1000));
	rdma_destroy_id(id);
}

/* Sets a path that the program provides, as ibacm does, in place of resolving one. */
static void set_path(void)
{
	struct ibv_path_data data[2] = { { .flags = IBV_PATH_FLAG_ALTERNATE }, { .path = {
		.flowlabel_hoplimit = htonl(64), .tclass = 0x28, .reversible_numpath = 0x81, .pkey = 0xffff,
		.mtu = 2 << 6 | IBV_MTU_512, .rate = 2 << 6 | IBV_RATE_10_GBPS, .packetlifetime = 2 << 6 | 12,
	} } };
	struct ibv_path_record *path = &data[1].path;
	struct rdma_conn_param param = { .retry_count = 1 };
	struct rdma_cm_id *id = new_id();
	struct ibv_sa_path_rec *route;
	struct sockaddr_in place;

	path->dgid.raw[10] = path->dgid.raw[11] = 0xff;
	memcpy(&path->dgid.raw[12], &own.sin_addr, 4);
	path->sgid = path->dgid;
#define SET_PATH(length)	rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, data, length)
	MUST(rdma_resolve_addr(id, NULL, with_port(&place, &own, 17009), 1000) == 0);
	expect("set a path");
	TRY("a path that is not marked", SET_PATH(sizeof(data)));
	data[1].flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
	TRY("half a path", SET_PATH(sizeof(data) - 1));
	TRY("no path", SET_PATH(0));
	TRY("only an alternate path", SET_PATH(sizeof(data[0])));
	TRY("a path", SET_PATH(sizeof(data)));
	expect("then");
	route = id->route.path_rec;
	MUST(route);
	printf("its class 0x%x, mtu %d, life time %d\n", route->traffic_class, route->mtu, route->packet_life_time);
	TRY("a path again", SET_PATH(sizeof(data)));
	TRY("a route behind it", rdma_resolve_route(id, 1000));
	TRY("connect by it", rdma_connect(id, &param));
	expect("no listener");
	rdma_destroy_id(id);
	id = new_id();
	TRY("a path from nowhere", SET_PATH(sizeof(data)));
	rdma_destroy_id(id);
}

/*
 * Shared ports: with the option to reuse an address, until one identifier listens; and by IPv4 and
 * IPv6 with the option for one family.
 */
static void shared(void)
{
	struct rdma_cm_id *first = new_id(), *second = new_id(), *strict = new_id();
	struct sockaddr_in place, all = { .sin_family = AF_INET };
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(17011) };
	int one = 1, none = 0;

	TRY("allow reuse", rdma_set_option(first, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof(one)));
	TRY("allow it to the second", rdma_set_option(second, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof(one)));
	TRY("bind the first", rdma_bind_addr(first, with_port(&place, &own, 17010)));
	TRY("bind the second beside it", rdma_bind_addr(second, with_port(&place, &own, 17010)));
	TRY("bind a strict one beside them", rdma_bind_addr(strict, with_port(&place, &own, 17010)));
	TRY("listen beside another", rdma_listen(first, 1));
	TRY("listen where another listens", rdma_listen(second, 1));
	rdma_destroy_id(second);
	second = new_id();
	TRY("allow it to a third", rdma_set_option(second, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof(one)));
	TRY("bind where another listens", rdma_bind_addr(second, with_port(&place, &own, 17010)));
	TRY("bind to all where another listens", rdma_bind_addr(second, with_port(&place, &all, 17010)));
	rdma_destroy_id(first);
	rdma_destroy_id(second);

	first = new_id();
	second = new_id();
	TRY("all of IPv6 and IPv4", rdma_set_option(first, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &none, sizeof(none)));
	TRY("bind to all of IPv6", rdma_bind_addr(first, (struct sockaddr *)&six));
	TRY("bind to all of IPv4 beside both", rdma_bind_addr(second, with_port(&place, &all, 17011)));
	rdma_destroy_id(first);
	first = new_id();
	TRY("IPv6 alone", rdma_set_option(first, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one, sizeof(one)));
	TRY("bind to it", rdma_bind_addr(first, (struct sockaddr *)&six));
	TRY("bind to all of IPv4 beside IPv6", rdma_bind_addr(second, with_port(&place, &all, 17011)));
	TRY("bind to IPv4 beside IPv6", rdma_bind_addr(strict, with_port(&place, &own, 17011)));
	TRY("listen to IPv6", rdma_listen(first, 1));
	TRY("listen to IPv4 beside it", rdma_listen(second, 1));
	rdma_destroy_id(first);
	rdma_destroy_id(second);
	rdma_destroy_id(strict);
}

static void others(void)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id, *request;
	struct rdma_addrinfo *found, hints = { .ai_flags = RAI_NUMERICHOST };

	TRY("an unknown port space", rdma_create_id(channel, &id, NULL, 0x7777));
	fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
	TRY("an event where there is none", rdma_get_cm_event(channel, &event));
	TRY("acknowledge nothing", rdma_ack_cm_event(NULL));
	id = new_id();
	TRY("a request of an identifier with a channel", rdma_get_request(id, &request));
	rdma_destroy_id(id);
	printf("a name that is no address: %s\n",
	       rdma_getaddrinfo("no address", NULL, &hints, &found) ? "refused" : "taken");
}

int main(int argc, char **argv)
{
	MUST(argc == 2);
	setbuf(stdout, NULL);
	signal(SIGSEGV, crashed);
	alarm(50);
	own.sin_family = unreachable.sin_family = AF_INET;
	MUST(inet_pton(AF_INET, argv[1], &own.sin_addr) == 1);
	/* An address of a network for documentation (RFC 5737). */
	MUST(inet_pton(AF_INET, "203.0.113.1", &unreachable.sin_addr) == 1);
	MUST((channel = rdma_create_event_channel()));
	idle();
	bound();
	resolved();
	set_path();
	shared();
	others();
	rdma_destroy_event_channel(channel);
	return 0;
}
