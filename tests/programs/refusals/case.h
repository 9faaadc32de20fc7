/*
 * The execution and the output of a case, and the objects that the cases use.
 */
#ifndef CASE_H
#define CASE_H

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include "../check.h"

#define LOCAL IBV_ACCESS_LOCAL_WRITE

static struct ibv_context *context;
static struct ibv_device_attr device;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static char buffer[1 << 16] __attribute__((aligned(4096)));
static sigjmp_buf after;

static void crashed(int number)
{
	(void)number;
	siglongjmp(after, 1);
}

static const char *name_of(int number)
{
	const char *name = number ? strerrorname_np(number) : "no errno";
	static char unnamed[16];

	if (name)
		return name;
	snprintf(unnamed, sizeof(unnamed), "%d", number);
	return unnamed;
}

/* Runs the following statement, and prints SIGSEGV if it crashes. */
#define CASE(what)                                                                                               \
	for (int once = (printf("%s\t", what), errno = 0, sigsetjmp(after, 1) ? (puts("SIGSEGV"), 0) : 1); once; once = 0)

/* Prints the answer of a verb that returns 0 or the number of an error. */
static void number(int answer)
{
	puts(answer ? name_of(answer < 0 ? -answer : answer) : "0");
}

/* Prints the answer of a verb that returns -1 and sets errno. */
static void minus_one(int answer)
{
	if (answer < 0)
		printf("-1 %s\n", name_of(errno));
	else
		printf("%d\n", answer);
}

/* Prints the answer of a verb that returns NULL and sets errno. */
static void pointer(const void *answer)
{
	if (answer)
		puts("made");
	else
		printf("NULL %s\n", name_of(errno));
}

/* ibv_rereg_mr returns the failed step and sets errno. */
static void step(int answer)
{
	printf("%d %s\n", answer, answer ? name_of(errno) : "");
}

#define STEP(what, call) CASE(what) step(call)
#define NUMBER(what, call) CASE(what) number(call)
#define MINUS_ONE(what, call) CASE(what) minus_one(call)
#define POINTER(what, call) CASE(what) pointer(call)

static struct ibv_qp_init_attr usual(enum ibv_qp_type type)
{
	return (struct ibv_qp_init_attr){
		.send_cq = cq, .recv_cq = cq, .qp_type = type,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 32 },
	};
}

static struct ibv_qp *new_qp(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = usual(type);
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	MUST(qp);
	return qp;
}

#endif
