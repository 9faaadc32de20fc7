/* A library to preload, whose wall clock jumps by up to an hour, forwards and backwards, every
 * seven seconds. The monotonic clock is the system's. All processes see the same jumps. */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time)
{
	struct timespec passed;
	int result = syscall(SYS_clock_gettime, clock, time);

	if (result || clock != CLOCK_REALTIME)
		return result;
	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &passed);
	uint64_t jump = passed.tv_sec / 7;
	jump = (jump ^ 0x5deece66d) * 0x9e3779b97f4a7c15;
	time->tv_sec += (int64_t)(jump >> 33) % 7200 - 3600;
	return 0;
}
