// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * refused_port - the end of a connection request to an address where no stack listens.
 *
 *	refused_port SPACE ADDRESS	SPACE is tcp or udp
 *
 * The host of ADDRESS answers each request with an ICMP message. The program prints the event that
 * ends the request, its status, and the milliseconds since rdma_connect:
 *
 *	RDMA_CM_EVENT_UNREACHABLE -110	77234
 */
#include <arpa/inet.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#include "check.h"

static struct rdma_event_channel *channel;

static void expect_event(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	MUST(rdma_get_cm_event(channel, &event) == 0);
	MUST(event->event == type);
	MUST(rdma_ack_cm_event(event) == 0);
}

static long milliseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(int argc, char **argv)
{
	struct sockaddr_in place = { .sin_family = AF_INET, .sin_port = htons(7471) };
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	int is_tcp;
	long since;

	setbuf(stdout, NULL);
	alarm(300);
	MUST(argc == 3 && inet_pton(AF_INET, argv[2], &place.sin_addr) == 1);
	is_tcp = strcmp(argv[1], "tcp") == 0;
	attr.qp_type = is_tcp ? IBV_QPT_RC : IBV_QPT_UD;
	channel = rdma_create_event_channel();
	MUST(channel);
	MUST(rdma_create_id(channel, &id, NULL, is_tcp ? RDMA_PS_TCP : RDMA_PS_UDP) == 0);
	MUST(rdma_resolve_addr(id, NULL, (struct sockaddr *)&place, 2000) == 0);
	expect_event(RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(rdma_resolve_route(id, 2000) == 0);
	expect_event(RDMA_CM_EVENT_ROUTE_RESOLVED);
	MUST(rdma_create_qp(id, NULL, &attr) == 0);
	since = milliseconds();
	MUST(rdma_connect(id, &param) == 0);
	MUST(rdma_get_cm_event(channel, &event) == 0);
	printf("%s %d\t%ld\n", rdma_event_str(event->event), event->status, milliseconds() - since);
	MUST(rdma_ack_cm_event(event) == 0);
	rdma_destroy_qp(id);
	MUST(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(channel);
	return 0;
}
