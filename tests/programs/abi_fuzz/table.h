/*
 * The fuzzer's random numbers, its table of live objects, and the check of each answer.
 *
 * Random numbers follow from the seed alone, so that a seed replays the calls. The answers also
 * depend on the moments at which packets arrive.
 */
#ifndef TABLE_H
#define TABLE_H

#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../linked.h"

#define ARENA	(64u << 10)
#define PLACES	12	/* live objects of a kind, at most */

enum kind { CONTEXT, PD, MR, CHANNEL, CQ, SRQ, QP, AH, MW, XRCD, DM, KINDS };

static struct {
	void *objects[KINDS][PLACES];
	int counts[KINDS];
} live;

static uint64_t seed_now;
static atomic_ulong calls_made, calls_accepted;
/* Each thread has its own numbers and its own call. */
static _Thread_local uint64_t random_state;
static _Thread_local unsigned long step_now;
static _Thread_local volatile const char *call_now = "none";
static unsigned char arena[ARENA] __attribute__((aligned(4096)));

static uint64_t random_64(void)
{
	uint64_t z = random_state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static unsigned int below(unsigned int bound)
{
	return random_64() % bound;
}

/* Returns a number that is mostly small, sometimes at a boundary, and sometimes anything. */
static uint64_t number(unsigned int usual)
{
	static const uint64_t edges[] = {
		0, 1, 2, 255, 256, 4096, 65535, 65536, 0xffffff, 1u << 20, 0x7fffffff, 0x80000000, 0xffffffff,
		(uint64_t)1 << 32, INT64_MAX, (uint64_t)1 << 63, UINT64_MAX,
	};

	switch (below(16)) {
	case 0: return edges[below(sizeof(edges) / sizeof(edges[0]))];
	case 1: return random_64();
	default: return below(usual + 1);
	}
}

/* Returns some of these flags, rarely with unknown ones. */
static unsigned int flags(unsigned int known)
{
	return below(24) ? random_64() & known : random_64();
}

static void fault(const char *what, long answer)
{
	printf("seed %llu, step %lu: %s: %s: %ld\n", (unsigned long long)seed_now, step_now, (const char *)call_now, what,
	       answer);
	fflush(stdout);
	_exit(1);
}

/* Checks an error. EIO is the answer of a verb that has panicked, and Linux's IP_MSFILTER answers ENOBUFS. */
static void check_error(int error)
{
	static const int documented[] = {
		EINVAL, ENOMEM, EBUSY, EOPNOTSUPP, EPERM, EFAULT, EAGAIN, EBADF, ENOENT, ENOSYS, EMSGSIZE, ENOSPC, EACCES,
		ERANGE, ETIMEDOUT, EADDRINUSE, EADDRNOTAVAIL, ENODEV, EPROTONOSUPPORT, ENODATA, E2BIG, EAFNOSUPPORT,
		ENOTCONN, EISCONN, ENETUNREACH, EHOSTUNREACH, EALREADY, EXDEV, EINTR, ECONNREFUSED, ECONNRESET,
		EINPROGRESS, ENOBUFS, ENOPROTOOPT, EDESTADDRREQ, EOVERFLOW, EDOM, ENOTSOCK, EMFILE, EEXIST,
	};

	for (size_t i = 0; i < sizeof(documented) / sizeof(documented[0]); i++)
		if (documented[i] == error)
			return;
	fault("undocumented error", error);
}

/* Checks the answer of a verb that returns an error number. */
static int answer(int returned)
{
	calls_made++;
	if (returned)
		check_error(returned < 0 ? (returned == -1 ? errno : -returned) : returned);
	else
		calls_accepted++;
	return returned;
}

/* Looks up a function that Debian 12's headers do not declare. */
static void *find_function(const char *name, const char *version)
{
	void *function = dlvsym(RTLD_DEFAULT, name, version);

	call_now = name;
	if (!function)
		fault("the library lacks the function", 0);
	return function;
}

#define FIND(type, name, version) ((type *)find_function(name, version))

#define CALL(verb) (call_now = #verb, errno = 0, answer(verb))

/* Begins the numbers of another thread of the seed. */
__attribute__((unused)) static void begin_thread(unsigned int number_of_thread)
{
	random_state = seed_now + ((uint64_t)number_of_thread << 32);
}

static void *pick(enum kind kind)
{
	return live.counts[kind] ? live.objects[kind][below(live.counts[kind])] : NULL;
}

static int is_full(enum kind kind)
{
	return live.counts[kind] == PLACES;
}

/* Keeps a new object. A pointer of NULL needs an error in errno. */
static void keep(enum kind kind, void *object)
{
	calls_made++;
	if (!object) {
		check_error(errno);
		return;
	}
	calls_accepted++;
	live.objects[kind][live.counts[kind]++] = object;
}

#define MAKE(kind, verb) (call_now = #verb, errno = 0, keep(kind, verb))

static void forget(enum kind kind, const void *object)
{
	for (int i = 0; i < live.counts[kind]; i++)
		if (live.objects[kind][i] == object) {
			live.objects[kind][i] = live.objects[kind][--live.counts[kind]];
			return;
		}
}

static int destroy(enum kind kind, void *object)
{
	int rc = EINVAL;

	call_now = "destroy";
	errno = 0;
	switch (kind) {
	case CONTEXT: rc = ibv_close_device(object); break;
	case PD: rc = ibv_dealloc_pd(object); break;
	case MR: rc = ibv_dereg_mr(object); break;
	case CHANNEL: rc = ibv_destroy_comp_channel(object); break;
	case CQ: rc = ibv_destroy_cq(object); break;
	case SRQ: rc = ibv_destroy_srq(object); break;
	case QP: rc = ibv_destroy_qp(object); break;
	case AH: rc = ibv_destroy_ah(object); break;
	case MW: rc = ibv_dealloc_mw(object); break;
	case XRCD: rc = ibv_close_xrcd(object); break;
	case DM: rc = ibv_free_dm(object); break;
	case KINDS: break;
	}
	if (!answer(rc))
		forget(kind, object);
	return rc;
}

#endif
