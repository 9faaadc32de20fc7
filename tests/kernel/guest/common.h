/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * common.h - helpers of the tests' C programs: the end with an error, the bytes of a message, the
 * opening of a device.
 */
#ifndef COMMON_H
#define COMMON_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The name of the program, which starts its error message. */
static const char *program;

static void __attribute__((noreturn, format(printf, 1, 2))) die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "%s: ", program);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(1);
}

/* Returns byte j of message k. */
static unsigned char pattern(unsigned int message, unsigned int byte)
{
	return ((message + 1) * 0x9e3779b1u + byte * 0x85ebca6bu) >> 24;
}

static void fill(unsigned char *at, unsigned int message, unsigned int size)
{
	for (unsigned int j = 0; j < size; j++)
		at[j] = pattern(message, j);
}

/* Returns the index of the first byte that differs from the message, or -1. */
static long differs(const unsigned char *at, unsigned int message, unsigned int size)
{
	for (unsigned int j = 0; j < size; j++)
		if (at[j] != pattern(message, j))
			return j;
	return -1;
}

/* Opens the device of this name, or the first device if the name is NULL. */
static struct ibv_context *device_open(const char *name)
{
	struct ibv_context *context;
	struct ibv_device **list, **each;

#ifdef PROVIDER
	/*
	 * Uses the provider beside this libibverbs, not the provider of the guest's other programs.
	 */
	setenv("IBV_DRIVERS", PROVIDER, 0);
#endif
	list = ibv_get_device_list(NULL);
	for (each = list; each && *each; each++)
		if (!name || !strcmp(ibv_get_device_name(*each), name))
			break;
	if (!each || !*each)
		die("no RDMA device %s", name ? name : "at all");
	context = ibv_open_device(*each);
	if (!context)
		die("open %s: %s", ibv_get_device_name(*each), strerror(errno));
	ibv_free_device_list(list);
	return context;
}

#endif
