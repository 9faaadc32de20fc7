// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * cm_shared - a server whose connections share one receive queue of the program, as storage targets
 * do: rdma_create_qp with an SRQ of ibv_create_srq.
 *
 *	cm_shared -s ADDRESS	serves one client, at an address of this host or at all (0.0.0.0, ::)
 *	cm_shared -c ADDRESS	is the client of a server there, over several connections
 *
 * A message contains the number of its connection and its own number. The server returns the
 * message on the connection on which it arrived.
 */
#include <unistd.h>
#include <netdb.h>

#include <rdma/rdma_cma.h>

#include "check.h"

#define PORT		"18503"
#define CONNECTIONS	3
#define ROUNDS		8
/* Fewer buffers than messages, so that each buffer is posted several times. */
#define BUFFERS		4

struct message {
	uint32_t connection, round;
};

static struct rdma_event_channel *channel;
static struct rdma_cm_id *ids[CONNECTIONS];
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_srq *srq;
static struct ibv_mr *mr;
static struct message inbox[BUFFERS], outbox[CONNECTIONS];

static struct rdma_cm_id *take(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	MUST(rdma_get_cm_event(channel, &event) == 0);
	if (event->event == RDMA_CM_EVENT_REJECTED && event->status == 8) {
		printf("no server listens on port\n");
		exit(1);
	}
	if (event->event != type || event->status) {
		printf("%s, status %d, expected %s\n", rdma_event_str(event->event), event->status, rdma_event_str(type));
		exit(1);
	}
	id = event->id;
	rdma_ack_cm_event(event);
	return id;
}

static struct ibv_wc completed(void)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	MUST(n == 1 && wc.status == IBV_WC_SUCCESS);
	return wc;
}

static void post_receive(uint64_t buffer)
{
	struct ibv_sge sge = { (uintptr_t)&inbox[buffer], sizeof(struct message), mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = buffer, .sg_list = &sge, .num_sge = 1 }, *bad;

	MUST(!ibv_post_srq_recv(srq, &wr, &bad));
}

static void send_message(int connection, struct message message)
{
	struct ibv_sge sge = { (uintptr_t)&outbox[connection], sizeof(message), 0 };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE }, *bad;

	outbox[connection] = message;
	MUST(!ibv_post_send(ids[connection]->qp, &wr, &bad));
}

/* Creates the QP of a connection, and with the first QP the objects that all connections share. */
static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = BUFFERS, .max_sge = 1 } };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 4, .max_send_sge = 1, .max_inline_data = sizeof(struct message) } };

	if (!pd) {
		MUST((pd = ibv_alloc_pd(id->verbs)) && (cq = ibv_create_cq(id->verbs, 64, NULL, NULL, 0)));
		MUST((mr = ibv_reg_mr(pd, inbox, sizeof(inbox), IBV_ACCESS_LOCAL_WRITE)));
		MUST((srq = ibv_create_srq(pd, &shared)));
		for (uint64_t buffer = 0; buffer < BUFFERS; buffer++)
			post_receive(buffer);
	}
	init.send_cq = init.recv_cq = cq;
	init.srq = srq;
	MUST(rdma_create_qp(id, pd, &init) == 0);
	MUST(id->qp->srq == srq && id->qp->pd == pd && id->qp->recv_cq == cq);
}

/* Returns the connection of a completion. */
static int connection_of(uint32_t qp_num)
{
	for (int each = 0; each < CONNECTIONS; each++)
		if (ids[each]->qp->qp_num == qp_num)
			return each;
	MUST(!"a completion of no connection");
	return -1;
}

/*
 * Returns the next message and its connection, and posts its buffer again. Ignores completions of
 * sends.
 */
static struct message receive_message(int *connection)
{
	struct message message;
	struct ibv_wc wc;

	do
		wc = completed();
	while (wc.opcode != IBV_WC_RECV);
	MUST(wc.byte_len == sizeof(message));
	*connection = connection_of(wc.qp_num);
	message = inbox[wc.wr_id];
	post_receive(wc.wr_id);
	return message;
}

static void serve(const char *host)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST | RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP }, *place;
	struct rdma_conn_param param = { .rnr_retry_count = 7 };
	struct rdma_cm_id *listener;
	int connection;

	MUST(rdma_getaddrinfo(host, PORT, &hints, &place) == 0);
	MUST(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
	MUST(rdma_bind_addr(listener, place->ai_src_addr) == 0 && rdma_listen(listener, CONNECTIONS) == 0);
	for (int each = 0; each < CONNECTIONS; each++) {
		ids[each] = take(RDMA_CM_EVENT_CONNECT_REQUEST);
		make_qp(ids[each]);
		MUST(rdma_accept(ids[each], &param) == 0);
		take(RDMA_CM_EVENT_ESTABLISHED);
	}
	for (int each = 0; each < CONNECTIONS * ROUNDS; each++) {
		struct message message = receive_message(&connection);

		MUST(message.connection == (uint32_t)connection);
		send_message(connection, message);
	}
	for (int each = 0; each < CONNECTIONS; each++)
		rdma_disconnect(take(RDMA_CM_EVENT_DISCONNECTED));
	MUST(rdma_destroy_id(listener) == 0);
	rdma_freeaddrinfo(place);
}

static void run_client(const char *host)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP }, *place;
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	int connection;

	MUST(rdma_getaddrinfo(host, PORT, &hints, &place) == 0);
	for (int each = 0; each < CONNECTIONS; each++) {
		MUST(rdma_create_id(channel, &ids[each], NULL, RDMA_PS_TCP) == 0);
		MUST(rdma_resolve_addr(ids[each], NULL, place->ai_dst_addr, 2000) == 0);
		take(RDMA_CM_EVENT_ADDR_RESOLVED);
		MUST(rdma_resolve_route(ids[each], 2000) == 0);
		take(RDMA_CM_EVENT_ROUTE_RESOLVED);
		make_qp(ids[each]);
		MUST(rdma_connect(ids[each], &param) == 0);
		take(RDMA_CM_EVENT_ESTABLISHED);
	}
	for (uint32_t round = 0; round < ROUNDS; round++) {
		unsigned int seen = 0;

		for (int each = 0; each < CONNECTIONS; each++)
			send_message(each, (struct message){ (uint32_t)each, round });
		for (int each = 0; each < CONNECTIONS; each++) {
			struct message message = receive_message(&connection);

			MUST(message.connection == (uint32_t)connection && message.round == round);
			seen |= 1u << connection;
		}
		MUST(seen == (1u << CONNECTIONS) - 1);
	}
	for (int each = 0; each < CONNECTIONS; each++) {
		MUST(rdma_disconnect(ids[each]) == 0);
		take(RDMA_CM_EVENT_DISCONNECTED);
	}
	rdma_freeaddrinfo(place);
}

int main(int argc, char **argv)
{
	MUST(argc == 3 && (!strcmp(argv[1], "-s") || !strcmp(argv[1], "-c")));
	setbuf(stdout, NULL);
	alarm(50);
	MUST((channel = rdma_create_event_channel()));
	if (argv[1][1] == 's')
		serve(argv[2]);
	else
		run_client(argv[2]);
	MUST(ibv_destroy_srq(srq) == EBUSY);
	for (int each = 0; each < CONNECTIONS; each++) {
		rdma_destroy_qp(ids[each]);
		MUST(rdma_destroy_id(ids[each]) == 0);
	}
	MUST(!ibv_destroy_srq(srq) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
	rdma_destroy_event_channel(channel);
	printf("all as expected\n");
	return 0;
}
