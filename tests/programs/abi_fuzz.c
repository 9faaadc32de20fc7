/*
 * Random sequences of calls with valid, boundary and hostile arguments:
 *
 *	abi_fuzz SEED STEPS		verbs of one thread, in rounds of 2000 steps
 *	abi_fuzz SEED ROUNDS threads	threads post, poll and sleep while others destroy
 *	abi_fuzz SEED ROUNDS cm		librdmacm, in one thread and in two, in rounds of 3000 steps
 *	abi_fuzz SEED ROUNDS sockets	rsockets, in one thread and in three
 *
 * Each answer must be a documented error, and nothing may crash or hang. After each round new
 * objects must work: a WRITE and a READ carry every byte, identifiers connect, rsockets carry every
 * byte. Threads and descriptors must not grow from round to round. A fault is printed with its seed
 * and step. The same arguments repeat the calls of each thread; the order of calls of different
 * threads may differ. `work.h`, `connections.h` and `sockets.h` list the calls that are not made,
 * because the libraries define no answer.
 */
#define _GNU_SOURCE
/* One second, because AddressSanitizer and a busy machine delay acknowledgements. */
#ifndef LINK_TIMEOUT
#define LINK_TIMEOUT 18
#endif
#include "abi_fuzz/connections.h"
#include "abi_fuzz/crowd.h"
#include "abi_fuzz/sockets.h"
#include "abi_fuzz/threads.h"
#include "abi_fuzz/work.h"

#define ROUND	2000	/* steps */
#ifndef HANG
#define HANG	60	/* seconds */
#endif

static void hung(int signal)
{
	(void)signal;
	fault("no return within seconds", HANG);
}

/* A thread that receives may keep the socket of a group until the next datagram of a group. */
static int counts_sockets = 1;

static int descriptors(void)
{
	char target[128];
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;
	int count = -3; /* . and .. and this one */

	while ((entry = readdir(folder))) {
		ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target));

		count += counts_sockets || length < 7 || memcmp(target, "socket:", 7);
	}
	closedir(folder);
	return count;
}

/* Prints the descriptors and their targets. */
static void print_descriptors(const char *when)
{
	char name[32], target[128];

	for (int fd = 3; fd < 1024; fd++) {
		snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
		ssize_t length = readlink(name, target, sizeof(target) - 1);

		if (length > 0)
			printf("%s: %d %.*s\n", when, fd, (int)length, target);
	}
}

static long resident_pages(void)
{
	long all, resident;
	FILE *file = fopen("/proc/self/statm", "r");

	MUST(file && fscanf(file, "%ld %ld", &all, &resident) == 2);
	fclose(file);
	return resident;
}

/* Destroys in an order that fits all uses. Each object must go. */
static void destroy_all(void)
{
	static const enum kind order[] = { QP, MW, SRQ, CQ, CHANNEL, AH, MR, DM, XRCD, PD };

	detach_all();
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
		while (live.counts[order[i]]) {
			int rc = destroy(order[i], live.objects[order[i]][0]);

			if (rc)
				fault("cannot destroy an object of kind", order[i]);
		}
}

/* Checks that a round has left nothing. The first `warm` rounds make what stays. */
static void check_growth(unsigned long round, unsigned long warm, int left)
{
	static int descriptors_before, threads_before;

	if (round < warm) {
		descriptors_before = descriptors() - left;
		threads_before = threads();
		if (getenv("ABI_FUZZ_DESCRIPTORS"))
			print_descriptors("before");
		return;
	}
	/* A thread that has nothing to do may end later. */
	for (int i = 0; i < 2000 && (threads() > threads_before || descriptors() - left > descriptors_before); i++)
		usleep(1000);
	if (descriptors() - left > descriptors_before) {
		print_descriptors("now");
		fault("descriptors grow", descriptors());
	}
	if (threads() > threads_before)
		fault("threads grow", threads());
}

static void sequences(unsigned long steps)
{
	int left = 0;

	prepare_ground();
	for (unsigned long done = 0; done < steps; done += ROUND) {
		memset(&live, 0, sizeof(live));
		attached_count = 0;
		keep(CONTEXT, open_first());
		keep(CONTEXT, open_first());
		keep(PD, ibv_alloc_pd(live.objects[CONTEXT][0]));
		keep(PD, ibv_alloc_pd(live.objects[CONTEXT][1]));
		for (unsigned int i = 0; i < ROUND; i++, step_now++)
			one_step();
		alarm(HANG);
		verify_device(open_first());
		/* Objects of a context also end with it. */
		if (below(2))
			destroy_all();
		/* A channel keeps its two descriptors until it is destroyed, as in libibverbs. */
		left += 2 * live.counts[CHANNEL];
		for (int i = 0; i < 2; i++)
			CALL(ibv_close_device(live.objects[CONTEXT][i]));
		/* The regions that were left ended with their context. */
		live.counts[MR] = 0;
		free_buffers();
		check_growth(done, 1, left);
	}
}

static void rounds(unsigned long amount, const char *mode)
{
	for (unsigned int i = 0; i < amount; i++) {
		alarm(HANG);
		if (!strcmp(mode, "cm")) {
			counts_sockets = 0;
			run_connections(i, 1 + i % 2);
		} else if (!strcmp(mode, "sockets")) {
			run_sockets(i, i % 2 ? SOCKET_THREADS : 1);
		} else {
			run_threads();
			run_crowd(i);
			run_sleepers();
		}
		check_growth(i, 2, 0);
	}
}

int main(int argc, char **argv)
{
	unsigned long amount = argc > 2 ? strtoul(argv[2], NULL, 0) : 10000;
	long pages;

	seed_now = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	random_state = seed_now;
	signal(SIGALRM, hung);
	catch_signals();
	find_own_address();
	pages = resident_pages();
	alarm(HANG);
	if (argc > 3)
		rounds(amount, argv[3]);
	else
		sequences(amount);
	/* AddressSanitizer keeps freed memory, so it raises the limit. */
	if (resident_pages() - pages > (getenv("ASAN_OPTIONS") ? 200000 : 50000))
		fault("resident pages", resident_pages());
	fprintf(stderr, "seed %llu: %lu calls, %lu accepted, %lu established, %lu bytes\n", (unsigned long long)seed_now,
		calls_made, calls_accepted, established, bytes_moved);
	puts("all as expected");
	return 0;
}
