// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * group - a sender or a listener of a multicast group over libibverbs, which verifies every byte.
 *
 *	group -g GID-INDEX -m GROUP -l
 *		listens: prints "joined", then "OK <n> from <address>" after the last message
 *	group -g GID-INDEX -m GROUP
 *		sends, then prints "OK <n>"
 *	more: -d DEVICE, -i INTERFACE (eth0), -n MESSAGES, -s SIZE, -q QUEUE PAIRS that listen
 *
 * GROUP is an IP address. Message k carries the immediate data k (network order) and the bytes
 *	((k + 1) * 0x9e3779b1 + j * 0x85ebca6b) mod 2^32 >> 24
 * with the Q_Key 0x4d434153. Each queue pair of a listener must get each message once, in order,
 * after the IP header that contains the addresses of the sender and the group.
 *
 * When a queue pair attaches to a group, the kernel opens the Ethernet filter for the group's
 * address. The host joins the IP group only by a socket of this program, as the CM does for
 * rdma_join_multicast().
 */
#include <arpa/inet.h>
#include <net/if.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

#define QKEY		0x4d434153u
#define GROUP_QPN	0xffffffu
#define GRH		40u
#define QPS_MAX		8u
#define COUNT_MAX	256u
#define SIZE_MAX_	4096u
#define STALL_SECONDS	20

static struct {
	const char *device, *interface, *group;
	int gid_index, listens;
	unsigned int count, size, qps;
} opt = { .interface = "eth0", .gid_index = 1, .count = 32, .size = 100, .qps = 1 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qps[QPS_MAX];
static struct ibv_mr *mr;
static unsigned char *memory;
static union ibv_gid mgid;

/* An IPv4 group becomes an IPv4-mapped GID. */
static int group_parse(void)
{
	memset(mgid.raw, 0, 10);
	memset(mgid.raw + 10, 0xff, 2);
	if (inet_pton(AF_INET, opt.group, mgid.raw + 12) == 1)
		return AF_INET;
	if (inet_pton(AF_INET6, opt.group, mgid.raw) == 1)
		return AF_INET6;
	die("not an IP address: %s", opt.group);
}

/* Opens the socket that makes the host a member until this program ends. */
static void host_join(int family)
{
	unsigned int interface = if_nametoindex(opt.interface);
	int fd = socket(family, SOCK_DGRAM, 0), error;

	if (!interface || fd < 0)
		die("%s: %s", opt.interface, strerror(errno));
	if (family == AF_INET) {
		struct ip_mreqn request = { .imr_ifindex = interface };

		memcpy(&request.imr_multiaddr, mgid.raw + 12, 4);
		error = setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof(request));
	} else {
		struct ipv6_mreq request = { .ipv6mr_interface = interface };

		memcpy(&request.ipv6mr_multiaddr, mgid.raw, 16);
		error = setsockopt(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &request, sizeof(request));
	}
	if (error)
		die("join %s: %s", opt.group, strerror(errno));
}

static void resources_create(void)
{
	context = device_open(opt.device);
	if (posix_memalign((void **)&memory, 4096, COUNT_MAX * (GRH + SIZE_MAX_)))
		die("no memory");
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, QPS_MAX * COUNT_MAX, NULL, NULL, 0);
	if (!pd || !cq)
		die("PD, CQ: %s", strerror(errno));
	mr = ibv_reg_mr(pd, memory, COUNT_MAX * (GRH + SIZE_MAX_), IBV_ACCESS_LOCAL_WRITE);
	if (!mr)
		die("memory region: %s", strerror(errno));
}

static struct ibv_qp *qp_create(void)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .sq_sig_all = 1,
		.cap = { .max_send_wr = 16, .max_recv_wr = COUNT_MAX, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	if (!qp)
		die("QP: %s", strerror(errno));
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY))
		die("to INIT: %s", strerror(errno));
	attr.qp_state = IBV_QPS_RTR;
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE))
		die("to RTR: %s", strerror(errno));
	attr.qp_state = IBV_QPS_RTS;
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN))
		die("to RTS: %s", strerror(errno));
	return qp;
}

static struct ibv_wc completion(unsigned int done, unsigned int all)
{
	time_t end = time(NULL) + STALL_SECONDS;
	struct ibv_wc wc;
	int polled;

	while (!(polled = ibv_poll_cq(cq, 1, &wc)))
		if (time(NULL) > end)
			die("%u of %u messages after %d s of silence", done, all, STALL_SECONDS);
	if (polled < 0)
		die("poll");
	if (wc.status)
		die("wc status %d (%s) after %u messages", wc.status, ibv_wc_status_str(wc.status), done);
	return wc;
}

/*
 * Stores the source address of the header before a message. Checks that its destination is the
 * group.
 */
static void source(const unsigned char *header, char text[INET6_ADDRSTRLEN])
{
	static const unsigned char zeros[20];
	int is_v4 = !memcmp(mgid.raw, zeros, 10);

	if (memcmp(header + (is_v4 ? 36 : 24), mgid.raw + (is_v4 ? 12 : 0), is_v4 ? 4 : 16))
		die("the header names another destination than the group");
	if (is_v4 && memcmp(header, zeros, 20))
		die("20 bytes before the IPv4 header are not zero");
	inet_ntop(is_v4 ? AF_INET : AF_INET6, header + (is_v4 ? 32 : 8), text, INET6_ADDRSTRLEN);
}

static void listen_(void)
{
	unsigned int next[QPS_MAX] = { 0 }, all = opt.qps * opt.count, slot = GRH + opt.size, q, k;
	char from[INET6_ADDRSTRLEN] = "";

	for (q = 0; q < opt.qps; q++) {
		qps[q] = qp_create();
		if (ibv_attach_mcast(qps[q], &mgid, 0))
			die("attach: %s", strerror(errno));
		for (k = 0; k < opt.count; k++) {
			/* The queue pairs receive equal messages, so they may share a slot. */
			struct ibv_sge sge = { (uintptr_t)memory + k * slot, slot, mr->lkey };
			struct ibv_recv_wr wr = { .wr_id = k, .sg_list = &sge, .num_sge = 1 }, *bad;

			if (ibv_post_recv(qps[q], &wr, &bad))
				die("post receive");
		}
	}
	/* A kernel worker updates the filter of the network device, and reports no completion. */
	usleep(300000);
	puts("joined");
	fflush(stdout);
	for (unsigned int done = 0; done < all; done++) {
		struct ibv_wc wc = completion(done, all);
		const unsigned char *at = memory + wc.wr_id * slot;

		for (q = 0; q < opt.qps && qps[q]->qp_num != wc.qp_num; q++)
			;
		if (q == opt.qps || wc.opcode != IBV_WC_RECV)
			die("a completion of something else");
		k = next[q]++;
		if (wc.wr_id != k || wc.byte_len != slot || wc.wc_flags != (IBV_WC_GRH | IBV_WC_WITH_IMM))
			die("completion %u: wr_id %u, byte_len %u, flags %x", k, (unsigned int)wc.wr_id, wc.byte_len,
			    wc.wc_flags);
		if (ntohl(wc.imm_data) != k)
			die("message %u, expected %u", ntohl(wc.imm_data), k);
		source(at, from);
		if (differs(at + GRH, k, opt.size) >= 0)
			die("message %u, byte %ld", k, differs(at + GRH, k, opt.size));
	}
	for (q = 0; q < opt.qps; q++)
		if (ibv_detach_mcast(qps[q], &mgid, 0) || ibv_destroy_qp(qps[q]))
			die("detach: %s", strerror(errno));
	printf("OK %u from %s\n", all, from);
}

static void send_(void)
{
	struct ibv_ah_attr to = {
		.is_global = 1, .port_num = 1,
		.grh = { .dgid = mgid, .sgid_index = opt.gid_index, .hop_limit = 4 },
	};
	struct ibv_qp *qp = qp_create();
	struct ibv_ah *ah = ibv_create_ah(pd, &to);

	if (!ah)
		die("AH: %s", strerror(errno));
	for (unsigned int k = 0; k < opt.count; k++) {
		struct ibv_sge sge = { (uintptr_t)memory, opt.size, mr->lkey };
		struct ibv_send_wr wr = {
			.wr_id = k, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htonl(k),
			.wr.ud = { .ah = ah, .remote_qpn = GROUP_QPN, .remote_qkey = QKEY },
		}, *bad;

		fill(memory, k, opt.size);
		if (ibv_post_send(qp, &wr, &bad))
			die("post send: %s", strerror(errno));
		completion(k, opt.count);
	}
	printf("OK %u\n", opt.count);
}

int main(int argc, char **argv)
{
	int option, family;

	program = "group";

	while ((option = getopt(argc, argv, "d:i:g:m:n:s:q:l")) != -1)
		switch (option) {
		case 'd': opt.device = optarg; break;
		case 'i': opt.interface = optarg; break;
		case 'g': opt.gid_index = atoi(optarg); break;
		case 'm': opt.group = optarg; break;
		case 'n': opt.count = atoi(optarg); break;
		case 's': opt.size = atoi(optarg); break;
		case 'q': opt.qps = atoi(optarg); break;
		case 'l': opt.listens = 1; break;
		default: die("see the head of group.c");
		}
	if (!opt.group || opt.count > COUNT_MAX || opt.size > SIZE_MAX_ || opt.qps > QPS_MAX || !opt.qps)
		die("see the head of group.c");
	family = group_parse();
	resources_create();
	if (opt.listens) {
		host_join(family);
		listen_();
	} else {
		send_();
	}
	return 0;
}
