// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * failures - opens, connects, sends and closes while one system call or one allocation fails.
 *
 *	failures ADDRESS SAMPLES	runs this many cases, evenly spread; FIRST= runs all from there
 *
 * The library makes system calls without the C library. So a seccomp filter passes each call to a
 * thread of this program without the filter, which lets it run or returns an error. Allocations of
 * more than 4 KiB go through the functions of this file. A child without failures counts both. A
 * case is a kind of call, its number among the calls of that kind, and an error.
 *
 * A case passes if the child sees an error that names the call or finishes its work, ends in time,
 * can do all of the work once more, and then has as many descriptors, threads and large blocks as
 * the child without failures.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#include <rdma/rdma_cma.h>

#include "check.h"

#define LARGE		4096
#define PORT		18517
#define SIZE		(96 << 10)
#define LIMIT_S		40
/* Cases of one kind and error: the first so many calls. */
#define MOST_OF_KIND	48
/* The error of a read that returns nothing. */
#define NOTHING		0

/* A kind of call, and the errors that it may return. -1 ends the list. */
static const struct kind {
	const char *name;
	long number;
	int errors[3];
} KINDS[] = {
	{ "malloc", -1, { ENOMEM, -1 } },
	{ "socket", SYS_socket, { EMFILE, ENOBUFS, -1 } },
	{ "socketpair", SYS_socketpair, { EMFILE, -1 } },
	{ "bind", SYS_bind, { ENOBUFS, -1 } },
	{ "connect", SYS_connect, { EAGAIN, -1 } },
	{ "listen", SYS_listen, { ENOBUFS, -1 } },
	{ "accept4", SYS_accept4, { EMFILE, -1 } },
	{ "getsockname", SYS_getsockname, { ENOBUFS, -1 } },
	{ "setsockopt", SYS_setsockopt, { ENOMEM, -1 } },
	{ "getsockopt", SYS_getsockopt, { ENOBUFS, -1 } },
	{ "sendmsg", SYS_sendmsg, { ENOBUFS, EAGAIN, -1 } },
	{ "sendmmsg", SYS_sendmmsg, { ENOBUFS, EAGAIN, -1 } },
	{ "sendto", SYS_sendto, { ENOBUFS, EINTR, -1 } },
	{ "recvmsg", SYS_recvmsg, { ENOMEM, EINTR, -1 } },
	{ "recvmmsg", SYS_recvmmsg, { ENOMEM, EINTR, -1 } },
	{ "recvfrom", SYS_recvfrom, { ENOMEM, EINTR, -1 } },
	{ "openat", SYS_openat, { EMFILE, ENOMEM, -1 } },
	{ "read", SYS_read, { EINTR, NOTHING, -1 } },
	{ "pread64", SYS_pread64, { EINTR, -1 } },
	{ "pwrite64", SYS_pwrite64, { EINTR, ENOMEM, -1 } },
	{ "getdents64", SYS_getdents64, { ENOMEM, -1 } },
	{ "readlinkat", SYS_readlinkat, { ENOMEM, -1 } },
	{ "fcntl", SYS_fcntl, { EMFILE, -1 } },
	{ "dup", SYS_dup, { EMFILE, -1 } },
	{ "eventfd2", SYS_eventfd2, { EMFILE, -1 } },
	{ "timerfd_create", SYS_timerfd_create, { EMFILE, -1 } },
	{ "timerfd_settime", SYS_timerfd_settime, { ENOMEM, -1 } },
	{ "epoll_create1", SYS_epoll_create1, { EMFILE, -1 } },
	{ "epoll_ctl", SYS_epoll_ctl, { ENOMEM, -1 } },
	{ "memfd_create", SYS_memfd_create, { EMFILE, -1 } },
	{ "ftruncate", SYS_ftruncate, { EINTR, -1 } },
	{ "statx", SYS_statx, { ENOMEM, -1 } },
	{ "fstat", SYS_fstat, { ENOMEM, -1 } },
	{ "ioctl", SYS_ioctl, { ENOBUFS, -1 } },
	{ "mmap", SYS_mmap, { ENOMEM, -1 } },
	{ "mprotect", SYS_mprotect, { ENOMEM, -1 } },
	{ "madvise", SYS_madvise, { ENOMEM, EAGAIN, -1 } },
	{ "clone3", SYS_clone3, { EAGAIN, -1 } },
	/* The watcher: without it, the process works. */
	{ "clone", SYS_clone, { EAGAIN, EPERM, -1 } },
	{ "pidfd_open", SYS_pidfd_open, { EMFILE, ENOSYS, -1 } },
	{ "getrandom", SYS_getrandom, { EINTR, -1 } },
	{ "ppoll", SYS_ppoll, { EINTR, ENOMEM, -1 } },
#ifdef SYS_poll
	{ "poll", SYS_poll, { EINTR, ENOMEM, -1 } },
#endif
};
#define COUNT	((int)(sizeof(KINDS) / sizeof(KINDS[0])))

struct failure {
	int kind, number, error;
};

/* What parent and child share. */
static struct shared {
	struct failure failure;
	_Atomic int armed;
	_Atomic int made;
	_Atomic int calls[COUNT];
	_Atomic int large;
	/* The first call of the program that failed. */
	char failed[64];
	int failed_errno;
	/* After the last work. */
	int descriptors, threads, blocks;
	int is_done;
} *shared;

static int listener;

/* Counts a call. Returns whether it must fail. */
static int fails(int kind)
{
	if (!shared || !atomic_load(&shared->armed))
		return 0;
	if (atomic_fetch_add(&shared->calls[kind], 1) + 1 != shared->failure.number || kind != shared->failure.kind)
		return 0;
	atomic_store(&shared->made, 1);
	return 1;
}

/* Allocation: the C library's functions, which fail in the chosen call. */

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

static void count_block(void *block, int change)
{
	if (block && shared && malloc_usable_size(block) > 2 * LARGE)
		atomic_fetch_add(&shared->large, change);
}

static int refuses(size_t size)
{
	if (size <= LARGE || !fails(0))
		return 0;
	if (getenv("URXE_FAILURES_TRACE")) {
		void *frames[32];

		backtrace_symbols_fd(frames, backtrace(frames, 32), 2);
	}
	errno = ENOMEM;
	return 1;
}

void *malloc(size_t size)
{
	void *block = refuses(size) ? NULL : __libc_malloc(size);

	count_block(block, 1);
	return block;
}

void *calloc(size_t count, size_t size)
{
	void *block = refuses(count * size) ? NULL : __libc_calloc(count, size);

	count_block(block, 1);
	return block;
}

void *realloc(void *old, size_t size)
{
	void *block;

	if (refuses(size))
		return NULL;
	count_block(old, -1);
	block = __libc_realloc(old, size);
	count_block(block, 1);
	return block;
}

void *aligned_alloc(size_t alignment, size_t size)
{
	void *block = refuses(size) ? NULL : __libc_memalign(alignment, size);

	count_block(block, 1);
	return block;
}

int posix_memalign(void **place, size_t alignment, size_t size)
{
	void *block = aligned_alloc(alignment, size);

	if (!block)
		return ENOMEM;
	*place = block;
	return 0;
}

void free(void *block)
{
	count_block(block, -1);
	__libc_free(block);
}

/* System calls: a filter, and the thread that answers it. */

static int kind_of(long number)
{
	for (int kind = 1; kind < COUNT; kind++)
		if (KINDS[kind].number == number)
			return kind;
	return -1;
}

static void *answer_calls(void *unused)
{
	(void)unused;
	for (;;) {
		struct seccomp_notif call = { 0 };
		struct seccomp_notif_resp answer = { 0 };
		int kind;

		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call))
			continue;
		kind = kind_of(call.data.nr);
		answer.id = call.id;
		if (kind >= 0 && fails(kind))
			answer.error = -shared->failure.error;
		else
			answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
		ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
	}
	return NULL;
}

static _Atomic int is_installed;

static void *wait_for_filter(void *unused)
{
	while (!atomic_load(&is_installed))
		usleep(100);
	return answer_calls(unused);
}

/* Passes the calls of this thread and of its later threads to another thread. */
static void install_filter(void)
{
	struct sock_filter code[2 * COUNT + 4];
	struct sock_fprog program = { .filter = code };
	unsigned short length = 0;
	pthread_t thread;

	code[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (int kind = 1; kind < COUNT; kind++) {
		code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)KINDS[kind].number, 0, 1);
		code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
	}
	code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	program.len = length;
	MUST(!pthread_create(&thread, NULL, wait_for_filter, NULL));
	MUST(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
	MUST(listener >= 0);
	atomic_store(&is_installed, 1);
}

/* The work: a device of ibverbs, then a connection of rdma_cm from the process to itself. */

static struct work {
	struct ibv_device **list;
	struct ibv_context *context;
	struct ibv_pd *pd, *pd_of_cm;
	struct ibv_mr *mr, *mr_of_cm;
	struct ibv_comp_channel *completions;
	struct ibv_cq *cq, *cq_of_cm;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct rdma_event_channel *events;
	struct rdma_cm_id *listening, *client, *server;
} work;

static char *memory;
static const char *address;

/* Notes the first call that failed. */
static int note(const char *call)
{
	if (!shared->failed[0]) {
		shared->failed_errno = errno;
		snprintf(shared->failed, sizeof(shared->failed), "%s", call);
	}
	return -1;
}

#define TRY(call, condition)                    \
	do {                                    \
		errno = 0;                      \
		if (!(condition))               \
			return note(call);      \
	} while (0)

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Waits until a descriptor can be read. */
static int await(int fd)
{
	double end = now() + LIMIT_S / 2;

	while (now() < end) {
		struct pollfd wanted = { .fd = fd, .events = POLLIN };

		if (poll(&wanted, 1, 1000) == 1)
			return 0;
	}
	errno = ETIMEDOUT;
	return note("await");
}

static int take(enum rdma_cm_event_type type, struct rdma_cm_id **id)
{
	struct rdma_cm_event *event;
	int is_wanted;

	if (await(work.events->fd))
		return -1;
	TRY("rdma_get_cm_event", !rdma_get_cm_event(work.events, &event));
	is_wanted = event->event == type;
	if (is_wanted && id)
		*id = event->id;
	errno = EPROTO;
	if (!is_wanted)
		note(rdma_event_str(event->event));
	if (!is_wanted && event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		work.server = event->id;
	TRY("rdma_ack_cm_event", !rdma_ack_cm_event(event));
	return is_wanted ? 0 : -1;
}

static int open_device(void)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 1024, .max_sge = 4 } };
	struct ibv_qp_init_attr qp = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 256, .max_recv_wr = 256, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = 128 },
	};
	struct ibv_wc wc;

	TRY("ibv_get_device_list", work.list = ibv_get_device_list(NULL));
	errno = ENODEV;
	if (!work.list[0])
		return note("ibv_get_device_list");
	TRY("ibv_open_device", work.context = ibv_open_device(work.list[0]));
	TRY("ibv_alloc_pd", work.pd = ibv_alloc_pd(work.context));
	TRY("ibv_reg_mr", work.mr = ibv_reg_mr(work.pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE));
	TRY("ibv_create_comp_channel", work.completions = ibv_create_comp_channel(work.context));
	TRY("ibv_create_cq", work.cq = ibv_create_cq(work.context, 1000, NULL, work.completions, 0));
	TRY("ibv_create_srq", work.srq = ibv_create_srq(work.pd, &srq));
	qp.send_cq = qp.recv_cq = work.cq;
	TRY("ibv_create_qp", work.qp = ibv_create_qp(work.pd, &qp));
	TRY("ibv_poll_cq", ibv_poll_cq(work.cq, 1, &wc) == 0);
	return 0;
}

static int make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1, .send_cq = work.cq_of_cm, .recv_cq = work.cq_of_cm,
		.cap = { .max_send_wr = 128, .max_recv_wr = 128, .max_send_sge = 2, .max_recv_sge = 2 },
	};

	TRY("rdma_create_qp", !rdma_create_qp(id, work.pd_of_cm, &init));
	return 0;
}

static int connect_ends(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	struct rdma_conn_param param = { .responder_resources = 64, .initiator_depth = 64, .retry_count = 7, .rnr_retry_count = 7 };

	inet_pton(AF_INET, address, &to.sin_addr);
	TRY("rdma_create_event_channel", work.events = rdma_create_event_channel());
	TRY("rdma_create_id", !rdma_create_id(work.events, &work.listening, NULL, RDMA_PS_TCP));
	TRY("rdma_bind_addr", !rdma_bind_addr(work.listening, (struct sockaddr *)&to));
	TRY("rdma_listen", !rdma_listen(work.listening, 4));
	TRY("rdma_create_id", !rdma_create_id(work.events, &work.client, NULL, RDMA_PS_TCP));
	TRY("rdma_resolve_addr", !rdma_resolve_addr(work.client, NULL, (struct sockaddr *)&to, 2000));
	if (take(RDMA_CM_EVENT_ADDR_RESOLVED, NULL))
		return -1;
	TRY("rdma_resolve_route", !rdma_resolve_route(work.client, 2000));
	if (take(RDMA_CM_EVENT_ROUTE_RESOLVED, NULL))
		return -1;
	TRY("ibv_alloc_pd", work.pd_of_cm = ibv_alloc_pd(work.client->verbs));
	TRY("ibv_create_cq", work.cq_of_cm = ibv_create_cq(work.client->verbs, 512, NULL, NULL, 0));
	TRY("ibv_reg_mr", work.mr_of_cm = ibv_reg_mr(work.pd_of_cm, memory, SIZE, IBV_ACCESS_LOCAL_WRITE));
	if (make_qp(work.client))
		return -1;
	TRY("rdma_connect", !rdma_connect(work.client, &param));
	if (take(RDMA_CM_EVENT_CONNECT_REQUEST, &work.server) || make_qp(work.server))
		return -1;
	TRY("rdma_accept", !rdma_accept(work.server, &param));
	return take(RDMA_CM_EVENT_ESTABLISHED, NULL) || take(RDMA_CM_EVENT_ESTABLISHED, NULL);
}

/* Sends a message to the other end, and polls for both completions. */
static int send_message(uint32_t length)
{
	struct ibv_sge from = { (uintptr_t)memory, length, work.mr_of_cm->lkey }, to = from;
	struct ibv_recv_wr receive = { .sg_list = &to, .num_sge = 1 }, *bad_receive;
	struct ibv_send_wr send = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad_send;
	double end = now() + LIMIT_S / 2;

	to.addr += SIZE / 2;
	TRY("ibv_post_recv", !ibv_post_recv(work.server->qp, &receive, &bad_receive));
	TRY("ibv_post_send", !ibv_post_send(work.client->qp, &send, &bad_send));
	for (int completed = 0; completed < 2;) {
		struct ibv_wc wc;
		int polled = ibv_poll_cq(work.cq_of_cm, 1, &wc);

		TRY("ibv_poll_cq", polled >= 0);
		errno = ETIMEDOUT;
		if (polled == 0 && now() > end)
			return note("ibv_poll_cq");
		if (polled == 1 && wc.status)
			return note(ibv_wc_status_str(wc.status));
		completed += polled;
	}
	return 0;
}

static int send_all(void)
{
	for (int each = 0; each < 8; each++)
		if (send_message(64) || send_message(SIZE / 2))
			return -1;
	TRY("rdma_disconnect", !rdma_disconnect(work.client));
	if (take(RDMA_CM_EVENT_DISCONNECTED, NULL))
		return -1;
	TRY("rdma_disconnect", !rdma_disconnect(work.server));
	return take(RDMA_CM_EVENT_DISCONNECTED, NULL);
}

/* Runs a call of the end, which must succeed the second time at the latest. */
#define END(object, call, condition)                                                     \
	do {                                                                             \
		if (object) {                                                            \
			errno = 0;                                                       \
			if (!(condition)) {                                              \
				note(call);                                              \
				MUST(condition);                                         \
			}                                                                \
			object = NULL;                                                   \
		}                                                                        \
	} while (0)

static void end_id(struct rdma_cm_id **id)
{
	if (*id && (*id)->qp)
		rdma_destroy_qp(*id);
	END(*id, "rdma_destroy_id", !rdma_destroy_id(*id));
}

static void close_all(void)
{
	end_id(&work.server);
	end_id(&work.client);
	end_id(&work.listening);
	if (work.events) {
		struct rdma_cm_event *event;

		/* A request may wait whose identifier the program has not seen. */
		while (poll(&(struct pollfd){ .fd = work.events->fd, .events = POLLIN }, 1, 0) == 1 &&
		       !rdma_get_cm_event(work.events, &event)) {
			struct rdma_cm_id *id = event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? event->id : NULL;

			rdma_ack_cm_event(event);
			end_id(&id);
		}
	}
	END(work.mr_of_cm, "ibv_dereg_mr", !ibv_dereg_mr(work.mr_of_cm));
	END(work.cq_of_cm, "ibv_destroy_cq", !ibv_destroy_cq(work.cq_of_cm));
	END(work.pd_of_cm, "ibv_dealloc_pd", !ibv_dealloc_pd(work.pd_of_cm));
	if (work.events)
		rdma_destroy_event_channel(work.events);
	work.events = NULL;
	END(work.qp, "ibv_destroy_qp", !ibv_destroy_qp(work.qp));
	END(work.srq, "ibv_destroy_srq", !ibv_destroy_srq(work.srq));
	END(work.cq, "ibv_destroy_cq", !ibv_destroy_cq(work.cq));
	END(work.completions, "ibv_destroy_comp_channel", !ibv_destroy_comp_channel(work.completions));
	END(work.mr, "ibv_dereg_mr", !ibv_dereg_mr(work.mr));
	END(work.pd, "ibv_dealloc_pd", !ibv_dealloc_pd(work.pd));
	END(work.context, "ibv_close_device", !ibv_close_device(work.context));
	if (work.list)
		ibv_free_device_list(work.list);
	work.list = NULL;
}

static int do_work(void)
{
	int failed = open_device() || connect_ends() || send_all();

	close_all();
	return failed;
}

static int descriptors(void)
{
	DIR *all = opendir("/proc/self/fd");
	int count = -3; /* ., .. and this one */

	while (readdir(all))
		count++;
	closedir(all);
	return count;
}

/* Does the work with the failure, then without. */
static void child(int log)
{
	struct failure failure = shared->failure;

	dup2(log, 2);
	setbuf(stdout, NULL);
	/* The C library's own memory must not need system calls, which would fail for it. */
	mallopt(M_ARENA_MAX, 1);
	mallopt(M_MMAP_THRESHOLD, 1 << 30);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	mallopt(M_TOP_PAD, 256 << 20);
	MUST(memory = aligned_alloc(4096, SIZE));
	memset(memory, 0, SIZE);
	/* The first call starts logging, which may end the process without memory. */
	ibv_free_device_list(ibv_get_device_list(NULL));
	install_filter();
	atomic_store(&shared->armed, 1);
	do_work();
	atomic_store(&shared->armed, 0);
	memset(&shared->failure, 0, sizeof(shared->failure));
	if (do_work()) {
		printf("the second work fails: %s\n", shared->failed);
		exit(1);
	}
	shared->failure = failure;
	/* Threads that were told to end may take a moment. */
	usleep(20000);
	shared->descriptors = descriptors();
	shared->threads = threads();
	shared->blocks = atomic_load(&shared->large);
	shared->is_done = 1;
	exit(0);
}

/*
 * Kills the watcher process of a child that has ended. It inherits the filter and the listener, so
 * a call of the watcher that no thread answers any more does not return.
 */
static void end_watchers(void)
{
	char path[64], list[256];
	int children;
	ssize_t length;
	pid_t pid;
	char *next;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
	children = open(path, O_RDONLY | O_CLOEXEC);
	if (children == -1)
		return;
	length = read(children, list, sizeof(list) - 1);
	close(children);
	list[length > 0 ? length : 0] = 0;
	for (next = list; (pid = (pid_t)strtol(next, &next, 10)) > 0;) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, __WALL);
	}
}

/* Runs a child. Returns its status, or -1 if it did not end in time. */
static int run_child(struct failure failure, int log)
{
	double end = now() + 3 * LIMIT_S;
	int status;
	pid_t pid;

	memset(shared, 0, sizeof(*shared));
	shared->failure = failure;
	MUST(!ftruncate(log, 0) && !lseek(log, 0, SEEK_SET));
	fflush(stdout);
	MUST((pid = fork()) >= 0);
	if (!pid)
		child(log);
	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (now() > end) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			status = -1;
			break;
		}
		usleep(500);
	}
	end_watchers();
	return status;
}

static char *text_of(int log)
{
	static char text[1 << 20];
	ssize_t length = pread(log, text, sizeof(text) - 1, 0);

	text[length > 0 ? length : 0] = 0;
	return text;
}

/* Returns why a case fails, or NULL. */
static const char *fault_of(int status, const struct shared *plain, int log)
{
	if (status == -1)
		return "the child does not end";
	if (WIFSIGNALED(status))
		return WTERMSIG(status) == SIGABRT ? "the child aborts" : "a signal ends the child";
	if (status || !shared->is_done)
		return "the child finds a fault";
	if (shared->failed[0] && !shared->failed_errno)
		return "the error has no number";
	/* pthread_create turns ENOMEM of mmap and mprotect into EAGAIN, which the call then returns. */
	if (strstr(shared->failed, "_") && !strstr(text_of(log), shared->failed) &&
	    !strstr(text_of(log), strerror(shared->failure.error)) &&
	    !strstr(text_of(log), strerror(shared->failed_errno)))
		return "no message names the call or its error";
	/* Fewer are right: without netlink, for example, a device works without its socket. */
	if (shared->descriptors > plain->descriptors)
		return "descriptors are left";
	if (shared->threads > plain->threads)
		return "threads are left";
	if (shared->blocks > plain->blocks)
		return "large blocks are left";
	return NULL;
}

int main(int argc, char **argv)
{
	int log = memfd_create("log", 0), total = 0, ran = 0, faults = 0, made = 0, failed = 0;
	const char *first = getenv("URXE_FAILURES_FIRST");
	static struct failure cases[COUNT * MOST_OF_KIND * 3];
	static struct shared plain;
	double started = now();
	int samples;

	MUST(argc == 3 && log >= 0);
	/* The watcher of a child that has ended becomes a child of this process. */
	MUST(!prctl(PR_SET_CHILD_SUBREAPER, 1));
	address = argv[1];
	samples = atoi(argv[2]);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	MUST(shared != MAP_FAILED);
	if (run_child((struct failure){ 0 }, log) || shared->failed[0]) {
		printf("without a failure: %s, errno %d\n%s", shared->failed, shared->failed_errno, text_of(log));
		return 1;
	}
	plain = *shared;
	for (int kind = 0; kind < COUNT; kind++)
		for (int number = 1; number <= plain.calls[kind] && number <= MOST_OF_KIND; number++)
			for (int each = 0; KINDS[kind].errors[each] != -1; each++)
				cases[total++] = (struct failure){ kind, number, KINDS[kind].errors[each] };
	if (first)
		samples = total;
	for (int each = 0; each < samples && each < total; each++) {
		int place = samples < total ? (int)((long)each * total / samples) : each;
		struct failure failure = cases[place];
		double begun = now();
		const char *fault;
		int status;

		if (first && place < atoi(first))
			continue;
		status = run_child(failure, log);
		fault = fault_of(status, &plain, log);
		ran++;
		made += shared->made;
		failed += shared->failed[0] != 0;
		if (first || fault)
			printf("case %d: %s %d fails with %d: %s, errno %d, %.1f s%s%s\n", place, KINDS[failure.kind].name,
			       failure.number, failure.error, shared->failed[0] ? shared->failed : "no call fails",
			       shared->failed_errno, now() - begun, fault ? ": " : "", fault ? fault : "");
		if (fault) {
			printf("%s", text_of(log));
			printf("%d descriptors, %d threads, %d large blocks; without a failure %d, %d, %d\n", shared->descriptors,
			       shared->threads, shared->blocks, plain.descriptors, plain.threads, plain.blocks);
			faults++;
		}
	}
	fprintf(stderr, "%d of %d cases in %.0f s, %d failures made, %d calls failed; "
		"URXE_FAILURES_FIRST=0 runs all\n", ran, total, now() - started, made, failed);
	if (faults) {
		printf("%d cases have faults; URXE_FAILURES_FIRST=N runs from case N\n", faults);
		return 1;
	}
	printf("all as expected\n");
	return 0;
}
