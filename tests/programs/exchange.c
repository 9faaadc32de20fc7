// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * exchange - a first program with libibverbs: a SEND, a READ and a WRITE between two ends that
 * exchange their addresses over TCP. Both verify every byte.
 *
 *	exchange [OPTION]...		serves one client
 *	exchange [OPTION]... HOST	is the client of HOST
 *	options: -p TCP PORT (19875), -d DEVICE (the first), -g GID INDEX (0), -m PATH MTU (1024),
 *		-s BYTES (4096)
 *
 * The server SENDs message 0, and writes message 1 to its memory when the client has received
 * message 0. The client READs message 1 and overwrites it by a WRITE of message 2. Both then print
 * "all as expected".
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../kernel/guest/common.h"

#define SIZE_MAX_	(4u << 20)
#define TIMEOUT	20	/* seconds */

static struct {
	const char *host, *port, *device;
	int gid_index;
	unsigned int mtu, size;
} opt = { .port = "19875", .mtu = 1024, .size = 4096 };

/*
 * The address of an end, which crosses the TCP connection as text because the layout of a struct
 * depends on the compiler.
 */
struct address {
	unsigned long long addr;
	unsigned int rkey, qpn, psn;
	union ibv_gid gid;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_qp *qp;
static unsigned char *memory;
static FILE *in, *out;

static void tcp_open(void)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_family = AF_INET, .ai_flags = AI_PASSIVE }, *found;
	int error = getaddrinfo(opt.host, opt.port, &hints, &found), yes = 1, fd;

	if (error)
		die("%s, port %s: %s", opt.host ? opt.host : "any address", opt.port, gai_strerror(error));
	fd = socket(found->ai_family, found->ai_socktype, found->ai_protocol);
	if (fd < 0)
		die("socket: %s", strerror(errno));
	if (opt.host) {
		if (connect(fd, found->ai_addr, found->ai_addrlen))
			die("connect to %s, port %s: %s", opt.host, opt.port, strerror(errno));
	} else {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
		if (bind(fd, found->ai_addr, found->ai_addrlen) || listen(fd, 1))
			die("listen on port %s: %s", opt.port, strerror(errno));
		fd = accept(fd, NULL, NULL);
		if (fd < 0)
			die("accept: %s", strerror(errno));
	}
	freeaddrinfo(found);
	in = fdopen(fd, "r");
	out = fdopen(dup(fd), "w");
	if (!in || !out)
		die("TCP connection: %s", strerror(errno));
}

/* Sends the name of this stage, and waits for the same name from the other end. */
static void synchronize(const char *stage)
{
	char line[32];

	fprintf(out, "%s\n", stage);
	fflush(out);
	if (!fgets(line, sizeof(line), in) || strncmp(line, stage, strlen(stage)))
		die("the other end did not reach the stage: %s", stage);
}

static void addresses_exchange(const struct address *own, struct address *other)
{
	char gid[INET6_ADDRSTRLEN], line[128];

	inet_ntop(AF_INET6, own->gid.raw, gid, sizeof(gid));
	fprintf(out, "%llx %x %x %x %s\n", own->addr, own->rkey, own->qpn, own->psn, gid);
	fflush(out);
	if (!fgets(line, sizeof(line), in) ||
	    sscanf(line, "%llx %x %x %x %45s", &other->addr, &other->rkey, &other->qpn, &other->psn, gid) != 5 ||
	    inet_pton(AF_INET6, gid, other->gid.raw) != 1)
		die("the other end sent no valid address");
}

static void resources_create(struct address *own)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	context = device_open(opt.device);
	memory = calloc(1, opt.size);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 2, NULL, NULL, 0);
	if (!memory || !pd || !cq)
		die("memory, PD, CQ: %s", strerror(errno));
	mr = ibv_reg_mr(pd, memory, opt.size,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	if (!mr)
		die("memory region: %s", strerror(errno));
	init.send_cq = init.recv_cq = cq;
	qp = ibv_create_qp(pd, &init);
	if (!qp)
		die("QP: %s", strerror(errno));
	own->addr = (uintptr_t)memory;
	own->rkey = mr->rkey;
	own->qpn = qp->qp_num;
	own->psn = (unsigned int)getpid() & 0xffffff;
	if (ibv_query_gid(context, 1, opt.gid_index, &own->gid))
		die("GID %d: %s", opt.gid_index, strerror(errno));
}

static void modify(struct ibv_qp_attr *attr, int mask, const char *state)
{
	if (ibv_modify_qp(qp, attr, mask))
		die("QP to %s: %s", state, strerror(errno));
}

static void connect_qp(const struct address *own, const struct address *other)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .dest_qp_num = other->qpn, .rq_psn = other->psn,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12, .path_mtu = IBV_MTU_256,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = other->gid, .sgid_index = opt.gid_index, .hop_limit = 1 } },
	};

	for (unsigned int bytes = 256; bytes < opt.mtu; bytes *= 2)
		attr.path_mtu++;
	modify(&attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, "RTR");
	attr = (struct ibv_qp_attr) {
		.qp_state = IBV_QPS_RTS, .sq_psn = own->psn, .max_rd_atomic = 1,
		.timeout = 18, .retry_cnt = 6, .rnr_retry = 0,
	};
	modify(&attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
	       IBV_QP_RNR_RETRY, "RTS");
}

static void receive_post(void)
{
	struct ibv_sge sge = { (uintptr_t)memory, opt.size, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	if (ibv_post_recv(qp, &wr, &bad))
		die("post a receive: %s", strerror(errno));
}

static void completion(enum ibv_wc_opcode opcode, const char *what)
{
	time_t end = time(NULL) + TIMEOUT;
	struct ibv_wc wc;
	int polled;

	while (!(polled = ibv_poll_cq(cq, 1, &wc)))
		if (time(NULL) > end)
			die("%s: no completion after %d seconds", what, TIMEOUT);
	if (polled < 0)
		die("%s: poll failed", what);
	if (wc.status)
		die("%s: %s", what, ibv_wc_status_str(wc.status));
	if (wc.opcode != opcode || wc.qp_num != qp->qp_num || (opcode == IBV_WC_RECV && wc.byte_len != opt.size))
		die("%s: opcode %d, QP %06x, %u bytes", what, wc.opcode, wc.qp_num, wc.byte_len);
	printf("%s completed\n", what);
}

static void request_post(enum ibv_wr_opcode opcode, const struct address *other)
{
	struct ibv_sge sge = { (uintptr_t)memory, opt.size, mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = opcode,
		.wr.rdma = { .remote_addr = other->addr, .rkey = other->rkey },
	}, *bad;

	if (ibv_post_send(qp, &wr, &bad))
		die("post operation %d: %s", opcode, strerror(errno));
}

static void verify(unsigned int message)
{
	long at = differs(memory, message, opt.size);

	if (at >= 0)
		die("byte %ld is not message %u's", at, message);
}

static void serve(const struct address *other)
{
	fill(memory, 0, opt.size);
	request_post(IBV_WR_SEND, other);
	completion(IBV_WC_SEND, "SEND");
	fill(memory, 1, opt.size);
	synchronize("to be read");
	synchronize("written");
	verify(2);
}

static void run_client(const struct address *other)
{
	completion(IBV_WC_RECV, "RECV");
	verify(0);
	synchronize("to be read");
	request_post(IBV_WR_RDMA_READ, other);
	completion(IBV_WC_RDMA_READ, "READ");
	verify(1);
	fill(memory, 2, opt.size);
	request_post(IBV_WR_RDMA_WRITE, other);
	completion(IBV_WC_RDMA_WRITE, "WRITE");
	synchronize("written");
}

int main(int argc, char **argv)
{
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
	};
	struct address own, other;
	int option;

	program = "exchange";
	while ((option = getopt(argc, argv, "p:d:g:m:s:")) != -1)
		switch (option) {
		case 'p': opt.port = optarg; break;
		case 'd': opt.device = optarg; break;
		case 'g': opt.gid_index = atoi(optarg); break;
		case 'm': opt.mtu = atoi(optarg); break;
		case 's': opt.size = atoi(optarg); break;
		default: die("see the head of exchange.c");
		}
	opt.host = argv[optind];
	if (!opt.size || opt.size > SIZE_MAX_)
		die("size: 1 to %u", SIZE_MAX_);
	tcp_open();
	resources_create(&own);
	modify(&init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");
	if (opt.host)
		receive_post();
	addresses_exchange(&own, &other);
	connect_qp(&own, &other);
	synchronize("connected");
	if (opt.host)
		run_client(&other);
	else
		serve(&other);
	synchronize("done");
	if (ibv_destroy_qp(qp) || ibv_dereg_mr(mr) || ibv_destroy_cq(cq) || ibv_dealloc_pd(pd) || ibv_close_device(context))
		die("clean up: %s", strerror(errno));
	puts("all as expected");
	return 0;
}
