/*
 * Lifetimes of objects: opened and closed repeatedly (valgrind reports leaks), still open when
 * their context is closed, and inherited by a child process. The program is compiled against
 * Debian's headers, linked with -libverbs, and does not depend on urxe.
 *
 * It prints the line of the first failed check.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>
#include <infiniband/verbs.h>

#include "check.h"

static char buffer[4096];

struct objects {
	struct ibv_pd *pd, *parent;
	struct ibv_td *td;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct ibv_dm *dm;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_cq_ex *cq_ex;
	struct ibv_xrcd *xrcd;
	struct ibv_srq *srq, *xsrq;
	struct ibv_qp *rc, *ud, *target;
	struct ibv_ah *ah;
};

static struct ibv_qp *new_qp(struct objects *o, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex init = { .qp_type = type, .send_cq = o->cq, .recv_cq = o->cq, .srq = o->srq,
					    .pd = o->parent, .comp_mask = IBV_QP_INIT_ATTR_PD,
					    .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };

	if (type == IBV_QPT_XRC_RECV) {
		init = (struct ibv_qp_init_attr_ex){ .qp_type = type, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = o->xrcd };
	}
	return ibv_create_qp_ex(o->pd->context, &init);
}

/* Creates one object of each kind. */
static struct objects make(struct ibv_context *context, int file)
{
	struct objects o = { .pd = ibv_alloc_pd(context) };
	struct ibv_td_init_attr td = { 0 };
	struct ibv_alloc_dm_attr dm = { .length = 4096 };
	struct ibv_cq_init_attr_ex cq = { .cqe = 16, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN };
	struct ibv_xrcd_init_attr xrcd = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = file,
					   .oflags = O_CREAT };
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq_init_attr_ex xsrq = { .attr = { .max_wr = 8, .max_sge = 1 }, .srq_type = IBV_SRQT_XRC };
	struct ibv_ah_attr ah = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };
	struct ibv_parent_domain_init_attr parent = { 0 };

	MUST(o.pd);
	MUST((o.td = ibv_alloc_td(context, &td)));
	parent.pd = o.pd;
	parent.td = o.td;
	MUST((o.parent = ibv_alloc_parent_domain(context, &parent)));
	MUST((o.mr = ibv_reg_mr(o.pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)));
	MUST((o.mw = ibv_alloc_mw(o.pd, IBV_MW_TYPE_1)));
	MUST((o.dm = ibv_alloc_dm(context, &dm)));
	MUST((o.channel = ibv_create_comp_channel(context)));
	MUST((o.cq = ibv_create_cq(context, 16, NULL, o.channel, 0)));
	MUST((o.cq_ex = ibv_create_cq_ex(context, &cq)));
	MUST((o.xrcd = ibv_open_xrcd(context, &xrcd)));
	MUST((o.srq = ibv_create_srq(o.pd, &srq)));
	xsrq.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	xsrq.pd = o.pd;
	xsrq.xrcd = o.xrcd;
	xsrq.cq = o.cq;
	MUST((o.xsrq = ibv_create_srq_ex(context, &xsrq)));
	MUST((o.rc = new_qp(&o, IBV_QPT_RC)));
	MUST((o.ud = new_qp(&o, IBV_QPT_UD)));
	MUST((o.target = new_qp(&o, IBV_QPT_XRC_RECV)));
	MUST(!ibv_query_gid(context, 1, 0, &ah.grh.dgid));
	MUST((o.ah = ibv_create_ah(o.pd, &ah)));
	return o;
}

static void destroy(struct objects *o)
{
	MUST(!ibv_destroy_ah(o->ah));
	MUST(!ibv_destroy_qp(o->target));
	MUST(!ibv_destroy_qp(o->ud));
	MUST(!ibv_destroy_qp(o->rc));
	MUST(!ibv_destroy_srq(o->xsrq));
	MUST(!ibv_destroy_srq(o->srq));
	MUST(!ibv_close_xrcd(o->xrcd));
	MUST(!ibv_destroy_cq(ibv_cq_ex_to_cq(o->cq_ex)));
	MUST(!ibv_destroy_cq(o->cq));
	MUST(!ibv_destroy_comp_channel(o->channel));
	MUST(!ibv_free_dm(o->dm));
	MUST(!ibv_dealloc_mw(o->mw));
	MUST(!ibv_dereg_mr(o->mr));
	MUST(!ibv_dealloc_pd(o->parent));
	MUST(!ibv_dealloc_td(o->td));
	MUST(!ibv_dealloc_pd(o->pd));
}

static int own_file(void)
{
	char name[] = "/tmp/lifetimes-XXXXXX";
	int file = mkstemp(name);

	MUST(file >= 0 && !unlink(name));
	return file;
}

/* A closed device leaves no thread, no memory (checked by valgrind) and no signal handler. */
static void cycles(void)
{
	struct sigaction action;
	int round, number;

	for (round = 0; round < 4; round++) {
		int file = own_file();
		struct ibv_context *context = open_first(), *second = open_first();
		struct objects o = make(context, file), p = make(second, file);

		MUST(threads() > 1);
		destroy(&o);
		MUST(!ibv_close_device(context));
		destroy(&p);
		MUST(!ibv_close_device(second));
		MUST(threads() == 1);
		close(file);
	}
	for (number = 1; number < SIGRTMIN; number++)
		if (number != SIGPIPE && !sigaction(number, NULL, &action))
			MUST(action.sa_handler == SIG_DFL || getenv("UNDER_VALGRIND"));
}

/* The objects of a closed context end with it, although another context keeps the device open. */
static void leftovers(void)
{
	struct ibv_context *stays = open_first();
	int file = own_file(), round;
	struct ibv_xrcd_init_attr exclusive = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = file,
						.oflags = O_CREAT | O_EXCL };

	for (round = 0; round < 3; round++) {
		struct ibv_context *goes = open_first();
		struct objects left = make(goes, file);
		uint32_t pd = left.pd->handle, parent = left.parent->handle;
		struct ibv_pd *imported = ibv_import_pd(stays, pd);
		struct ibv_xrcd *again;

		MUST(imported);
		ibv_unimport_pd(imported);
		MUST(!ibv_open_xrcd(stays, &exclusive));
		MUST(!ibv_close_device(goes));
		MUST(!ibv_import_pd(stays, pd) && !ibv_import_pd(stays, parent));
		MUST((again = ibv_open_xrcd(stays, &exclusive)));
		MUST(!ibv_close_xrcd(again));
	}
	MUST(!ibv_close_device(stays));
}

static atomic_bool enough;

/* Lists, opens and closes devices in a loop, so that a fork may happen at any step. */
static void *keep_opening(void *unused)
{
	while (!enough)
		ibv_close_device(open_first());
	return unused;
}

/* In a child, verbs that move no data work through the inherited context. */
static void inherited(void)
{
	struct ibv_context *context = open_first();
	int round, status;
	pthread_t thread;

	MUST(!pthread_create(&thread, NULL, keep_opening, NULL));
	for (round = 0; round < 50; round++) {
		pid_t child = fork();

		MUST(child >= 0);
		if (!child) {
			struct ibv_alloc_dm_attr wanted = { .length = 64 };
			struct ibv_device_attr attr;
			struct ibv_port_attr port;
			union ibv_gid gid;
			struct ibv_dm *dm;
			struct ibv_pd *pd;
			uint32_t in = 0x12345678, out = 0;
			__be16 pkey;

			alarm(30);
			MUST(!ibv_query_device(context, &attr) && attr.max_qp > 0);
			MUST(!ibv_query_port(context, 1, &port) && port.state == IBV_PORT_ACTIVE);
			MUST(!ibv_query_gid(context, 1, 0, &gid) && !ibv_query_pkey(context, 1, 0, &pkey));
			MUST((dm = ibv_alloc_dm(context, &wanted)));
			MUST(!ibv_memcpy_to_dm(dm, 0, &in, 4) && !ibv_memcpy_from_dm(&out, dm, 0, 4) && in == out);
			MUST(!ibv_free_dm(dm));
			MUST((pd = ibv_alloc_pd(context)) && !ibv_dealloc_pd(pd));
			MUST(!ibv_close_device(open_first()));
			MUST(!ibv_close_device(context));
			_exit(0);
		}
		MUST(waitpid(child, &status, 0) == child);
		MUST(WIFEXITED(status) && !WEXITSTATUS(status));
	}
	enough = 1;
	MUST(!pthread_join(thread, NULL));
	MUST(!ibv_close_device(context));
}

int main(int argc, char **argv)
{
	const char *what = argc == 2 ? argv[1] : "";

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!strcmp(what, "cycles"))
		cycles();
	else if (!strcmp(what, "leftovers"))
		leftovers();
	else if (!strcmp(what, "inherited"))
		inherited();
	else
		return 2;
	puts("all as expected");
	return 0;
}
