/*
 * What the programs of this folder share: checks that end the program and tell where, and how many threads there are.
 */
#ifndef CHECK_H
#define CHECK_H

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                                                          \
	do {                                                                                                     \
		if (!(condition)) {                                                                              \
			printf("line %d: %s (errno %d, %s)\n", __LINE__, #condition, errno, strerror(errno));    \
			exit(1);                                                                                 \
		}                                                                                                \
	} while (0)

static int threads(void)
{
	DIR *tasks = opendir("/proc/self/task");
	int count = -2; /* . and .. */

	while (readdir(tasks))
		count++;
	closedir(tasks);
	return count;
}

#endif
