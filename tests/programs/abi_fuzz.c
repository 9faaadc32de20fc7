/*
 * Random sequences of verbs with valid, boundary and hostile arguments:
 *
 *	abi_fuzz SEED STEPS		calls of one thread, in rounds of 2000 steps
 *	abi_fuzz SEED ROUNDS threads	threads post, poll and sleep while others destroy
 *
 * Each answer must be a documented error, nothing may crash or hang, and after each round a WRITE
 * and a READ between two new queue pairs must carry every byte. Threads and descriptors must not
 * grow from round to round. A fault is printed with its seed and step. The same arguments repeat
 * the calls. `work.h` lists the calls that are not made, because libibverbs defines no answer.
 */
#define _GNU_SOURCE
/* One second, because AddressSanitizer and a busy machine delay acknowledgements. */
#define LINK_TIMEOUT 18
#include "abi_fuzz/threads.h"
#include "abi_fuzz/work.h"

#define ROUND	2000	/* steps */
#define HANG	60	/* seconds */

static void hung(int signal)
{
	(void)signal;
	fault("no return within a minute", HANG);
}

static int descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = -3; /* . and .. and this one */

	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
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

static void sequences(unsigned long steps)
{
	int descriptors_before = 0, threads_before = 0, left = 0;

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
		/* Queues that are left keep up to two descriptors of the engine. */
		left += live.counts[CQ] || live.counts[SRQ] ? 2 : 0;
		for (int i = 0; i < 2; i++)
			CALL(ibv_close_device(live.objects[CONTEXT][i]));
		if (done == 0) {
			descriptors_before = descriptors() - left;
			threads_before = threads();
		}
		if (descriptors() - left > descriptors_before)
			fault("descriptors grow", descriptors());
		if (threads() > threads_before)
			fault("threads grow", threads());
	}
}

int main(int argc, char **argv)
{
	unsigned long amount = argc > 2 ? strtoul(argv[2], NULL, 0) : 10000;
	long pages;

	seed_now = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	random_state = seed_now;
	signal(SIGALRM, hung);
	alarm(HANG);
	pages = resident_pages();
	if (argc > 3)
		for (unsigned long i = 0; i < amount; i++) {
			alarm(HANG);
			run_threads();
		}
	else
		sequences(amount);
	/* AddressSanitizer keeps freed memory, so it raises the limit. */
	if (resident_pages() - pages > (getenv("ASAN_OPTIONS") ? 200000 : 50000))
		fault("resident pages", resident_pages());
	fprintf(stderr, "seed %llu: %lu calls, %lu accepted\n", (unsigned long long)seed_now, calls_made, calls_accepted);
	puts("all as expected");
	return 0;
}
