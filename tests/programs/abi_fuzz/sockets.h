/*
 * Random calls of rsockets, on descriptors of a shared table and on other numbers.
 *
 * One thread has sockets that do not sleep. Several threads also have sockets that sleep, and a
 * closer that shuts down and closes sockets, also while other threads sleep in them. A signal
 * interrupts the threads. At the end, the closing of all sockets must wake all sleepers.
 *
 * Not generated: sizes beyond the memory at an address on a connected socket, because the call
 * reads or writes there.
 */
#ifndef SOCKETS_H
#define SOCKETS_H

#include <fcntl.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include "addresses.h"

#define SOCKETS		12
#define SOCKET_STEPS	1500
#define SOCKET_THREADS	3
#define EPOLL_SETS	2
#define SET_EVENTS	64
/* Descriptors of the fuzzer, and numbers that `some_socket` returns. */
#define HIGHEST_NUMBER	65536

static atomic_int sockets[SOCKETS];
static atomic_int is_closing, may_sleep;
static atomic_ulong bytes_moved;
static int sets_of_sockets[EPOLL_SETS];

/* Checks the answer of a call that returns -1 with errno, or a number. */
static long number_or_minus_one(long returned)
{
	calls_made++;
	if (returned < -1)
		fault("a number below -1", returned);
	if (returned == -1)
		check_error(errno);
	else
		calls_accepted++;
	return returned;
}

#define RS(call) (call_now = #call, errno = 0, number_or_minus_one(call))

/* Returns a socket, or sometimes a number that is none. */
static int some_socket(void)
{
	if (below(30) == 0)
		return (int)number(20);
	return sockets[below(SOCKETS)];
}

static void keep_socket(int made)
{
	for (int i = 0; i < SOCKETS; i++) {
		int none = -1;

		if (atomic_compare_exchange_strong(&sockets[i], &none, made))
			return;
	}
	RS(rclose(made));
}

static void close_one(unsigned int place)
{
	int closed = atomic_exchange(&sockets[place], -1);

	if (closed != -1)
		RS(rclose(closed));
}

static void make_socket(void)
{
	int kind = below(4) ? SOCK_STREAM : SOCK_DGRAM, made;

	if (below(20) == 0)
		kind = (int)number(8);
	if (!may_sleep || below(2))
		kind |= SOCK_NONBLOCK;
	if (below(8) == 0)
		kind |= SOCK_CLOEXEC;
	made = RS(rsocket(below(12) ? AF_INET : below(2) ? AF_INET6 : (int)number(40), kind, below(20) ? 0 : (int)number(20)));
	if (made == -1)
		return;
	/* A kind with unknown bits may sleep. */
	if (!may_sleep)
		RS(rfcntl(made, F_SETFL, O_NONBLOCK));
	keep_socket(made);
}

/* Returns a length: of the address in most cases, and within its room. */
static socklen_t some_length(void)
{
	return below(12) ? sizeof(struct sockaddr_in) : below(2) ? sizeof(struct sockaddr_in6) : below(129);
}

static void listen_and_accept(int fd)
{
	union place from;
	socklen_t length = number(128);
	int made;

	switch (below(4)) {
	case 0: RS(rbind(fd, some_address(&from), some_length())); break;
	case 1: RS(rlisten(fd, (int)number(8))); break;
	default:
		made = RS(raccept(fd, below(2) ? &from.any : NULL, below(8) ? &length : NULL));
		if (made != -1) {
			if (!may_sleep)
				RS(rfcntl(made, F_SETFL, O_NONBLOCK));
			keep_socket(made);
		}
	}
}

/* Returns whether a call on the socket fails before it moves data. A thread may connect it meanwhile. */
static int moves_nothing(int fd)
{
	union place peer;
	socklen_t length = sizeof(peer);

	return !may_sleep && rgetpeername(fd, &peer.any, &length) == -1;
}

/* Fills a message of pieces of the arena. Hostile numbers and lengths are refused before any access. */
static struct msghdr some_message(int fd, struct iovec *pieces, union place *address)
{
	struct msghdr message = { .msg_iov = pieces, .msg_iovlen = below(12) ? below(8) : number(2000) };
	struct sockaddr *to = some_address(address);

	for (int i = 0; i < 2048; i++)
		pieces[i] = (struct iovec){ arena + below(ARENA / 2), below(12) ? below(200) : below(ARENA / 2) };
	/* The sum of the lengths is more than a call can return. */
	if (message.msg_iovlen > 2 && message.msg_iovlen < 2000 && below(6) == 0 && moves_nothing(fd))
		pieces[0].iov_len = pieces[1].iov_len = pieces[2].iov_len = SIZE_MAX - below(3000);
	if (below(2)) {
		message.msg_name = to;
		message.msg_namelen = to ? some_length() : 0;
	}
	if (below(20) == 0) {
		message.msg_control = arena;
		message.msg_controllen = below(64);
	}
	return message;
}

/* Returns a length within the arena, or one that no memory has. */
static size_t some_size(int fd)
{
	return below(16) || !moves_nothing(fd) ? below(ARENA / 2) : SIZE_MAX - below(4096);
}

static void count(long moved)
{
	if (moved > 0)
		bytes_moved += moved;
}

static void move_data(int fd)
{
	static _Thread_local struct iovec pieces[2048];
	union place address;
	socklen_t length = below(129);
	void *at = below(20) ? arena + below(ARENA / 2) : NULL;
	struct msghdr message = some_message(fd, pieces, &address);
	int pieces_count = below(20) ? (int)message.msg_iovlen : (int)number(8);
	int way = (below(8) ? 0 : MSG_PEEK) | (below(8) || may_sleep ? 0 : MSG_WAITALL) | (below(20) ? 0 : (int)random_64());

	if (pieces_count > 2048)
		pieces_count = below(2) ? -1 : 2048;
	switch (below(12)) {
	case 0: count(RS(rsend(fd, at, some_size(fd), way))); break;
	case 1: count(RS(rrecv(fd, at, some_size(fd), way))); break;
	case 2: count(RS(rsendto(fd, at, some_size(fd), way, some_address(&address), some_length()))); break;
	case 3: count(RS(rrecvfrom(fd, at, some_size(fd), way, below(2) ? &address.any : NULL, below(8) ? &length : NULL))); break;
	case 4: count(RS(rsendmsg(fd, below(20) ? &message : NULL, way))); break;
	case 5:
		if (message.msg_name)
			message.msg_name = &address;
		count(RS(rrecvmsg(fd, below(20) ? &message : NULL, way)));
		break;
	case 6: count(RS(rread(fd, at, some_size(fd)))); break;
	case 7: count(RS(rwrite(fd, at, some_size(fd)))); break;
	case 8: count(RS(rreadv(fd, below(20) ? pieces : NULL, pieces_count))); break;
	case 9: count(RS(rwritev(fd, below(20) ? pieces : NULL, pieces_count))); break;
	default: count(RS(rsend(fd, arena, 1 + below(4096), 0))); break;
	}
}

static void wait_for_sockets(void)
{
	struct pollfd fds[16];
	struct timeval time = { 0, below(2000) };
	fd_set in, out, except;
	int highest = 0, fd;

	for (int i = 0; i < 16; i++)
		fds[i] = (struct pollfd){ some_socket(), below(8) ? POLLIN | POLLOUT : (short)random_64(), 0 };
	switch (below(8)) {
	case 0:
		FD_ZERO(&in);
		FD_ZERO(&out);
		FD_ZERO(&except);
		for (int i = 0; i < 6; i++) {
			fd = sockets[below(SOCKETS)];
			if (fd < 0 || fd >= FD_SETSIZE)
				continue;
			FD_SET(fd, below(2) ? &in : below(2) ? &out : &except);
			highest = fd > highest ? fd : highest;
		}
		if (below(8) == 0)
			time = (struct timeval){ -(time_t)below(3), random_64() % 3000000 };
		RS(rselect(below(12) ? highest + 1 : (int)number(2000), &in, below(2) ? &out : NULL, below(2) ? &except : NULL, &time));
		break;
	case 1: RS(rpoll(fds, ULONG_MAX - below(100), 0)); break;
	case 2: RS(rpoll(NULL, below(4), 0)); break;
	default: RS(rpoll(fds, below(16), below(3))); break;
	}
}

typedef int create_set_function(int);
typedef int control_set_function(int, int, int, struct epoll_event *);
typedef int wait_set_function(int, struct epoll_event *, int, int);

/* Changes a set of rsockets, or waits for its members (rdma-core 65). */
static void use_set(void)
{
	struct epoll_event event = { below(8) ? EPOLLIN | EPOLLOUT : (uint32_t)random_64(), { .u64 = random_64() } };
	struct epoll_event found[SET_EVENTS];
	int set = below(20) ? sets_of_sockets[below(EPOLL_SETS)] : some_socket();
	int fd = below(20) ? some_socket() : sets_of_sockets[below(EPOLL_SETS)];
	int most = below(12) ? 1 + (int)below(SET_EVENTS) : -(int)below(3), count;

	/* `close_sets` removes members up to this number. */
	if (fd > HIGHEST_NUMBER)
		return;
	if (below(3)) {
		control_set_function *control = FIND(control_set_function, "repoll_ctl", "RDMACM_1.5");

		CALL(control(set, below(12) ? 1 + (int)below(3) : (int)number(8), fd, below(12) ? &event : NULL));
		return;
	}
	count = RS(FIND(wait_set_function, "repoll_wait", "RDMACM_1.5")(set, below(20) ? found : NULL, most, below(3)));
	if (count > 0 && count > most)
		fault("more events than places", count);
}

static void make_sets(void)
{
	create_set_function *create = FIND(create_set_function, "repoll_create", "RDMACM_1.5");

	for (int i = 0; i < EPOLL_SETS; i++)
		MUST((sets_of_sockets[i] = create(below(2) ? 0 : (int)random_64())) >= 0);
}

/* A set with members stays open. Members may be closed already. */
static void close_sets(void)
{
	control_set_function *control = FIND(control_set_function, "repoll_ctl", "RDMACM_1.5");

	for (int i = 0; i < EPOLL_SETS; i++) {
		for (int fd = 0; fd <= HIGHEST_NUMBER; fd++)
			control(sets_of_sockets[i], EPOLL_CTL_DEL, fd, NULL);
		call_now = "rclose of a set";
		if (rclose(sets_of_sockets[i]))
			fault("the set does not close", errno);
	}
}

static void change_options(int fd)
{
	static const int levels[] = { SOL_SOCKET, IPPROTO_TCP, IPPROTO_IP, IPPROTO_IPV6, SOL_RDMA };
	unsigned char value[256];
	socklen_t length = below(3) ? 4 : below(256);
	int level = below(12) ? levels[below(5)] : (int)random_64(), name = (int)number(70), large = number(100000);

	for (size_t i = 0; i < sizeof(value); i++)
		value[i] = below(3) ? below(2) : random_64();
	if (below(2))
		memcpy(value, &large, sizeof(large));
	/* An option of the system's socket of a datagram rsocket may hold data back or name other devices. */
	if (level == SOL_SOCKET && (name == SO_BINDTODEVICE || name == SO_ATTACH_FILTER || name == SO_ATTACH_BPF))
		return;
	switch (below(4)) {
	case 0: RS(rgetsockopt(fd, level, name, below(20) ? value : NULL, below(20) ? &length : NULL)); break;
	case 1: RS(rsetsockopt(fd, SOL_RDMA, below(6), value, 4)); break;
	case 2: RS(rsetsockopt(fd, SOL_SOCKET, below(2) ? SO_RCVBUF : SO_SNDBUF, &large, 4)); break;
	default: RS(rsetsockopt(fd, level, name, below(20) ? value : NULL, length)); break;
	}
}

static void read_socket(int fd)
{
	union place address;
	socklen_t length = below(129);
	int status = (int)random_64() | (may_sleep ? 0 : O_NONBLOCK);

	switch (below(5)) {
	case 0: RS(rgetsockname(fd, below(8) ? &address.any : NULL, below(8) ? &length : NULL)); break;
	case 1: RS(rgetpeername(fd, below(8) ? &address.any : NULL, below(8) ? &length : NULL)); break;
	case 2: RS(rfcntl(fd, F_SETFL, status)); break;
	case 3: calls_made++; rfcntl(fd, below(2) ? F_GETFL : F_GETFD); break;
	/* Commands that are none of the four above. */
	default: RS(rfcntl(fd, F_SETFL + 1 + below(2000), (long)random_64())); break;
	}
}

/* Memory that the peer writes. The arena is the fuzzer's, so that no other memory changes. */
static void map_memory(int fd)
{
	size_t at = below(ARENA / 2);
	off_t offset = below(3) ? -1 : (off_t)number(ARENA);

	switch (below(4)) {
	case 0: RS(riomap(fd, arena + at, 1 + below(ARENA / 2), below(8) ? PROT_WRITE : (int)number(8), 0, offset)); break;
	case 1: RS(riomap(fd, arena + at, SIZE_MAX - below(4096), PROT_WRITE, 0, offset)); break;
	case 2: RS(riounmap(fd, arena + at, below(ARENA / 2))); break;
	default: RS((long)riowrite(fd, arena + at, some_size(fd), below(2) ? (off_t)(uintptr_t)arena : (off_t)number(ARENA), 0)); break;
	}
}

static void socket_step(void)
{
	union place to;
	unsigned int dice = below(100);
	int fd = some_socket();

	step_now++;
	if (dice < 12)
		make_socket();
	else if (dice < 26)
		listen_and_accept(fd);
	else if (dice < 36)
		RS(rconnect(fd, some_address(&to), some_length()));
	else if (dice < 70)
		move_data(fd);
	else if (dice < 76)
		below(2) ? wait_for_sockets() : use_set();
	else if (dice < 83)
		change_options(fd);
	else if (dice < 88)
		read_socket(fd);
	else if (dice < 93)
		map_memory(fd);
	else if (dice < 96)
		RS(rshutdown(fd, below(12) ? (int)below(3) : (int)number(5)));
	else
		close_one(below(SOCKETS));
}

static void *socket_thread(void *number_of_thread)
{
	begin_thread((uintptr_t)number_of_thread);
	for (int i = 0; i < SOCKET_STEPS && !is_closing; i++)
		socket_step();
	return NULL;
}

static void close_all_sockets(void)
{
	for (unsigned int i = 0; i < SOCKETS; i++)
		close_one(i);
}

/* Verifies that two new sockets carry every byte. */
static void verify_sockets(void)
{
	static unsigned char from[8192], to[8192];
	union place place = { .v4 = { .sin_family = AF_INET, .sin_addr = own_address } };
	socklen_t length = sizeof(place.v4);
	int listener = rsocket(AF_INET, SOCK_STREAM, 0), active = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), passive;
	struct pollfd ready = { active, POLLOUT, 0 };
	size_t got = 0;

	call_now = "verification of rsockets";
	place.v4.sin_port = htons(FIRST_PORT + PORTS + 1);
	MUST(listener >= 0 && active >= 0 && !rbind(listener, &place.any, length) && !rlisten(listener, 1));
	MUST(!rconnect(active, &place.any, length) || errno == EINPROGRESS);
	MUST((passive = raccept(listener, NULL, NULL)) >= 0);
	MUST(rpoll(&ready, 1, 50000) == 1 && ready.revents == POLLOUT);
	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = random_64();
	MUST(rsend(active, from, sizeof(from), 0) == sizeof(from));
	while (got < sizeof(to)) {
		ssize_t more = rrecv(passive, to + got, sizeof(to) - got, 0);

		MUST(more > 0);
		got += more;
	}
	MUST(!memcmp(from, to, sizeof(from)));
	MUST(!rclose(active) && !rclose(passive) && !rclose(listener));
}

/* A round of one thread whose calls do not sleep, or of several whose calls may. */
static void run_sockets(unsigned int round, unsigned int count)
{
	pthread_t made[SOCKET_THREADS];
	uintptr_t first = (uintptr_t)SOCKET_THREADS * round + 1;

	for (int i = 0; i < SOCKETS; i++)
		sockets[i] = -1;
	has_groups = is_closing = 0;
	may_sleep = count > 1;
	make_sets();
	if (count == 1) {
		socket_thread((void *)first);
	} else {
		for (unsigned int i = 0; i < count; i++)
			MUST(!pthread_create(&made[i], NULL, socket_thread, (void *)(first + i)));
		/* Sleepers are woken by the closing of their socket, or by a signal. */
		for (int i = 0; i < 100; i++) {
			struct timespec pause = { 0, below(4000000) };

			nanosleep(&pause, NULL);
			step_now++;
			if (below(2))
				close_one(below(SOCKETS));
			else
				RS(rshutdown(some_socket(), below(3)));
			if (below(4) == 0)
				pthread_kill(made[below(count)], SIGUSR1);
		}
		is_closing = 1;
		/* A thread may make another socket before it ends. */
		for (unsigned int i = 0; i < count; i++)
			while (pthread_tryjoin_np(made[i], NULL) == EBUSY) {
				close_all_sockets();
				usleep(1000);
			}
	}
	close_all_sockets();
	close_sets();
	verify_sockets();
}

#endif
