// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * private_data - the private data of connections in both directions: none, one byte, the maximum,
 * and more than the maximum, which must be refused.
 *
 *	private_data -s ADDRESS	serves one client, at an address of this host or at all (0.0.0.0, ::)
 *	private_data -c ADDRESS	is the client of a server there
 *
 * Both ends use the same list of requests and answers. Each therefore verifies the length, every
 * byte, and the zeros after the data that fill the message. The test needs only the numbers of
 * queue pairs, and creates none.
 */
#include <netdb.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#include "check.h"

/* Two ports, because a port number may be free in one port space only. */
#define PORT_TCP	"18501"
#define PORT_UDP	"18502"

/*
 * The maximum of private data for each message. The header of RDMA IP CM takes 36 bytes of a
 * request.
 */
struct limits {
	enum rdma_port_space space;
	const char *port;
	int request, accept, reject;
};

static const struct limits KINDS[] = {
	{ RDMA_PS_TCP, PORT_TCP, 92 - 36, 196, 148 },
	{ RDMA_PS_UDP, PORT_UDP, 216 - 36, 136, 136 },
};

static struct rdma_event_channel *channel;
static struct rdma_addrinfo *place;
/*
 * The number of the request. Private data and queue pair numbers contain it, so that all of them
 * differ.
 */
static int number;

static unsigned char byte(int at, int is_answer)
{
	return (unsigned char)(1 + (number * 31 + at * 7 + is_answer * 101) % 255);
}

static unsigned char *bytes(int is_answer)
{
	static unsigned char data[256];

	for (int at = 0; at < 256; at++)
		data[at] = byte(at, is_answer);
	return data;
}

static struct rdma_conn_param param(int length, int is_answer)
{
	return (struct rdma_conn_param) {
		.private_data = bytes(is_answer),
		.private_data_len = (uint8_t)length,
		.responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7,
		.qp_num = 0x1000 + number * 2 + is_answer,
	};
}

/*
 * Takes the next event. Verifies its private data, and the zeros after the data up to the length of
 * the message.
 */
static struct rdma_cm_event *take(enum rdma_cm_event_type type, int status, int filled, int whole, int is_answer)
{
	struct rdma_cm_event *event;
	const unsigned char *data;
	int length;

	MUST(rdma_get_cm_event(channel, &event) == 0);
	if (event->event == RDMA_CM_EVENT_REJECTED && event->status == 8) {
		printf("no server listens on port\n");
		exit(1);
	}
	if (event->event != type || event->status != status) {
		printf("request %d: %s, status %d, expected %s, status %d\n", number, rdma_event_str(event->event),
		       event->status, rdma_event_str(type), status);
		exit(1);
	}
	if (event->id->ps == RDMA_PS_UDP) {
		data = event->param.ud.private_data;
		length = event->param.ud.private_data_len;
	} else {
		data = event->param.conn.private_data;
		length = event->param.conn.private_data_len;
	}
	if (length != whole) {
		printf("request %d: %s has %d bytes, expected %d\n", number, rdma_event_str(type), length, whole);
		exit(1);
	}
	for (int at = 0; at < length; at++)
		if (data[at] != (at < filled ? byte(at, is_answer) : 0)) {
			printf("request %d: %s: byte %d of %d is 0x%x\n", number, rdma_event_str(type), at, filled, data[at]);
			exit(1);
		}
	return event;
}

static void skip(enum rdma_cm_event_type type)
{
	rdma_ack_cm_event(take(type, 0, 0, 0, 0));
}

/* The lengths of a request and its answer, and whether the request is accepted. */
struct lengths {
	int request, answer, is_accepted;
};

static void connect_with(const struct limits *kind, struct lengths lengths)
{
	int is_connection = kind->space == RDMA_PS_TCP, is_accepted = lengths.is_accepted;
	int most = is_accepted ? kind->accept : kind->reject;
	struct rdma_conn_param attributes;
	struct rdma_cm_id *id;

	MUST(rdma_create_id(channel, &id, NULL, kind->space) == 0);
	MUST(rdma_resolve_addr(id, NULL, place->ai_dst_addr, 2000) == 0);
	skip(RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(rdma_resolve_route(id, 2000) == 0);
	skip(RDMA_CM_EVENT_ROUTE_RESOLVED);
	attributes = param(lengths.request, 0);
	if (lengths.request > kind->request) {
		MUST(rdma_connect(id, &attributes) == -1 && errno == EINVAL);
		lengths.request = 0;
		attributes = param(lengths.request, 0);
	}
	MUST(rdma_connect(id, &attributes) == 0);
	/* Accepting with too much data rejects the request, without data. */
	if (lengths.answer > most) {
		lengths.answer = 0;
		is_accepted = 0;
		most = kind->reject;
	}
	if (!is_connection) {
		rdma_ack_cm_event(take(is_accepted ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_UNREACHABLE,
				       is_accepted ? 0 : 2, lengths.answer, most, 1));
	} else if (!is_accepted) {
		rdma_ack_cm_event(take(RDMA_CM_EVENT_REJECTED, 28, lengths.answer, most, 1));
	} else {
		rdma_ack_cm_event(take(RDMA_CM_EVENT_CONNECT_RESPONSE, 0, lengths.answer, most, 1));
		MUST(rdma_establish(id) == 0);
		MUST(rdma_disconnect(id) == 0);
		skip(RDMA_CM_EVENT_DISCONNECTED);
	}
	MUST(rdma_destroy_id(id) == 0);
}

static void answer_with(const struct limits *kind, struct lengths lengths)
{
	int request = lengths.request > kind->request ? 0 : lengths.request;
	struct rdma_conn_param attributes = param(lengths.answer, 1);
	struct rdma_cm_event *event = take(RDMA_CM_EVENT_CONNECT_REQUEST, 0, request, kind->request, 0);
	struct rdma_cm_id *id = event->id;
	int is_connection = kind->space == RDMA_PS_TCP;

	rdma_ack_cm_event(event);
	if (!lengths.is_accepted) {
		if (lengths.answer > kind->reject) {
			MUST(rdma_reject(id, attributes.private_data, (uint8_t)lengths.answer) == -1 && errno == EINVAL);
			lengths.answer = 0;
		}
		MUST(rdma_reject(id, attributes.private_data, (uint8_t)lengths.answer) == 0);
	} else if (lengths.answer > kind->accept) {
		MUST(rdma_accept(id, &attributes) == -1 && errno == EINVAL);
		/* The identifier that could not accept is rejected by now. */
		attributes = param(0, 1);
		MUST(rdma_accept(id, &attributes) == -1 && errno == EINVAL);
	} else {
		MUST(rdma_accept(id, &attributes) == 0);
		if (is_connection) {
			skip(RDMA_CM_EVENT_ESTABLISHED);
			skip(RDMA_CM_EVENT_DISCONNECTED);
			MUST(rdma_disconnect(id) == 0);
		}
	}
	MUST(rdma_destroy_id(id) == 0);
}

static void play(const struct limits *kind, const char *host, int serves)
{
	const int requests[] = { 0, 1, kind->request - 1, kind->request, kind->request + 1, 220, 255 };
	const int accepts[] = { 0, 1, kind->accept - 1, kind->accept, kind->accept + 1, 255 };
	const int rejects[] = { 0, 1, kind->reject - 1, kind->reject, kind->reject + 1, 255 };
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST, .ai_port_space = kind->space };
	void (*step)(const struct limits *, struct lengths) = serves ? answer_with : connect_with;

	MUST(rdma_getaddrinfo(host, kind->port, &hints, &place) == 0);
	for (size_t each = 0; each < sizeof(requests) / sizeof(*requests); each++, number++)
		step(kind, (struct lengths){ requests[each], 5, 1 });
	for (size_t each = 0; each < sizeof(accepts) / sizeof(*accepts); each++, number++)
		step(kind, (struct lengths){ 3, accepts[each], 1 });
	for (size_t each = 0; each < sizeof(rejects) / sizeof(*rejects); each++, number++)
		step(kind, (struct lengths){ 3, rejects[each], 0 });
	rdma_freeaddrinfo(place);
}

static struct rdma_cm_id *serve(const struct limits *kind, const char *host)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST | RAI_PASSIVE, .ai_port_space = kind->space };
	struct rdma_cm_id *listener;

	MUST(rdma_getaddrinfo(host, kind->port, &hints, &place) == 0);
	MUST(rdma_create_id(channel, &listener, NULL, kind->space) == 0);
	MUST(rdma_bind_addr(listener, place->ai_src_addr) == 0);
	MUST(rdma_listen(listener, 4) == 0);
	rdma_freeaddrinfo(place);
	return listener;
}

int main(int argc, char **argv)
{
	struct rdma_cm_id *listeners[sizeof(KINDS) / sizeof(*KINDS)] = { NULL };
	const int kinds = sizeof(KINDS) / sizeof(*KINDS);
	int serves;

	MUST(argc == 3 && (!strcmp(argv[1], "-s") || !strcmp(argv[1], "-c")));
	serves = argv[1][1] == 's';
	setbuf(stdout, NULL);
	alarm(50);
	MUST((channel = rdma_create_event_channel()));
	for (int kind = 0; serves && kind < kinds; kind++)
		listeners[kind] = serve(&KINDS[kind], argv[2]);
	for (int kind = 0; kind < kinds; kind++)
		play(&KINDS[kind], argv[2], serves);
	for (int kind = 0; serves && kind < kinds; kind++)
		MUST(rdma_destroy_id(listeners[kind]) == 0);
	rdma_destroy_event_channel(channel);
	printf("all as expected\n");
	return 0;
}
