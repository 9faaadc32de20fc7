/*
 * Helpers of the programs in this folder: checks that end the program with their line number, the
 * number of threads, and the first device.
 */
#ifndef CHECK_H
#define CHECK_H

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>

#define MUST(condition)                                                                                          \
	do {                                                                                                     \
		if (!(condition)) {                                                                              \
			printf("line %d: %s (errno %d, %s)\n", __LINE__, #condition, errno, strerror(errno));    \
			exit(1);                                                                                 \
		}                                                                                                \
	} while (0)

__attribute__((unused)) static int threads(void)
{
	DIR *tasks = opendir("/proc/self/task");
	int count = -2; /* . and .. */

	while (readdir(tasks))
		count++;
	closedir(tasks);
	return count;
}

/* Opens the first device. */
__attribute__((unused)) static struct ibv_context *open_first(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *opened;

	MUST(list && list[0]);
	opened = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	MUST(opened);
	return opened;
}

#endif
