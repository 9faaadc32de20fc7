/*
 * Bad input of every kind, and the answers of libibverbs: a line for each case with its name and
 * its answer. The program is compiled against Debian's headers, linked with -libverbs, and does not
 * depend on urxe. It runs over urxe and over a kernel's rdma_rxe, and the test compares the lines
 * (refusals.tsv).
 *
 * An answer is the return value of the verb: 0, the name of an error, "made" for a pointer, or
 * "NULL NAME" and "-1 NAME" with the name of errno. "SIGSEGV" is an answer as well, because
 * rdma-core dereferences most pointers without a check.
 */
#define _GNU_SOURCE
#include "refusals/handles.h"
#include "refusals/datagrams.h"
#include "refusals/descriptors.h"

static void queries(void)
{
	struct ibv_query_device_ex_input input = { .comp_mask = 1 };
	struct ibv_device_attr_ex ex;
	struct ibv_gid_entry entries[64];
	struct ibv_port_attr port;
	union ibv_gid gid;
	__be16 pkey;

	NUMBER("query_device_ex without input", ibv_query_device_ex(context, NULL, &ex));
	NUMBER("query_device_ex, unknown comp_mask", ibv_query_device_ex(context, &input, &ex));
	NUMBER("query_port 0", ibv_query_port(context, 0, &port));
	NUMBER("query_port 2", ibv_query_port(context, 2, &port));
	NUMBER("query_port 255", ibv_query_port(context, 255, &port));
	MINUS_ONE("query_gid -1", ibv_query_gid(context, 1, -1, &gid));
	MINUS_ONE("query_gid 5000", ibv_query_gid(context, 1, 5000, &gid));
	MINUS_ONE("query_gid 3", ibv_query_gid(context, 1, 3, &gid));
	MINUS_ONE("query_gid of port 2", ibv_query_gid(context, 2, 0, &gid));
	NUMBER("query_gid_ex 5000", ibv_query_gid_ex(context, 1, 5000, entries, 0));
	NUMBER("query_gid_ex of port 2", ibv_query_gid_ex(context, 2, 0, entries, 0));
	NUMBER("query_gid_ex, unknown flags", ibv_query_gid_ex(context, 1, 0, entries, 1));
	NUMBER("query_gid_table, unknown flags", ibv_query_gid_table(context, entries, 64, 1));
	NUMBER("query_gid_table for 0 entries", ibv_query_gid_table(context, entries, 0, 0));
	NUMBER("query_gid_table for too few entries", ibv_query_gid_table(context, entries, 1, 0));
	MINUS_ONE("query_pkey -1", ibv_query_pkey(context, 1, -1, &pkey));
	MINUS_ONE("query_pkey 64000", ibv_query_pkey(context, 1, 64000, &pkey));
	MINUS_ONE("query_pkey of port 2", ibv_query_pkey(context, 2, 0, &pkey));
	CASE("get_pkey_index of a missing key") printf("%d\n", ibv_get_pkey_index(context, 1, htons(0x1234)));
}

static void domains(void)
{
	struct ibv_pd *busy = ibv_alloc_pd(context);
	struct ibv_mr *region;

	MUST(busy && (region = ibv_reg_mr(busy, buffer, 64, LOCAL)));
	NUMBER("dealloc_pd with a region in it", ibv_dealloc_pd(busy));
	MUST(!ibv_dereg_mr(region) && !ibv_dealloc_pd(busy));
}

static void regions(void)
{
	char *hole = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	/* Not constants, because the macro of the header treats constants differently. */
	volatile int odd = 1 << 15, optional = LOCAL | 1 << 29, write = IBV_ACCESS_REMOTE_WRITE, atomic = IBV_ACCESS_REMOTE_ATOMIC;

	MUST(hole != MAP_FAILED && !munmap(hole + 4096, 4096));
	POINTER("reg_mr of 0 bytes", ibv_reg_mr(pd, buffer, 0, LOCAL));
	POINTER("reg_mr of memory that is not mapped", ibv_reg_mr(pd, hole + 4096, 64, LOCAL));
	POINTER("reg_mr of memory that ends in a hole", ibv_reg_mr(pd, hole, 8192, LOCAL));
	POINTER("reg_mr of NULL", ibv_reg_mr(pd, NULL, 4096, LOCAL));
	POINTER("reg_mr of read-only memory, to be written", ibv_reg_mr(pd, (void *)"constant", 4, LOCAL));
	POINTER("reg_mr of read-only memory, to be read", ibv_reg_mr(pd, (void *)"constant", 4, 0));
	POINTER("reg_mr up to the end of all addresses", ibv_reg_mr(pd, (void *)(UINTPTR_MAX - 10), 4096, LOCAL));
	POINTER("reg_mr of half of all addresses", ibv_reg_mr(pd, buffer, (size_t)1 << 62, LOCAL));
	POINTER("reg_mr, remote write without local write", ibv_reg_mr(pd, buffer, 64, write));
	POINTER("reg_mr, remote atomic without local write", ibv_reg_mr(pd, buffer, 64, atomic));
	POINTER("reg_mr, unknown access", ibv_reg_mr(pd, buffer, 64, odd));
	POINTER("reg_mr, unknown optional access", ibv_reg_mr(pd, buffer, 64, optional));
	POINTER("reg_mr_iova with another offset in the page", ibv_reg_mr_iova(pd, buffer, 4096, 0x10001, LOCAL));
	POINTER("reg_dmabuf_mr", ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 0, LOCAL));
	NUMBER("dereg_mr", ibv_dereg_mr(ibv_reg_mr(pd, buffer, 64, LOCAL)));
	STEP("rereg_mr, no flags", ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0));
	STEP("rereg_mr, unknown flags", ibv_rereg_mr(mr, 1 << 10, NULL, NULL, 0, 0));
	STEP("rereg_mr, access that is not to be changed", ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, LOCAL));
	STEP("rereg_mr, translation of 0 bytes", ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, buffer, 0, 0));
	STEP("rereg_mr, unknown access", ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, odd));
	munmap(hole, 4096);
}

static void completed(struct ibv_wc *wc)
{
	int n;

	while ((n = ibv_poll_cq(cq, 1, wc)) == 0)
		;
	MUST(n == 1);
}

/*
 * Binds a window of type 1 and waits for the completion. A length of 0 bytes removes the binding.
 */
static void bind_one(struct ibv_qp *qp, struct ibv_mw *one, struct ibv_mr *region, size_t length)
{
	struct ibv_mw_bind bind = { .send_flags = IBV_SEND_SIGNALED };
	struct ibv_wc wc;

	bind.bind_info = (struct ibv_mw_bind_info){ region, (uintptr_t)buffer, length, IBV_ACCESS_REMOTE_READ };
	MUST(!ibv_bind_mw(qp, one, &bind));
	completed(&wc);
	MUST(wc.status == IBV_WC_SUCCESS);
}

static void windows(void)
{
	struct ibv_mw_bind bind = { 0 };
	struct ibv_qp *qp = connected();
	struct ibv_pd *other = ibv_alloc_pd(context);
	struct ibv_wc wc;
	struct ibv_mr *bindable = ibv_reg_mr(pd, buffer, 64, LOCAL | IBV_ACCESS_MW_BIND), *foreign;
	struct ibv_mw *one, *two;

	MUST(bindable && other && (foreign = ibv_reg_mr(other, buffer, 64, LOCAL | IBV_ACCESS_MW_BIND)));
	POINTER("alloc_mw of type 0", ibv_alloc_mw(pd, 0));
	POINTER("alloc_mw of type 3", ibv_alloc_mw(pd, 3));
	MUST((one = ibv_alloc_mw(pd, IBV_MW_TYPE_1)) && (two = ibv_alloc_mw(pd, IBV_MW_TYPE_2)));
	NUMBER("bind_mw of a window of type 2", ibv_bind_mw(qp, two, &bind));
	bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ;
	bind.bind_info.length = 64;
	NUMBER("bind_mw to no region", ibv_bind_mw(qp, one, &bind));
	bind.bind_info.length = 0;
	bind.bind_info.addr = (uintptr_t)buffer;
	NUMBER("bind_mw of no bytes at an address of no region", ibv_bind_mw(qp, one, &bind));
	bind.bind_info.length = 64;
	bind.bind_info.mr = foreign;
	NUMBER("bind_mw to a region of another domain", ibv_bind_mw(qp, one, &bind));
	bind.bind_info.mr = bindable;
	bind.bind_info.mw_access_flags |= IBV_ACCESS_ZERO_BASED;
	NUMBER("bind_mw, addresses from 0 on", ibv_bind_mw(qp, one, &bind));
	bind_one(qp, one, bindable, 64);
	NUMBER("dereg_mr with a window", ibv_dereg_mr(bindable));
	STEP("rereg_mr with a window", ibv_rereg_mr(bindable, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, LOCAL));
	bind_one(qp, one, bindable, 0);
	/* Last, because its completion has an error, which ends the queue pair. */
	bind.bind_info.mr = mr;
	bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ;
	NUMBER("bind_mw to a region without bind access", ibv_bind_mw(qp, one, &bind));
	completed(&wc);
	printf("bind_mw to a region without bind access, its completion\t%s\n", ibv_wc_status_str(wc.status));
	MUST(!ibv_destroy_qp(qp) && !ibv_dereg_mr(bindable) && !ibv_dereg_mr(foreign) && !ibv_dealloc_pd(other));
	NUMBER("dealloc_mw", ibv_dealloc_mw(one));
	MUST(!ibv_dealloc_mw(two));
}

/* A domain of a file has two handles. The handle with a dependent object cannot be closed. */
static void one_of_two_handles(struct ibv_xrcd_init_attr *xrc, struct ibv_srq_init_attr_ex *shared)
{
	FILE *file = tmpfile();
	struct ibv_xrcd *other;
	struct ibv_srq *srq;

	MUST(file);
	xrc->fd = fileno(file);
	MUST((other = ibv_open_xrcd(context, xrc)) && (shared->xrcd = ibv_open_xrcd(context, xrc)));
	MUST((srq = ibv_create_srq_ex(context, shared)));
	NUMBER("close_xrcd of the handle with a shared queue", ibv_close_xrcd(shared->xrcd));
	MUST(!ibv_close_xrcd(other) && !ibv_destroy_srq(srq) && !ibv_close_xrcd(shared->xrcd));
	fclose(file);
}

/* An object with its own memory or its own file, and a second object that uses it. */
static void used(void)
{
	struct ibv_alloc_dm_attr of = { .length = 64 };
	struct ibv_xrcd_init_attr xrc = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT };
	struct ibv_srq_init_attr_ex shared = { .attr = { .max_wr = 4, .max_sge = 2 }, .srq_type = IBV_SRQT_XRC, .cq = cq, .pd = pd };
	struct ibv_dm *dm = ibv_alloc_dm(context, &of);
	struct ibv_mr *region;
	struct ibv_xrcd *xrcd;
	struct ibv_srq *srq;

	if (!dm) {
		POINTER("free_dm with a region", ibv_alloc_dm(context, &of));
	} else {
		MUST((region = ibv_reg_dm_mr(pd, dm, 0, 64, LOCAL | IBV_ACCESS_ZERO_BASED)));
		NUMBER("free_dm with a region", ibv_free_dm(dm));
		MUST(!ibv_dereg_mr(region) && !ibv_free_dm(dm));
	}
	if (!(xrcd = ibv_open_xrcd(context, &xrc))) {
		POINTER("close_xrcd with a shared queue", ibv_open_xrcd(context, &xrc));
		POINTER("close_xrcd of the handle with a shared queue", ibv_open_xrcd(context, &xrc));
		return;
	}
	shared.xrcd = xrcd;
	shared.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	MUST((srq = ibv_create_srq_ex(context, &shared)));
	NUMBER("close_xrcd with a shared queue", ibv_close_xrcd(xrcd));
	MUST(!ibv_destroy_srq(srq) && !ibv_close_xrcd(xrcd));
	one_of_two_handles(&xrc, &shared);
}

static void completion_queues(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq_init_attr_ex ex = { .cqe = 4, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_context *another = ibv_open_device(context->device);
	struct ibv_comp_channel *of_another;
	struct ibv_cq *small, *signaled;
	void *with;
	struct ibv_wc wc;
	struct ibv_qp *qp;

	MUST(another && (of_another = ibv_create_comp_channel(another)));
	POINTER("create_cq with a channel of another context", ibv_create_cq(context, 4, NULL, of_another, 0));
	POINTER("create_cq of 0 entries", ibv_create_cq(context, 0, NULL, NULL, 0));
	POINTER("create_cq of -1 entries", ibv_create_cq(context, -1, NULL, NULL, 0));
	POINTER("create_cq of more than the device has", ibv_create_cq(context, device.max_cqe + 1, NULL, NULL, 0));
	POINTER("create_cq, vector -1", ibv_create_cq(context, 1, NULL, NULL, -1));
	POINTER("create_cq, vector behind the last", ibv_create_cq(context, 1, NULL, NULL, context->num_comp_vectors));
	MUST((small = ibv_create_cq(context, 1, NULL, channel, 0)));
	NUMBER("resize_cq to 0 entries", ibv_resize_cq(small, 0));
	NUMBER("resize_cq to -1 entries", ibv_resize_cq(small, -1));
	NUMBER("resize_cq to more than the device has", ibv_resize_cq(small, device.max_cqe + 1));
	CASE("poll_cq for 0 completions") printf("%d\n", ibv_poll_cq(small, 0, NULL));
	NUMBER("destroy_comp_channel with a queue", ibv_destroy_comp_channel(channel));
	MUST(!fcntl(channel->fd, F_SETFL, O_NONBLOCK));
	MINUS_ONE("get_cq_event without one, O_NONBLOCK", ibv_get_cq_event(channel, &signaled, &with));
	NUMBER("destroy_cq", ibv_destroy_cq(small));
	NUMBER("destroy_comp_channel", ibv_destroy_comp_channel(channel));
	qp = new_qp(IBV_QPT_RC);
	NUMBER("destroy_cq with a queue pair", ibv_destroy_cq(cq));
	MUST(!ibv_destroy_qp(qp) && ibv_poll_cq(cq, 1, &wc) == 0);

	ex.comp_mask = 1 << 20;
	POINTER("create_cq_ex, unknown comp_mask", ibv_create_cq_ex(context, &ex));
	ex.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
	ex.flags = 1 << 20;
	POINTER("create_cq_ex, unknown flags", ibv_create_cq_ex(context, &ex));
	ex.comp_mask = ex.flags = 0;
	ex.wc_flags = IBV_WC_STANDARD_FLAGS | 1ull << 40;
	POINTER("create_cq_ex, unknown wc_flags", ibv_create_cq_ex(context, &ex));
	ex.wc_flags = IBV_WC_EX_WITH_CVLAN;
	POINTER("create_cq_ex, VLANs", ibv_create_cq_ex(context, &ex));
	ex.wc_flags = 0;
	ex.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
	ex.parent_domain = pd;
	POINTER("create_cq_ex, a domain that is no parent domain", ibv_create_cq_ex(context, &ex));
	ex.comp_mask = 0;
	ex.cqe = 0;
	POINTER("create_cq_ex of 0 entries", ibv_create_cq_ex(context, &ex));
	ex.cqe = 4;
	ex.channel = of_another;
	POINTER("create_cq_ex with a channel of another context", ibv_create_cq_ex(context, &ex));
}

static void shared_queues(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 2 } };
	struct ibv_srq_init_attr_ex ex = { .attr = { .max_wr = 4, .max_sge = 2 } };
	struct ibv_sge sges[40] = { 0 };
	struct ibv_recv_wr wr = { .sg_list = sges, .num_sge = 3 }, *bad = NULL;
	struct ibv_srq_attr attr = { .max_wr = 1, .srq_limit = 1 };
	struct ibv_qp_init_attr with = usual(IBV_QPT_RC);
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	uint32_t number_of;
	int i, answer = 0;

	init.attr.max_wr = 0;
	POINTER("create_srq of 0 receives", ibv_create_srq(pd, &init));
	init.attr.max_wr = device.max_srq_wr + 1;
	POINTER("create_srq of more receives than the device has", ibv_create_srq(pd, &init));
	init.attr.max_wr = 4;
	init.attr.max_sge = device.max_srq_sge + 1;
	POINTER("create_srq of more entries than the device has", ibv_create_srq(pd, &init));
	init.attr.max_sge = 2;
	MUST((srq = ibv_create_srq(pd, &init)));
	NUMBER("modify_srq, unknown mask", ibv_modify_srq(srq, &attr, 1 << 10));
	attr.srq_limit = 1 << 20;
	NUMBER("modify_srq, limit above the size", ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	attr.max_wr = device.max_srq_wr + 1;
	NUMBER("modify_srq to more receives than the device has", ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR));
	CASE("post_srq_recv of too many entries") {
		answer = ibv_post_srq_recv(srq, &wr, &bad);
		printf("%s, bad_wr %s\n", name_of(answer), bad == &wr ? "it" : "another");
	}
	wr.num_sge = 1;
	CASE("post_srq_recv to a full queue") {
		for (i = 0; i < 1 << 20 && !(answer = ibv_post_srq_recv(srq, &wr, &bad)); i++)
			;
		printf("%s, bad_wr %s\n", name_of(answer), bad == &wr ? "it" : "another");
	}
	with.srq = srq;
	MUST((qp = ibv_create_qp(pd, &with)));
	NUMBER("destroy_srq with a queue pair", ibv_destroy_srq(srq));
	MUST(!ibv_destroy_qp(qp));
	NUMBER("get_srq_num of a plain one", ibv_get_srq_num(srq, &number_of));
	NUMBER("destroy_srq", ibv_destroy_srq(srq));
	ex.comp_mask = 1 << 20;
	POINTER("create_srq_ex, unknown comp_mask", ibv_create_srq_ex(context, &ex));
	ex.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE;
	ex.pd = pd;
	ex.srq_type = 77;
	POINTER("create_srq_ex of an unknown type", ibv_create_srq_ex(context, &ex));
	ex.srq_type = IBV_SRQT_TM;
	POINTER("create_srq_ex for matched tags", ibv_create_srq_ex(context, &ex));
}

/*
 * Objects of another context of the device. rdma-core passes their numbers to the kernel. The other
 * context therefore creates more objects than this context has, so that no number is valid here.
 */
static void of_another(void)
{
	struct ibv_context *another = ibv_open_device(context->device);
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 4, .max_sge = 2 } };
	struct ibv_qp_init_attr init = usual(IBV_QPT_RC);
	struct ibv_pd *domain = NULL;
	struct ibv_cq *queue;
	struct ibv_srq *srq;

	MUST(another);
	for (int i = 0; i < 100; i++)
		MUST((domain = ibv_alloc_pd(another)));
	MUST((queue = ibv_create_cq(another, 4, NULL, NULL, 0)) && (srq = ibv_create_srq(domain, &shared)));
	init.send_cq = queue;
	POINTER("create_qp, sends complete in another context", ibv_create_qp(pd, &init));
	init = usual(IBV_QPT_RC);
	init.recv_cq = queue;
	POINTER("create_qp, receives complete in another context", ibv_create_qp(pd, &init));
	init = usual(IBV_QPT_RC);
	init.srq = srq;
	POINTER("create_qp with a shared queue of another context", ibv_create_qp(pd, &init));
	init = usual(IBV_QPT_RC);
	POINTER("create_qp in a domain of another context", ibv_create_qp(domain, &init));
	STEP("rereg_mr to a domain of another context", ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, domain, NULL, 0, 0));
	MUST(!ibv_close_device(another));
}

static void events(void)
{
	struct ibv_comp_channel *channel;
	struct ibv_async_event event;
	struct ibv_cq *signaled;
	void *with;

	MUST(!fcntl(context->async_fd, F_SETFL, O_NONBLOCK));
	MINUS_ONE("get_async_event without one, O_NONBLOCK", ibv_get_async_event(context, &event));
	POINTER("import_device of no descriptor", ibv_import_device(-1));
	POINTER("import_device of a closed descriptor", ibv_import_device(999));
	POINTER("import_device of another file", ibv_import_device(memfd_create("other", 0)));
	MUST((channel = ibv_create_comp_channel(context)) && !close(channel->fd));
	MINUS_ONE("get_cq_event of a channel whose descriptor was closed", ibv_get_cq_event(channel, &signaled, &with));
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = crashed, .sa_flags = SA_NODEFER };

	setvbuf(stdout, NULL, _IOLBF, 0);
	MUST(!sigaction(SIGSEGV, &action, NULL));
	context = open_first();
	MUST(!ibv_query_device(context, &device));
	MUST((pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, 64, NULL, NULL, 0)));
	MUST((mr = ibv_reg_mr(pd, buffer, sizeof(buffer), LOCAL | IBV_ACCESS_REMOTE_WRITE)));
	if (argc == 2 && !strcmp(argv[1], "twice"))
		return twice();
	queries();
	domains();
	regions();
	windows();
	completion_queues();
	shared_queues();
	used();
	queue_pairs();
	transitions();
	values();
	posts();
	addresses();
	datagrams();
	groups();
	of_another();
	descriptors();
	events();
	absent();
	nulls();
	return 0;
}
