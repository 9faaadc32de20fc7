// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * peer - exchanges RC operations over libibverbs with another peer, and verifies every byte.
 *
 * The server (-l) exposes a memory region and serves one client. The client (-c HOST) selects the
 * operations. The other end may be any program with the following control protocol, over one TCP
 * connection.
 *
 * Control protocol, version 1: lines of ASCII words that end with '\n'. The client sends "C:", the
 * server sends "S:". Numbers are decimal unless stated otherwise.
 *
 *   C: peer 1 <endpoint> mtu <bytes> rd_atomic <n>
 *	<endpoint> is "%04x:%06x:%06x:%32x": LID, QPN, first PSN, GID, as ibv_rc_pingpong sends it.
 *	mtu is the path MTU of both sides. rd_atomic is max_rd_atomic and max_dest_rd_atomic of both.
 *   S: peer 1 <endpoint>
 *	The server's QP is in RTS. The client goes to RTS, and requests any number of operations:
 *
 *   C: op <name> <size> <count>
 *   S: go <addr, hex> <length> <rkey, hex>...	the server is prepared
 *   S: refuse <reason>		instead of go: the server cannot run it, and reads the next line
 *   C: done | failed <wc status>	after the client's last completion
 *   S: ok | bad <fault>		the result of the server: completions, bytes, guards
 *
 *   C: bye			the server exits, with status 0 if all operations were ok
 *
 * Message k (from 0) of an operation uses slot k % slots of the region. Slot s has the bytes from
 * s * size. slots is length / size, which the server chooses between 1 and count. Byte j of message
 * k is
 *	((k + 1) * 0x9e3779b1 + j * 0x85ebca6b) mod 2^32 >> 24.
 *
 *   SEND, SEND_IMM	Messages into receives, over the slots in turn. The immediate data is k in
 *			network order.
 *   SEND_INV		As SEND. Message k invalidates the k-th rkey after the first in the go line
 *			(type 2 memory windows over its slot), and the completion must contain the
 *			rkey. count is at most 32.
 *   WRITE, WRITE_IMM	Message k to its slot. The server checks that each slot contains its last
 *			message. With immediate data, it also checks the number of completions, and
 *			byte_len and immediate data of each.
 *   FLUSH		As WRITE, each followed by a FLUSH to global visibility: of its slot, or of
 *			the whole region for each fourth message.
 *   ATOMIC_WRITE	(size 8) Message k to its slot as one store. Checked as WRITE.
 *   READ		The server fills slot s with message s. The client checks all bytes it reads.
 *   MW_WRITE, MW_READ	As WRITE and READ. Message k uses the k-th rkey after the first in the go
 *			line (type 2 memory windows over its slot; over all slots if it has no
 *			bytes). count is at most 32.
 *   MW1_WRITE		As MW_WRITE, with windows of type 1.
 *   INV_THEN_WRITE	(size above 0) As SEND_INV, then a WRITE of the size to the first slot by
 *			the second rkey of the go line. It must be a remote access error: the client
 *			fails with status 10.
 *   FAA		(size 8) Adds 3 to the counter at addr, which starts at 0: message k finds
 *			3 * k.
 *   CAS		(size 8) Compares with k and swaps k + 1, in the same counter: message k
 *			finds k.
 *   CAS_MISS		(size 8) Compares with all ones: each message finds 0x1122334455667788,
 *			which stays.
 *
 * The server's region lies between guards. Before each operation, the region, the guards and the
 * bytes after the last slot are 0xee. Bytes that no operation may write must keep that value.
 *
 * Output of the client: "OK <name> <size> <count>" for each operation, or "FAILED <name> <size>
 * <count>: ..." and exit status 1. A completion with an error is
 * "wc status <number> (<text>) at message <k>".
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

#define GUARD		4096u
#define FILL		0xee
#define BUFFER_MAX	(8u << 20)
#define DEPTH_MAX	64u		/* posted sends, posted receives */
#define WINDOWS		32u
#define SGE_MAX		32u
#define RXE_WITH_INV	(1 << 2)	/* a bit of the kernel, which rxe passes on unchanged */
#define MISS_VALUE	0x1122334455667788ull
#define BEFORE_FLUSH	(~0ull)		/* wr_id of the WRITE before a FLUSH */
#define CAP_FLUSH	(1ull << 38)	/* IB_UVERBS_DEVICE_FLUSH_GLOBAL, a flag that verbs.h does not define */

enum { RECEIVES = 1, ATOMIC = 2, IMM = 4, READS = 8, WRITES = 16, WINDOWED = 32, TYPE_1 = 64, THEN_WRITES = 128 };

static const struct op {
	const char *name;
	enum ibv_wr_opcode opcode;
	int traits;
} ops[] = {
	{ "SEND",	IBV_WR_SEND,			RECEIVES },
	{ "SEND_IMM",	IBV_WR_SEND_WITH_IMM,		RECEIVES | IMM },
	{ "SEND_INV",	IBV_WR_SEND_WITH_INV,		RECEIVES | WINDOWED },
	{ "WRITE",	IBV_WR_RDMA_WRITE,		WRITES },
	{ "WRITE_IMM",	IBV_WR_RDMA_WRITE_WITH_IMM,	WRITES | IMM },
	{ "FLUSH",	IBV_WR_FLUSH,			WRITES },
	{ "ATOMIC_WRITE", IBV_WR_ATOMIC_WRITE,		WRITES },
	{ "READ",	IBV_WR_RDMA_READ,		READS },
	{ "MW_WRITE",	IBV_WR_RDMA_WRITE,		WRITES | WINDOWED },
	{ "MW_READ",	IBV_WR_RDMA_READ,		READS | WINDOWED },
	{ "MW1_WRITE",	IBV_WR_RDMA_WRITE,		WRITES | WINDOWED | TYPE_1 },
	{ "INV_THEN_WRITE", IBV_WR_SEND_WITH_INV,	RECEIVES | WINDOWED | THEN_WRITES },
	{ "FAA",	IBV_WR_ATOMIC_FETCH_AND_ADD,	ATOMIC },
	{ "CAS",	IBV_WR_ATOMIC_CMP_AND_SWP,	ATOMIC },
	{ "CAS_MISS",	IBV_WR_ATOMIC_CMP_AND_SWP,	ATOMIC },
};

static struct {
	const char *host, *port, *device;
	int ib_port, gid_index;
	unsigned int mtu, rd_atomic, size, count, depth, sges;
	unsigned int timeout, retry_cnt, rnr_retry, min_rnr_timer, delay_ms;
	unsigned int rkey_flip;
	int is_inline, verbose;
} opt = {
	.port = "18600", .ib_port = 1, .gid_index = 1, .mtu = 1024, .rd_atomic = 4, .size = 4096, .count = 16,
	.depth = 16, .sges = 1, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .min_rnr_timer = 12,
};

struct endpoint {
	unsigned int lid, qpn, psn;
	union ibv_gid gid;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static unsigned int flush_access;	/* access flags for FLUSH, if this kernel has them */
static struct ibv_mr *mr;
static unsigned char *memory, *buffer;	/* guard, buffer, guard */
static struct endpoint self, other;
static FILE *control_in, *control_out;

static void __attribute__((format(printf, 1, 2))) send_line(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(control_out, format, args);
	va_end(args);
	fputc('\n', control_out);
	if (fflush(control_out))
		die("control connection: %s", strerror(errno));
}

/* Returns the next line of the control connection, without the line end. */
static char *read_line(void)
{
	static char line[1024];

	if (!fgets(line, sizeof(line), control_in))
		die("control connection closed by the other side");
	line[strcspn(line, "\r\n")] = 0;
	if (opt.verbose)
		fprintf(stderr, "< %s\n", line);
	return line;
}

static void endpoint_format(const struct endpoint *endpoint, char text[64])
{
	int length = sprintf(text, "%04x:%06x:%06x:", endpoint->lid, endpoint->qpn, endpoint->psn);

	for (int i = 0; i < 16; i++)
		length += sprintf(text + length, "%02x", endpoint->gid.raw[i]);
}

static void endpoint_parse(const char *text, struct endpoint *endpoint)
{
	char gid[33];

	if (sscanf(text, "%x:%x:%x:%32[0-9a-f]", &endpoint->lid, &endpoint->qpn, &endpoint->psn, gid) != 4 ||
	    strlen(gid) != 32)
		die("not an endpoint: %s", text);
	for (int i = 0; i < 16; i++)
		sscanf(gid + 2 * i, "%2hhx", &endpoint->gid.raw[i]);
}

static int tcp(int listens)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = listens ? AI_PASSIVE : 0 };
	struct addrinfo *found, *each;
	int error, listener, fd, yes = 1, no = 0;

	hints.ai_family = listens ? AF_INET6 : AF_UNSPEC;
	error = getaddrinfo(listens ? NULL : opt.host, opt.port, &hints, &found);
	if (error)
		die("%s port %s: %s", opt.host ? opt.host : "any address", opt.port, gai_strerror(error));
	for (each = found; each; each = each->ai_next) {
		fd = socket(each->ai_family, each->ai_socktype, each->ai_protocol);
		if (fd < 0)
			continue;
		if (!listens) {
			if (!connect(fd, each->ai_addr, each->ai_addrlen))
				return fd;
		} else {
			setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
			setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
			if (!bind(fd, each->ai_addr, each->ai_addrlen) && !listen(fd, 1)) {
				printf("listening %s\n", opt.port);
				fflush(stdout);
				listener = fd;
				fd = accept(listener, NULL, NULL);
				close(listener);
				if (fd >= 0)
					return fd;
			}
		}
		close(fd);
	}
	die("%s port %s: %s", opt.host ? opt.host : "listening on", opt.port, strerror(errno));
}

static void control_open(int fd)
{
	control_in = fdopen(fd, "r");
	control_out = fdopen(dup(fd), "w");
	if (!control_in || !control_out)
		die("control connection: %s", strerror(errno));
}

static void resources_create(void)
{
	struct ibv_device_attr_ex can;

	context = device_open(opt.device);
	if (ibv_query_device_ex(context, NULL, &can))
		die("query device: %s", strerror(errno));
	flush_access = can.device_cap_flags_ex & CAP_FLUSH ? IBV_ACCESS_FLUSH_GLOBAL : 0;

	if (posix_memalign((void **)&memory, 4096, BUFFER_MAX + 2 * GUARD))
		die("no memory");
	memset(memory, FILL, BUFFER_MAX + 2 * GUARD);
	buffer = memory + GUARD;

	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 4 * DEPTH_MAX, NULL, NULL, 0);
	if (!pd || !cq)
		die("PD, CQ: %s", strerror(errno));
	mr = ibv_reg_mr(pd, buffer, BUFFER_MAX, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND |
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | flush_access);
	if (!mr)
		die("memory region: %s", strerror(errno));
}

static void qp_create(void)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_FLUSH | IBV_QP_EX_WITH_ATOMIC_WRITE,
		.cap = { .max_send_wr = 2 * DEPTH_MAX, .max_recv_wr = DEPTH_MAX, .max_send_sge = opt.sges,
			 .max_recv_sge = opt.sges, .max_inline_data = opt.is_inline ? opt.size : 0 },
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = opt.ib_port,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC |
				   flush_access,
	};

	qp = ibv_create_qp_ex(context, &init);
	if (!qp)
		die("QP: %s", strerror(errno));
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("to INIT: %s", strerror(errno));
	self.qpn = qp->qp_num;
	self.psn = lrand48() & 0xffffff;
	if (ibv_query_gid(context, opt.ib_port, opt.gid_index, &self.gid))
		die("GID %d: %s", opt.gid_index, strerror(errno));
}

static void qp_connect(void)
{
	static const unsigned int mtus[] = { 0, 256, 512, 1024, 2048, 4096 };
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .dest_qp_num = other.qpn, .rq_psn = other.psn,
		.max_dest_rd_atomic = opt.rd_atomic, .min_rnr_timer = opt.min_rnr_timer,
		.ah_attr = { .is_global = 1, .port_num = opt.ib_port,
			     .grh = { .dgid = other.gid, .sgid_index = opt.gid_index, .hop_limit = 64 } },
	};

	for (int i = 1; i < 6; i++)
		if (mtus[i] == opt.mtu)
			attr.path_mtu = i;
	if (!attr.path_mtu)
		die("path MTU %u: 256, 512, 1024, 2048 or 4096", opt.mtu);
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("to RTR: %s", strerror(errno));
	attr = (struct ibv_qp_attr) {
		.qp_state = IBV_QPS_RTS, .sq_psn = self.psn, .max_rd_atomic = opt.rd_atomic,
		.timeout = opt.timeout, .retry_cnt = opt.retry_cnt, .rnr_retry = opt.rnr_retry,
	};
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT |
			  IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY))
		die("to RTS: %s", strerror(errno));
}

static int untouched(const unsigned char *from, const unsigned char *to)
{
	return from == to || (*from == FILL && !memcmp(from, from + 1, to - from - 1));
}

static unsigned int slots_of(unsigned int size, unsigned int count)
{
	unsigned int most = size ? BUFFER_MAX / size : count;

	return most < count ? most : count;
}

static const struct op *op_find(const char *name)
{
	for (unsigned int i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		if (!strcmp(ops[i].name, name))
			return &ops[i];
	return NULL;
}

/*
 * Splits size bytes at the address into the given number of pieces. The last piece is the largest.
 */
static int pieces(struct ibv_sge sge[SGE_MAX], unsigned char *at, unsigned int size)
{
	unsigned int n = size < opt.sges ? (size > 0) : opt.sges, each = n ? size / n : 0;

	for (unsigned int i = 0; i < n; i++)
		sge[i] = (struct ibv_sge) { (uintptr_t)at + i * each, i + 1 < n ? each : size - i * each, mr->lkey };
	return n;
}

static void receive_post(unsigned int message, unsigned int slots, unsigned int size, int takes_payload)
{
	struct ibv_sge sge[SGE_MAX];
	struct ibv_recv_wr wr = { .wr_id = message, .sg_list = sge }, *bad;

	if (takes_payload)
		wr.num_sge = pieces(sge, buffer + (size_t)(message % slots) * size, size);
	if (ibv_post_recv(qp, &wr, &bad))
		die("post receive: %s", strerror(errno));
}

/* Returns whether the client sent another line, which it does only after its operation. */
static int control_readable(void)
{
	char byte;

	return recv(fileno(control_in), &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

struct serving {
	const struct op *op;
	unsigned int size, count, slots;
	struct ibv_mw *windows[WINDOWS];
	uint32_t window_rkeys[WINDOWS];
};

/* Binds one window for each message, to its slot. Empty messages have no bytes in their slot. */
static int windows_bind(struct serving *serving)
{
	int access = serving->op->traits & READS ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;

	int is_type_1 = serving->op->traits & TYPE_1;

	for (unsigned int i = 0; i < serving->count; i++) {
		struct ibv_mw *mw = ibv_alloc_mw(pd, is_type_1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
		uintptr_t slot = (uintptr_t)buffer + (size_t)(i % serving->slots) * serving->size;
		unsigned int length = serving->size ? serving->size : BUFFER_MAX;
		struct ibv_send_wr *bad, wr = {
			.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
			.bind_mw = { .mw = mw, .bind_info = { mr, slot, length, access } },
		};
		struct ibv_mw_bind bind = { .send_flags = IBV_SEND_SIGNALED, .bind_info = { mr, slot, length, access } };
		struct ibv_wc wc;

		if (!mw)
			return 0;
		serving->windows[i] = mw;
		wr.bind_mw.rkey = serving->window_rkeys[i] = ibv_inc_rkey(mw->rkey);
		/* A bind of type 1 selects the next key itself. */
		if (is_type_1 ? ibv_bind_mw(qp, mw, &bind) : ibv_post_send(qp, &wr, &bad))
			return 0;
		if (is_type_1 && mw->rkey != serving->window_rkeys[i])
			return 0;
		while (!ibv_poll_cq(cq, 1, &wc))
			;
		if (wc.status)
			return 0;
	}
	return 1;
}

static void receives_post(const struct serving *serving)
{
	if (!(serving->op->traits & (RECEIVES | IMM)))
		return;
	for (unsigned int i = 0; i < serving->slots && i < DEPTH_MAX; i++)
		receive_post(i, serving->slots, serving->size, serving->op->traits & RECEIVES);
}

/* Polls the completions of the client's messages. Returns the first fault, or NULL. */
static const char *receive_all(struct serving *serving)
{
	static char text[128];
	unsigned int done = 0, posted = serving->slots < DEPTH_MAX ? serving->slots : DEPTH_MAX;
	int sends = serving->op->traits & RECEIVES, over = 0;
	const char *wrong = NULL;
	struct ibv_wc wc;

	while (done < serving->count) {
		unsigned char *slot = buffer + (size_t)(done % serving->slots) * serving->size;

		if (!ibv_poll_cq(cq, 1, &wc)) {
			if (over) {
				sprintf(text, "%u of %u completions", done, serving->count);
				return wrong ? wrong : text;
			}
			/*
			 * Polls once more after the client's last line, because its messages
			 * arrived before the line.
			 */
			over = control_readable();
			continue;
		}
		if (wc.status) {
			sprintf(text, "receive completion %u: status %d (%s)", done, wc.status,
				ibv_wc_status_str(wc.status));
			return text;
		}
		if (!wrong && wc.wr_id != done)
			wrong = "completions out of order";
		if (!wrong && wc.opcode != (sends ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM))
			wrong = "opcode of a completion";
		if (!wrong && wc.byte_len != serving->size)
			wrong = "byte_len of a completion";
		if (!wrong && !!(wc.wc_flags & IBV_WC_WITH_IMM) != !!(serving->op->traits & IMM))
			wrong = "immediate flag of a completion";
		if (!wrong && serving->op->traits & IMM && ntohl(wc.imm_data) != done)
			wrong = "immediate data";
		if (!wrong && serving->op->opcode == IBV_WR_SEND_WITH_INV &&
		    (!(wc.wc_flags & (IBV_WC_WITH_INV | RXE_WITH_INV)) || wc.invalidated_rkey != serving->window_rkeys[done]))
			wrong = "invalidated rkey";
		if (!wrong && sends && differs(slot, done, serving->size) >= 0) {
			sprintf(text, "message %u, byte %ld", done, differs(slot, done, serving->size));
			wrong = text;
		}
		done++;
		if (posted < serving->count)
			receive_post(posted++, serving->slots, serving->size, sends);
	}
	return wrong;
}

/* Checks the memory after the operation. Returns the first fault, or NULL. */
static const char *memory_check(const struct serving *serving)
{
	static char text[128];
	size_t used = (size_t)serving->slots * serving->size;

	if (!untouched(memory, buffer) || !untouched(buffer + BUFFER_MAX, buffer + BUFFER_MAX + GUARD))
		return "written outside the region";
	if (!untouched(buffer + used, buffer + BUFFER_MAX))
		return "written behind the last slot";
	if (serving->op->traits & ATOMIC) {
		uint64_t expected = !strcmp(serving->op->name, "FAA") ? 3 * serving->count :
				    !strcmp(serving->op->name, "CAS") ? serving->count : MISS_VALUE;

		if (memcmp(buffer, &expected, 8))
			return "value of the counter";
	}
	for (unsigned int s = 0; serving->op->traits & (WRITES | READS) && s < serving->slots; s++) {
		unsigned int last = serving->op->traits & READS ? s :
			(serving->count - 1 - s) / serving->slots * serving->slots + s;
		long byte = differs(buffer + (size_t)s * serving->size, last, serving->size);

		if (byte >= 0) {
			sprintf(text, "slot %u, message %u, byte %ld", s, last, byte);
			return text;
		}
	}
	return NULL;
}

/* Serves one operation of the client. Returns 0 on success. */
static int serve(char *line)
{
	struct serving serving = { 0 };
	const char *wrong = NULL, *wrong_memory;
	char name[32], *result, keys[WINDOWS * 10 + 1] = "";
	size_t used;

	if (sscanf(line, "op %31s %u %u", name, &serving.size, &serving.count) != 3 || !serving.count) {
		send_line("refuse not an operation: %s", line);
		return 1;
	}
	serving.op = op_find(name);
	if (!serving.op || serving.size > BUFFER_MAX || (serving.op->traits & ATOMIC && serving.size != 8) ||
	    (serving.op->opcode == IBV_WR_ATOMIC_WRITE && serving.size != 8) ||
	    (serving.op->opcode == IBV_WR_FLUSH && !flush_access) ||
	    (serving.op->traits & WINDOWED && serving.count > WINDOWS)) {
		send_line("refuse %s", serving.op ? "size or count" : "unknown operation");
		return 1;
	}
	serving.slots = serving.op->traits & ATOMIC ? 1 : slots_of(serving.size, serving.count);
	used = (size_t)serving.slots * serving.size;
	memset(buffer, FILL, BUFFER_MAX);
	if (serving.op->traits & ATOMIC)
		memcpy(buffer, strcmp(name, "CAS_MISS") ? &(uint64_t) { 0 } : &(uint64_t) { MISS_VALUE }, 8);
	for (unsigned int s = 0; serving.op->traits & READS && s < serving.slots; s++)
		fill(buffer + (size_t)s * serving.size, s, serving.size);
	if (serving.op->traits & WINDOWED) {
		if (!windows_bind(&serving)) {
			send_line("refuse no memory windows");
			return 1;
		}
		for (unsigned int i = 0; i < serving.count; i++)
			sprintf(keys + strlen(keys), " %08x", serving.window_rkeys[i]);
	}
	if (!opt.delay_ms)
		receives_post(&serving);
	send_line("go %llx %zu %08x%s", (unsigned long long)(uintptr_t)buffer, used, mr->rkey, keys);
	if (opt.delay_ms) {
		usleep(opt.delay_ms * 1000);
		receives_post(&serving);
	}
	if (serving.op->traits & (RECEIVES | IMM))
		wrong = receive_all(&serving);
	result = read_line();
	if (strcmp(result, "done")) {
		send_line("ok");	/* a failed operation has no result to check */
		return 0;
	}
	wrong_memory = memory_check(&serving);
	if (!wrong)
		wrong = wrong_memory;
	for (unsigned int i = 0; i < WINDOWS && serving.windows[i]; i++)
		ibv_dealloc_mw(serving.windows[i]);
	if (wrong)
		send_line("bad %s", wrong);
	else
		send_line("ok");
	return wrong != NULL;
}

static int server(void)
{
	char text[64];
	int failures = 0;
	char *line;

	control_open(tcp(1));
	line = read_line();
	if (sscanf(line, "peer 1 %63s mtu %u rd_atomic %u", text, &opt.mtu, &opt.rd_atomic) != 3)
		die("not the control protocol, version 1: %s", line);
	endpoint_parse(text, &other);
	qp_create();
	qp_connect();
	endpoint_format(&self, text);
	send_line("peer 1 %s", text);
	while (strcmp(line = read_line(), "bye"))
		failures += serve(line);
	return failures != 0;
}

struct region {
	unsigned long long addr;
	size_t length;
	uint32_t rkey, window_rkeys[WINDOWS];
};

/* Only the newer functions for posting have FLUSH and ATOMIC WRITE. */
static int newer_post(const struct op *op, unsigned int k, unsigned long long remote, uint32_t rkey, const void *slot)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	int all = k % 4 == 3;

	ibv_wr_start(ex);
	ex->wr_id = k;
	ex->wr_flags = IBV_SEND_SIGNALED;
	if (op->opcode == IBV_WR_ATOMIC_WRITE)
		ibv_wr_atomic_write(ex, rkey, remote, slot);
	else
		ibv_wr_flush(ex, rkey, remote, all ? 0 : opt.size, IBV_FLUSH_GLOBAL, all ? IBV_FLUSH_MR : IBV_FLUSH_RANGE);
	return ibv_wr_complete(ex);
}

static void request_post(const struct op *op, const struct region *region, unsigned int k, unsigned int slots)
{
	struct ibv_sge sge[SGE_MAX];
	unsigned char *slot = buffer + (size_t)(k % opt.depth) * opt.size;
	unsigned long long remote = region->addr + (unsigned long long)(k % slots) * opt.size;
	struct ibv_send_wr *bad, wr = { .wr_id = k, .sg_list = sge, .opcode = op->opcode };

	if (opt.is_inline && !(op->traits & (READS | ATOMIC)))
		wr.send_flags |= IBV_SEND_INLINE;
	if (op->traits & (READS | ATOMIC))
		memset(slot, FILL, opt.size);
	else
		fill(slot, k, opt.size);
	wr.num_sge = pieces(sge, slot, opt.size);
	if (op->traits & IMM)
		wr.imm_data = htonl(k);
	if (op->opcode == IBV_WR_SEND_WITH_INV)
		wr.invalidate_rkey = region->window_rkeys[k];
	if (op->traits & ATOMIC) {
		wr.wr.atomic.remote_addr = region->addr;
		wr.wr.atomic.rkey = region->rkey ^ opt.rkey_flip;
		wr.wr.atomic.compare_add = !strcmp(op->name, "FAA") ? 3 : !strcmp(op->name, "CAS") ? k : ~0ull;
		wr.wr.atomic.swap = k + 1;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = (op->traits & WINDOWED ? region->window_rkeys[k] : region->rkey) ^ opt.rkey_flip;
	}
	if (op->opcode == IBV_WR_FLUSH) {
		wr.opcode = IBV_WR_RDMA_WRITE;
		wr.wr_id = BEFORE_FLUSH;
	}
	if (op->opcode != IBV_WR_ATOMIC_WRITE && ibv_post_send(qp, &wr, &bad))
		die("post %s, message %u: %s", op->name, k, strerror(errno));
	if ((op->opcode == IBV_WR_ATOMIC_WRITE || op->opcode == IBV_WR_FLUSH) &&
	    newer_post(op, k, remote, wr.wr.rdma.rkey, slot))
		die("post %s, message %u: %s", op->name, k, strerror(errno));
}

/* Checks the response to message k. Returns the fault, or NULL. */
static const char *response_check(const struct op *op, unsigned int k, unsigned int slots)
{
	static char text[64];
	const unsigned char *slot = buffer + (size_t)(k % opt.depth) * opt.size;

	if (op->traits & READS && differs(slot, k % slots, opt.size) >= 0) {
		sprintf(text, "message %u, byte %ld", k, differs(slot, k % slots, opt.size));
		return text;
	}
	if (op->traits & ATOMIC) {
		uint64_t found, expected = !strcmp(op->name, "FAA") ? 3ull * k :
					   !strcmp(op->name, "CAS") ? k : MISS_VALUE;

		memcpy(&found, slot, 8);
		if (found != expected) {
			sprintf(text, "atomic %u found %llx", k, (unsigned long long)found);
			return text;
		}
	}
	return NULL;
}

/* Posts a WRITE by the key of an invalidated window, as message `count`. */
static void stale_post(const struct region *region)
{
	struct ibv_sge sge = { (uintptr_t)buffer, opt.size, mr->lkey };
	struct ibv_send_wr *bad, wr = { .wr_id = opt.count, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE };

	wr.wr.rdma.remote_addr = region->addr;
	wr.wr.rdma.rkey = region->window_rkeys[0];
	if (ibv_post_send(qp, &wr, &bad))
		die("post a WRITE by a stale key: %s", strerror(errno));
}

static const char *play(const struct op *op, const struct region *region)
{
	static char text[128];
	unsigned int slots = op->traits & ATOMIC ? 1 : opt.size ? region->length / opt.size : opt.count;
	unsigned int posted = 0, done = 0;
	const char *wrong = NULL;
	struct ibv_wc wc;

	while (done < opt.count + !!(op->traits & THEN_WRITES)) {
		while (posted < opt.count && posted - done < opt.depth)
			request_post(op, region, posted++, slots);
		if (done == opt.count && posted == opt.count) {
			stale_post(region);
			posted++;
		}
		if (!ibv_poll_cq(cq, 1, &wc))
			continue;
		if (wc.status) {
			sprintf(text, "wc status %d (%s) at message %llu", wc.status, ibv_wc_status_str(wc.status),
				(unsigned long long)wc.wr_id);
			send_line("failed %d", wc.status);
			read_line();
			return text;
		}
		if (wc.wr_id == BEFORE_FLUSH)
			continue;
		if (!wrong && done == opt.count)
			wrong = "the key of an invalidated window was good for a WRITE";
		if (!wrong && wc.wr_id != done)
			wrong = "completions out of order";
		if (!wrong && ((op->opcode == IBV_WR_FLUSH && wc.opcode != IBV_WC_FLUSH) ||
			       (op->opcode == IBV_WR_ATOMIC_WRITE && wc.opcode != IBV_WC_ATOMIC_WRITE)))
			wrong = "opcode of a completion";
		if (!wrong)
			wrong = response_check(op, done, slots);
		done++;
	}
	send_line("done");
	sprintf(text, "%s", read_line());
	if (!wrong && strcmp(text, "ok"))
		wrong = text;
	return wrong;
}

static int request(const char *name)
{
	const struct op *op = op_find(name);
	struct region region = { 0 };
	const char *wrong;
	char *line;
	int at;

	if (!op)
		die("unknown operation: %s", name);
	send_line("op %s %u %u", name, opt.size, opt.count);
	line = read_line();
	if (sscanf(line, "go %llx %zu %x%n", &region.addr, &region.length, &region.rkey, &at) != 3) {
		wrong = line;
	} else {
		for (unsigned int i = 0, step; i < WINDOWS; i++, at += step)
			if (sscanf(line + at, "%x%n", &region.window_rkeys[i], (int *)&step) != 1)
				break;
		wrong = play(op, &region);
	}
	if (wrong)
		printf("FAILED %s %u %u: %s\n", name, opt.size, opt.count, wrong);
	else
		printf("OK %s %u %u\n", name, opt.size, opt.count);
	fflush(stdout);
	return wrong != NULL;
}

static int client(char **names)
{
	char text[64], *line;
	int failures = 0;

	control_open(tcp(0));
	qp_create();
	endpoint_format(&self, text);
	send_line("peer 1 %s mtu %u rd_atomic %u", text, opt.mtu, opt.rd_atomic);
	line = read_line();
	if (sscanf(line, "peer 1 %63s", text) != 1)
		die("not the control protocol, version 1: %s", line);
	endpoint_parse(text, &other);
	qp_connect();
	/*
	 * A completion with an error puts the QP into the error state, which ends the operations.
	 */
	for (; *names && !failures; names++)
		failures += request(*names);
	send_line("bye");
	return failures != 0;
}

static void __attribute__((noreturn)) usage(void)
{
	fputs("usage: peer -l [OPTION]...\n"
	      "       peer -c HOST [OPTION]... OPERATION...\n"
	      "operations: SEND SEND_IMM SEND_INV WRITE WRITE_IMM FLUSH ATOMIC_WRITE READ MW_WRITE MW_READ MW1_WRITE INV_THEN_WRITE FAA CAS CAS_MISS\n"
	      "  -p PORT    TCP port (18600)                -d NAME    RDMA device (the first)\n"
	      "  -g INDEX   source GID index (1)            -m BYTES   path MTU (1024)\n"
	      "  -s BYTES   message size (4096)             -n COUNT   messages an operation (16)\n"
	      "  -q COUNT   messages outstanding (16)       -a COUNT   READs and atomics outstanding (4)\n"
	      "  -S COUNT   scatter-gather entries (1)      -I         send inline\n"
	      "  -t CODE    local ACK timeout (14)          -r COUNT   retry count (7)\n"
	      "  -R COUNT   RNR retry count (7)             -T CODE    minimal RNR timer (12)\n"
	      "  -k HEX     client: flip these bits of the rkey\n"
	      "  -D MS      server: post receives so long after saying go, so that RNR NAKs are sent\n"
	      "  -v         show the control protocol\n", stderr);
	exit(2);
}

int main(int argc, char **argv)
{
	int c, listens = 0;

	program = "peer";

	while ((c = getopt(argc, argv, "lc:p:d:g:m:s:n:q:a:S:It:r:R:T:k:D:v")) != -1) {
		unsigned int number = optarg ? strtoul(optarg, NULL, 10) : 0;

		switch (c) {
		case 'l': listens = 1; break;
		case 'c': opt.host = optarg; break;
		case 'p': opt.port = optarg; break;
		case 'd': opt.device = optarg; break;
		case 'g': opt.gid_index = number; break;
		case 'm': opt.mtu = number; break;
		case 's': opt.size = number; break;
		case 'n': opt.count = number; break;
		case 'q': opt.depth = number; break;
		case 'a': opt.rd_atomic = number; break;
		case 'S': opt.sges = number; break;
		case 'I': opt.is_inline = 1; break;
		case 't': opt.timeout = number; break;
		case 'r': opt.retry_cnt = number; break;
		case 'R': opt.rnr_retry = number; break;
		case 'T': opt.min_rnr_timer = number; break;
		case 'k': opt.rkey_flip = strtoul(optarg, NULL, 16); break;
		case 'D': opt.delay_ms = number; break;
		case 'v': opt.verbose = 1; break;
		default: usage();
		}
	}
	if (listens == !!opt.host || (!listens && optind == argc) || !opt.sges || opt.sges > SGE_MAX)
		usage();
	if (opt.size > BUFFER_MAX || !opt.count || !opt.depth)
		die("size up to %u, count and depth from 1", BUFFER_MAX);
	if (opt.depth > DEPTH_MAX)
		opt.depth = DEPTH_MAX;
	if (opt.size && opt.depth > BUFFER_MAX / opt.size)
		opt.depth = BUFFER_MAX / opt.size;
	srand48(time(NULL) ^ getpid());
	resources_create();
	return listens ? server() : client(argv + optind);
}
