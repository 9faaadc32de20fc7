/*
 * The calls whose answers abi_fuzz found wrong, each in the shortest form. The program is compiled
 * against Debian's headers, linked with -libverbs and -lrdmacm, and does not depend on urxe.
 *
 *	abi_findings ADDRESS	an address of this host's RDMA device
 *
 * It prints the line of the first failed check.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "check.h"

#define FAILS(call, error) MUST((errno = 0, (call) == -1 && errno == (error)))

/* The length of a registered region: 1 MiB. */
#define REGISTERED (1 << 20)

static struct sockaddr_in own;
static char buffer[4096];

static struct sockaddr *with_port(int port)
{
	static struct sockaddr_in place;

	place = own;
	place.sin_port = htons(port);
	return (struct sockaddr *)&place;
}

static int descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;

	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

/* Queues that a program leaves behind keep no descriptor of the device. */
static void left_queues(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	int before = descriptors();

	for (int i = 0; i < 3; i++) {
		struct ibv_context *context = open_first();
		struct ibv_pd *pd = ibv_alloc_pd(context);

		MUST(pd && ibv_create_cq(context, 4, NULL, NULL, 0) && ibv_create_srq(pd, &init));
		MUST(!ibv_close_device(context));
	}
	MUST(descriptors() == before);
}

/* A channel may be destroyed after its context, and waits for no event then. */
static void late_channel(void)
{
	struct ibv_context *context = open_first();
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *its;

	MUST(channel && !ibv_close_device(context));
	FAILS(ibv_get_cq_event(channel, &cq, &its), EINVAL);
	FAILS(ibv_get_async_event(context, &event), EINVAL);
	MUST(!ibv_destroy_comp_channel(channel));
	MUST(ibv_destroy_comp_channel(channel) == EINVAL);
}

static atomic_int is_over;

static void *wait_for_completion(void *channel)
{
	struct ibv_cq *cq;
	void *its;

	ibv_get_cq_event(channel, &cq, &its);
	is_over = 1;
	return NULL;
}

static void nothing(int signal)
{
	(void)signal;
}

/* A thread that waits touches nothing of a device that another thread closes. */
static void closed_during_sleep(void)
{
	struct sigaction action = { .sa_handler = nothing };

	MUST(!sigaction(SIGUSR1, &action, NULL));
	/* The thread first receives packets itself, and sleeps after 50 ms. */
	for (int ms = 10; ms <= 130; ms += 60)
		for (int destroys = 0; destroys < 2; destroys++) {
			struct ibv_context *context = open_first();
			struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
			pthread_t thread;

			is_over = 0;
			MUST(!pthread_create(&thread, NULL, wait_for_completion, channel));
			usleep(ms * 1000);
			if (destroys)
				MUST(!ibv_destroy_comp_channel(channel));
			MUST(!ibv_close_device(context));
			while (!is_over) {
				pthread_kill(thread, SIGUSR1);
				usleep(1000);
			}
			MUST(!pthread_join(thread, NULL));
			if (!destroys)
				MUST(!ibv_destroy_comp_channel(channel));
		}
}

/* Lengths that no memory has end no process: the socket is not connected. */
static void lengths(void)
{
	int fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	struct iovec pieces[3] = { { buffer, SSIZE_MAX }, { buffer, SSIZE_MAX }, { buffer, 4 } };
	struct msghdr message = { .msg_iov = pieces, .msg_iovlen = 3 };
	struct pollfd one = { fd, POLLIN, 0 };

	MUST(fd >= 0);
	FAILS(rrecv(fd, buffer, SIZE_MAX, 0), ENOTCONN);
	FAILS(rread(fd, buffer, SIZE_MAX), ENOTCONN);
	FAILS(rrecvfrom(fd, buffer, SIZE_MAX, 0, NULL, NULL), ENOTCONN);
	FAILS(rsend(fd, buffer, SIZE_MAX, 0), ENOTCONN);
	FAILS(rsendto(fd, buffer, SIZE_MAX, 0, NULL, 0), ENOTCONN);
	FAILS(rwrite(fd, buffer, SIZE_MAX), ENOTCONN);
	FAILS((ssize_t)riowrite(fd, buffer, SIZE_MAX, 0, 0), ENOTCONN);
	/* As readv(2) and poll(2). */
	FAILS(rreadv(fd, pieces, 3), EINVAL);
	FAILS(rwritev(fd, pieces, 2), EINVAL);
	FAILS(rsendmsg(fd, &message, 0), EINVAL);
	FAILS(rrecvmsg(fd, &message, 0), EINVAL);
	FAILS(rpoll(&one, SIZE_MAX, 0), EINVAL);
	MUST(!rclose(fd));
}

static void lengths_of_identifiers(void)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };
	struct rdma_addrinfo info = {
		.ai_flags = RAI_PASSIVE, .ai_family = AF_INET, .ai_qp_type = IBV_QPT_RC, .ai_port_space = RDMA_PS_TCP,
		.ai_src_addr = with_port(17311), .ai_src_len = sizeof(own), .ai_connect = buffer,
	};
	struct rdma_cm_id *id;

	MUST(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	FAILS(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, buffer, SIZE_MAX), EINVAL);
	MUST(!rdma_destroy_id(id));
	info.ai_connect_len = SIZE_MAX;
	FAILS(rdma_create_ep(&id, &info, NULL, &init), EINVAL);
	info.ai_connect_len = 4;
	MUST(!rdma_create_ep(&id, &info, NULL, &init));
	rdma_destroy_ep(id);
}

/* A synchronous identifier itself acknowledges the event of a group that it leaves. */
static void synchronous_group(void)
{
	struct sockaddr_in group = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0xef010207) };
	struct rdma_cm_id *id;

	MUST(!rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP));
	MUST(!rdma_bind_addr(id, with_port(0)));
	MUST(!rdma_join_multicast(id, (struct sockaddr *)&group, NULL));
	MUST(!rdma_leave_multicast(id, (struct sockaddr *)&group));
	MUST(!rdma_destroy_id(id));
}

/* A socket that does not sleep is not connected yet, because its listener drops the request. */
static void mapping_without_connection(void)
{
	int fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	struct rdma_cm_id *listener;
	struct rdma_event_channel *channel = rdma_create_event_channel();

	/* This listener answers no request. */
	MUST(channel && !rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
	MUST(!rdma_bind_addr(listener, with_port(17312)) && !rdma_listen(listener, 1));
	FAILS(rconnect(fd, with_port(17312), sizeof(own)), EINPROGRESS);
	FAILS(riomap(fd, buffer, sizeof(buffer), PROT_WRITE, 0, -1), EAGAIN);
	MUST(!rclose(fd) && !rdma_destroy_id(listener));
	rdma_destroy_event_channel(channel);
}

static void *receive(void *fd)
{
	char byte;

	FAILS(rrecv(*(int *)fd, &byte, 1, 0), EBADF);
	is_over = 1;
	return NULL;
}

static void *wait_for_datagram(void *fd)
{
	struct pollfd one = { *(int *)fd, POLLIN, 0 };

	MUST(rpoll(&one, 1, -1) == 1 && one.revents == POLLNVAL);
	is_over = 1;
	return NULL;
}

/* The closing of a datagram socket wakes threads that sleep in it. */
static void closed_datagram_socket(void)
{
	void *(*const sleeps[])(void *) = { receive, wait_for_datagram };

	for (int i = 0; i < 2; i++) {
		int fd = rsocket(AF_INET, SOCK_DGRAM, 0);
		pthread_t thread;

		is_over = 0;
		MUST(fd >= 0 && !rbind(fd, with_port(0), sizeof(own)));
		MUST(!pthread_create(&thread, NULL, sleeps[i], &fd));
		usleep(50000);
		MUST(!is_over && !rclose(fd) && !pthread_join(thread, NULL));
	}
}

/* An identifier reads nothing of a protection domain that is gone. */
static void gone_domain(void)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };
	struct rdma_cm_id *id;
	struct ibv_pd *pd;

	MUST(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) && !rdma_bind_addr(id, with_port(0)));
	MUST((pd = ibv_alloc_pd(id->verbs)) && !ibv_dealloc_pd(pd));
	FAILS(rdma_create_qp(id, pd, &init), EINVAL);
	MUST(!rdma_destroy_id(id));
}

static struct ibv_pd *shared_pd;
/* The round of the two threads, and that of the last deallocation: negative if it failed. */
static atomic_int begun, deallocated;

/* Deallocates a domain in each round while the other thread makes an object in it. */
static void *deallocate(void *rounds)
{
	for (int round = 1; round <= *(int *)rounds; round++) {
		while (begun < round)
			sched_yield();
		/* Another moment of the other thread's call in each round. */
		for (volatile int wait = round % 256; wait > 0; wait--)
			;
		deallocated = ibv_dealloc_pd(shared_pd) ? -round : round;
	}
	return NULL;
}

/*
 * One thread deallocates a domain. The other makes a region or a window in the domain, or moves a
 * region there. One of them fails, and the new object has the context of the domain.
 */
static void deallocation_during_registration(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *own_pd = ibv_alloc_pd(context);
	int rounds = 600, flags = MAP_PRIVATE | MAP_ANONYMOUS, access = IBV_ACCESS_LOCAL_WRITE;
	void *memory = mmap(NULL, REGISTERED, PROT_READ | PROT_WRITE, flags, -1, 0);
	pthread_t thread;

	MUST(memory != MAP_FAILED && own_pd);
	MUST(!pthread_create(&thread, NULL, deallocate, &rounds));
	for (int round = 1; round <= rounds; round++) {
		struct ibv_mr *mr = NULL, *moved = NULL;
		struct ibv_mw *mw = NULL;
		int change = IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_TRANSLATION, result = -1;

		MUST((shared_pd = ibv_alloc_pd(context)));
		if (round % 3 == 2)
			MUST((moved = ibv_reg_mr(own_pd, memory, REGISTERED, access)));
		/* The registration brings the pages back, which takes most of its time. */
		MUST(!madvise(memory, REGISTERED, MADV_DONTNEED));
		begun = round;
		if (round % 3 == 0)
			mr = ibv_reg_mr(shared_pd, memory, REGISTERED, access);
		else if (round % 3 == 1)
			mw = ibv_alloc_mw(shared_pd, IBV_MW_TYPE_1);
		else
			result = ibv_rereg_mr(moved, change, shared_pd, memory, REGISTERED, 0);
		while (abs(deallocated) != round)
			sched_yield();
		MUST((mr || mw || !result) == (deallocated < 0));
		MUST(!mr || (mr->context == context && !ibv_dereg_mr(mr)));
		MUST(!mw || (mw->context == context && !ibv_dealloc_mw(mw)));
		MUST(!moved || (moved->pd == (result ? own_pd : shared_pd) && !ibv_dereg_mr(moved)));
		MUST(deallocated > 0 || !ibv_dealloc_pd(shared_pd));
	}
	MUST(!pthread_join(thread, NULL) && !ibv_dealloc_pd(own_pd) && !ibv_close_device(context));
	munmap(memory, REGISTERED);
}

/* A call without a place for the request takes no request. */
static void request_without_place(void)
{
	struct rdma_cm_id *listener;

	MUST(!rdma_create_id(NULL, &listener, NULL, RDMA_PS_TCP));
	MUST(!rdma_bind_addr(listener, with_port(17313)) && !rdma_listen(listener, 1));
	FAILS(rdma_get_request(listener, NULL), EINVAL);
	MUST(!rdma_destroy_id(listener));
}

int main(int argc, char **argv)
{
	MUST(argc == 2 && inet_pton(AF_INET, argv[1], &own.sin_addr) == 1);
	own.sin_family = AF_INET;
	setvbuf(stdout, NULL, _IOLBF, 0);
	left_queues();
	late_channel();
	closed_during_sleep();
	lengths();
	lengths_of_identifiers();
	synchronous_group();
	mapping_without_connection();
	closed_datagram_socket();
	gone_domain();
	deallocation_during_registration();
	request_without_place();
	puts("all as expected");
	return 0;
}
