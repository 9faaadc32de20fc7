/*
 * Objects of one device or context that are used with another, and objects in use: each call is
 * refused. The program is compiled against Debian's headers, linked with -libverbs, and does not
 * depend on urxe. It needs two links.
 *
 * It prints the line of the first failed check.
 */
#include <fcntl.h>

#include "linked.h"

#define REFUSED_AS(error, call)                                                                                  \
	do {                                                                                                     \
		errno = 0;                                                                                       \
		MUST(!(call));                                                                                   \
		MUST(errno == error);                                                                            \
	} while (0)
/* Refuses an object of another context. */
#define FOREIGN(call) REFUSED_AS(ENOENT, call)

/* One object of each kind that other objects refer to. */
struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_td *td;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_dm *dm;
	struct ibv_mr *mr;
	struct ibv_xrcd *xrcd;
};

static char buffer[4096];

static struct side open_side(struct ibv_device *device)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_xrcd_init_attr xrcd = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1,
					   .oflags = O_CREAT };
	struct ibv_alloc_dm_attr dm = { .length = 4096 };
	struct ibv_td_init_attr td = { 0 };
	struct side side = { .context = ibv_open_device(device) };

	MUST(side.context && (side.pd = ibv_alloc_pd(side.context)) && (side.td = ibv_alloc_td(side.context, &td)));
	MUST((side.cq = ibv_create_cq(side.context, 16, NULL, NULL, 0)) && (side.srq = ibv_create_srq(side.pd, &srq)));
	MUST((side.dm = ibv_alloc_dm(side.context, &dm)) && (side.xrcd = ibv_open_xrcd(side.context, &xrcd)));
	MUST((side.mr = ibv_reg_mr(side.pd, buffer, sizeof(buffer), REMOTE)));
	return side;
}

static void queue_pairs(const struct side *own, const struct side *other)
{
	struct ibv_qp_init_attr usual = { .send_cq = own->cq, .recv_cq = own->cq, .qp_type = IBV_QPT_RC }, init = usual;
	struct ibv_qp_init_attr_ex target = { .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD };
	struct ibv_qp *qp;

	init.send_cq = other->cq;
	FOREIGN(ibv_create_qp(own->pd, &init));
	init = usual;
	init.recv_cq = other->cq;
	FOREIGN(ibv_create_qp(own->pd, &init));
	init = usual;
	init.srq = other->srq;
	FOREIGN(ibv_create_qp(own->pd, &init));
	FOREIGN(ibv_create_qp(other->pd, &usual));
	target.xrcd = other->xrcd;
	FOREIGN(ibv_create_qp_ex(own->context, &target));
	init.srq = own->srq;
	MUST((qp = ibv_create_qp(own->pd, &init)) && !ibv_destroy_qp(qp));
}

static void shared_queues(const struct side *own, const struct side *other)
{
	struct ibv_srq_init_attr_ex usual = {
		.attr = { .max_wr = 4, .max_sge = 1 }, .srq_type = IBV_SRQT_XRC, .pd = own->pd, .xrcd = own->xrcd, .cq = own->cq,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
	}, init = usual;
	struct ibv_srq *srq;

	init.cq = other->cq;
	FOREIGN(ibv_create_srq_ex(own->context, &init));
	init = usual;
	init.xrcd = other->xrcd;
	FOREIGN(ibv_create_srq_ex(own->context, &init));
	MUST((srq = ibv_create_srq_ex(own->context, &usual)) && !ibv_destroy_srq(srq));
}

/* A parent domain, and a queue that uses it. */
static void domains(const struct side *own, const struct side *other)
{
	struct ibv_parent_domain_init_attr init = { .pd = other->pd };
	struct ibv_cq_init_attr_ex with = { .cqe = 4, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = own->pd };
	struct ibv_pd *parent;
	struct ibv_cq_ex *cq;

	FOREIGN(ibv_alloc_parent_domain(own->context, &init));
	init = (struct ibv_parent_domain_init_attr){ .pd = own->pd, .td = other->td };
	FOREIGN(ibv_alloc_parent_domain(own->context, &init));
	init.td = own->td;
	MUST((parent = ibv_alloc_parent_domain(own->context, &init)));
	MUST(ibv_dealloc_td(own->td) == EBUSY && ibv_dealloc_pd(own->pd) == EBUSY);
	REFUSED_AS(EINVAL, ibv_create_cq_ex(own->context, &with));
	with.parent_domain = parent;
	FOREIGN(ibv_create_cq_ex(other->context, &with));
	MUST((cq = ibv_create_cq_ex(own->context, &with)));
	MUST(ibv_dealloc_pd(parent) == EBUSY);
	MUST(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) && !ibv_dealloc_pd(parent));
	/* Closing the context of the queue releases the domain. */
	MUST((parent = ibv_alloc_parent_domain(own->context, &init)));
	with.parent_domain = parent;
	MUST(ibv_create_cq_ex(own->context, &with));
}

/* A completion channel belongs to its context and to the contexts imported from it. */
static void channels(const struct side *own, const struct side *other)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(own->context);
	struct ibv_cq_init_attr_ex with = { .cqe = 4, .channel = channel };
	struct ibv_context *another = ibv_open_device(own->context->device), *imported;
	struct ibv_cq *cq;

	MUST(channel && another);
	REFUSED_AS(EBADF, ibv_create_cq(other->context, 4, NULL, channel, 0));
	REFUSED_AS(EBADF, ibv_create_cq_ex(other->context, &with));
	REFUSED_AS(EBADF, ibv_create_cq(another, 4, NULL, channel, 0));
	MUST(!channel->refcnt && !ibv_close_device(another));
	MUST((imported = ibv_import_device(own->context->cmd_fd)));
	MUST((cq = ibv_create_cq(imported, 4, NULL, channel, 0)) && channel->refcnt == 1);
	MUST(ibv_destroy_comp_channel(channel) == EBUSY && !ibv_destroy_cq(cq) && !ibv_close_device(imported));
	/* The channel still belongs to its context after the imported context is closed. */
	MUST((imported = ibv_import_device(own->context->cmd_fd)) && !ibv_close_device(imported));
	MUST((cq = ibv_create_cq(own->context, 4, NULL, channel, 0)) && !ibv_destroy_cq(cq));
	MUST(!ibv_destroy_comp_channel(channel));
}

static void memory(const struct side *own, const struct side *other)
{
	FOREIGN(ibv_reg_dm_mr(own->pd, other->dm, 0, 4096, IBV_ACCESS_ZERO_BASED | REMOTE));
	errno = 0;
	MUST(ibv_rereg_mr(own->mr, IBV_REREG_MR_CHANGE_PD, other->pd, NULL, 0, 0) && errno == ENOENT);
}

/* An imported context has the same file, and may be used with objects of the original context. */
static void imported(const struct side *own)
{
	struct ibv_context *context = ibv_import_device(own->context->cmd_fd);
	struct ibv_pd *pd = context ? ibv_import_pd(context, own->pd->handle) : NULL;
	struct ibv_qp_init_attr init = { .send_cq = own->cq, .recv_cq = own->cq, .srq = own->srq, .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp;

	MUST(pd && (qp = ibv_create_qp(pd, &init)) && !ibv_destroy_qp(qp));
	ibv_unimport_pd(pd);
	MUST(!ibv_close_device(context));
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct side own, other, twin;

	MUST(list && list[0] && list[1]);
	own = open_side(list[0]);
	other = open_side(list[1]);
	twin = open_side(list[0]);
	queue_pairs(&own, &other);
	queue_pairs(&own, &twin);
	shared_queues(&own, &other);
	shared_queues(&own, &twin);
	domains(&own, &other);
	domains(&twin, &own);
	channels(&own, &other);
	memory(&own, &other);
	memory(&own, &twin);
	imported(&own);
	MUST(!ibv_close_device(own.context) && !ibv_close_device(other.context) && !ibv_close_device(twin.context));
	ibv_free_device_list(list);
	puts("all as expected");
	return 0;
}
