/*
 * Missing objects: verbs that a provider does not offer, NULL pointers, and destroyed objects.
 */
#ifndef HANDLES_H
#define HANDLES_H

#include "datagrams.h"

/* Verbs that rdma_rxe or urxe does not offer: the answer has the form that callers expect. */
static void absent(void)
{
	struct ibv_qp *qp = new_qp(IBV_QPT_UD);
	struct ibv_wq_init_attr wq = { .wq_type = IBV_WQT_RQ, .max_wr = 1, .max_sge = 1, .pd = pd, .cq = cq };
	struct ibv_rwq_ind_table_init_attr table = { 0 };
	struct ibv_counters_init_attr counters = { 0 };
	struct ibv_flow_action_esp_attr esp = { 0 };
	struct ibv_flow_attr flow = { .size = sizeof(flow), .port = 1 };
	struct ibv_modify_cq_attr cq_attr = { .attr_mask = 1 << 20 };
	struct ibv_ece ece = { 0 };
	struct ibv_alloc_dm_attr dm = { 0 };
	struct ibv_xrcd_init_attr xrcd = { 0 };
	struct ibv_td_init_attr td = { 0 };
	struct ibv_parent_domain_init_attr parent = { 0 };
	struct ibv_sge range = { .addr = (uintptr_t)buffer, .length = 64, .lkey = mr->lkey };

	POINTER("create_flow", ibv_create_flow(qp, &flow));
	POINTER("alloc_dm of 0 bytes", ibv_alloc_dm(context, &dm));
	dm.length = 1ull << 50;
	POINTER("alloc_dm of more than the device has", ibv_alloc_dm(context, &dm));
	dm.length = 64;
	dm.comp_mask = 1 << 20;
	POINTER("alloc_dm, unknown comp_mask", ibv_alloc_dm(context, &dm));
	POINTER("open_xrcd without a file", ibv_open_xrcd(context, &xrcd));
	xrcd.comp_mask = 1 << 20;
	POINTER("open_xrcd, unknown comp_mask", ibv_open_xrcd(context, &xrcd));
	xrcd.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	xrcd.fd = 999;
	POINTER("open_xrcd of a closed descriptor", ibv_open_xrcd(context, &xrcd));
	td.comp_mask = 1 << 20;
	POINTER("alloc_td, unknown comp_mask", ibv_alloc_td(context, &td));
	POINTER("alloc_parent_domain without a domain", ibv_alloc_parent_domain(context, &parent));
	parent.pd = pd;
	parent.comp_mask = 1 << 20;
	POINTER("alloc_parent_domain, unknown comp_mask", ibv_alloc_parent_domain(context, &parent));
	NUMBER("advise_mr, unknown advice", ibv_advise_mr(pd, 77, 0, &range, 1));
	NUMBER("advise_mr, unknown flags", ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 1 << 20, &range, 1));
	NUMBER("advise_mr about nothing", ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, NULL, 0));
	NUMBER("advise_mr about memory that is not on demand", ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &range, 1));
	POINTER("import_pd of a missing handle", ibv_import_pd(context, 0xabcdef));
	POINTER("import_mr of a missing handle", ibv_import_mr(pd, 0xabcdef));
	POINTER("import_dm of a missing handle", ibv_import_dm(context, 0xabcdef));
	POINTER("create_flow_action_esp", ibv_create_flow_action_esp(context, &esp));
	POINTER("create_wq", ibv_create_wq(context, &wq));
	POINTER("create_rwq_ind_table", ibv_create_rwq_ind_table(context, &table));
	POINTER("create_counters", ibv_create_counters(context, &counters));
	NUMBER("modify_cq, unknown mask", ibv_modify_cq(cq, &cq_attr));
	NUMBER("query_ece", ibv_query_ece(qp, &ece));
	NUMBER("set_ece", ibv_set_ece(qp, &ece));
	MUST(!ibv_destroy_qp(qp));
}

/* NULL pointers. These cases run last, because the state after a crash is undefined. */
static void nulls(void)
{
	struct ibv_qp_init_attr init = usual(IBV_QPT_RC);
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 4, .max_sge = 2 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &shared);
	struct ibv_device_attr attr;
	struct ibv_qp *qp = connected();
	struct ibv_recv_wr *bad_receive;
	struct ibv_send_wr datagram = { .opcode = IBV_WR_SEND }, *bad_send;
	struct ibv_cq *without;
	int count;

	CASE("get_device_list(NULL)") puts(ibv_get_device_list(NULL) ? "made" : "NULL");
	CASE("get_device_list") puts(ibv_get_device_list(&count) && count >= 1 ? "made" : "NULL");
	POINTER("create_cq without channel and context", (without = ibv_create_cq(context, 1, NULL, NULL, 0)));
	NUMBER("query_qp without a place for init_attr", ibv_query_qp(qp, &(struct ibv_qp_attr){ 0 }, IBV_QP_STATE, NULL));
	NUMBER("post_send of NULL", ibv_post_send(qp, NULL, &bad_send));
	NUMBER("post_recv of NULL", ibv_post_recv(qp, NULL, &bad_receive));
	NUMBER("post_srq_recv of NULL", ibv_post_srq_recv(srq, NULL, &bad_receive));
	STEP("rereg_mr of NULL", ibv_rereg_mr(NULL, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0));
	NUMBER("query_device of NULL", ibv_query_device(NULL, &attr));
	NUMBER("query_device to NULL", ibv_query_device(context, NULL));
	POINTER("alloc_pd of NULL", ibv_alloc_pd(NULL));
	NUMBER("dealloc_pd of NULL", ibv_dealloc_pd(NULL));
	POINTER("reg_mr without a domain", ibv_reg_mr(NULL, buffer, 64, LOCAL));
	NUMBER("dereg_mr of NULL", ibv_dereg_mr(NULL));
	NUMBER("destroy_comp_channel of NULL", ibv_destroy_comp_channel(NULL));
	NUMBER("destroy_cq of NULL", ibv_destroy_cq(NULL));
	POINTER("create_srq without attributes", ibv_create_srq(pd, NULL));
	NUMBER("destroy_srq of NULL", ibv_destroy_srq(NULL));
	POINTER("create_qp without attributes", ibv_create_qp(pd, NULL));
	POINTER("create_qp without a domain", ibv_create_qp(NULL, &init));
	init.send_cq = NULL;
	POINTER("create_qp without a send queue's completions", ibv_create_qp(pd, &init));
	init = usual(IBV_QPT_RC);
	init.recv_cq = NULL;
	POINTER("create_qp without a receive queue's completions", ibv_create_qp(pd, &init));
	NUMBER("modify_qp without attributes", ibv_modify_qp(qp, NULL, to_init));
	NUMBER("destroy_qp of NULL", ibv_destroy_qp(NULL));
	POINTER("create_ah without attributes", ibv_create_ah(pd, NULL));
	NUMBER("destroy_ah of NULL", ibv_destroy_ah(NULL));
	NUMBER("attach_mcast without a group", ibv_attach_mcast(qp, NULL, 0));
	MINUS_ONE("query_gid to NULL", ibv_query_gid(context, 1, 0, NULL));
	MINUS_ONE("close_device of NULL", ibv_close_device(NULL));
	POINTER("open_device of NULL", ibv_open_device(NULL));
	CASE("free_device_list of NULL") (ibv_free_device_list(NULL), puts("0"));
	/* rdma-core crashes while it holds the lock of the queue pair. */
	NUMBER("post_send of a datagram without an address handle", ibv_post_send(unreliable(IBV_QPT_UD), &datagram, &bad_send));
}

/*
 * A second destruction of an object, or the destruction of an object whose context is closed.
 * rdma-core reads freed memory here, so these cases run on other implementations only ("twice").
 * Windows, device memory, thread domains and XRC domains are excluded, because inline functions of
 * the header dereference their pointers.
 */
static int twice(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 4, .max_sge = 2 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &shared);
	struct ibv_ah_attr to_self = { .is_global = 1, .port_num = 1 };
	struct ibv_context *second = open_first();
	struct ibv_pd *left = ibv_alloc_pd(second), *domain = ibv_alloc_pd(context);
	struct ibv_cq *queue = ibv_create_cq(context, 4, NULL, NULL, 0);
	struct ibv_mr *region = ibv_reg_mr(pd, buffer, 64, LOCAL);
	struct ibv_qp *qp = connected();
	struct ibv_ah *ah;
	struct ibv_qp_attr attr = { 0 };
	struct ibv_qp_init_attr init = usual(IBV_QPT_RC);
	void *with;

	MUST(!ibv_query_gid(context, 1, 0, &to_self.grh.dgid) && (ah = ibv_create_ah(pd, &to_self)));
	MUST(channel && srq && left && domain && queue && region);
	MUST(!ibv_destroy_qp(qp) && ibv_destroy_qp(qp) == EINVAL);
	MUST(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == EINVAL && ibv_query_qp(qp, &attr, 0, &init) == EINVAL);
	MUST(!ibv_destroy_srq(srq) && ibv_destroy_srq(srq) == EINVAL);
	init.srq = srq;
	MUST(!ibv_create_qp(pd, &init) && errno == EINVAL);
	init.srq = NULL;
	MUST(!ibv_destroy_ah(ah) && ibv_destroy_ah(ah) == EINVAL);
	MUST(!ibv_destroy_cq(queue) && ibv_destroy_cq(queue) == EINVAL && ibv_resize_cq(queue, 8) == EINVAL);
	init.send_cq = queue;
	MUST(!ibv_create_qp(pd, &init) && errno == EINVAL);
	MUST(!ibv_dereg_mr(region) && ibv_dereg_mr(region) == EINVAL);
	MUST(!ibv_destroy_comp_channel(channel) && ibv_destroy_comp_channel(channel) == EINVAL);
	MUST(!ibv_create_cq(context, 4, NULL, channel, 0) && errno == EINVAL);
	MUST(ibv_get_cq_event(channel, &queue, &with) == -1 && errno == EINVAL);
	MUST(!ibv_dealloc_pd(domain) && ibv_dealloc_pd(domain) == EINVAL);
	MUST(!ibv_reg_mr(domain, buffer, 64, LOCAL) && errno == EINVAL);
	MUST(!ibv_close_device(second) && ibv_close_device(second) == -1 && errno == EINVAL);
	MUST(ibv_dealloc_pd(left) == EINVAL);
	MUST(!ibv_alloc_pd(second) && errno == EINVAL);
	puts("all as expected");
	return 0;
}

#endif
