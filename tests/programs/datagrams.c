/*
 * Datagrams over two devices of one process. An address handle belongs to a protection domain of
 * one device. Each function refuses the handle of another domain or device. The program is compiled
 * against Debian's headers, linked with -libverbs, and does not depend on urxe.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <infiniband/verbs.h>

#include "check.h"

#define QKEY 0x1234

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static struct end open_end(struct ibv_device *device)
{
	struct end end = { .context = ibv_open_device(device) };
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_UD, .sq_sig_all = 1, .send_ops_flags = IBV_QP_EX_WITH_SEND,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };

	MUST(end.context && (end.pd = ibv_alloc_pd(end.context)));
	MUST((end.cq = ibv_create_cq(end.context, 16, NULL, NULL, 0)));
	init.pd = end.pd;
	init.send_cq = init.recv_cq = end.cq;
	MUST((end.qp = ibv_create_qp_ex(end.context, &init)));
	MUST(!ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	MUST(!ibv_modify_qp(end.qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	MUST(!ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	return end;
}

static struct ibv_ah *address_handle(struct ibv_pd *pd, const struct end *to)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 4 } };
	struct ibv_ah *ah;

	MUST(!ibv_query_gid(to->context, 1, 0, &attr.grh.dgid));
	MUST((ah = ibv_create_ah(pd, &attr)));
	return ah;
}

static int post(const struct end *from, struct ibv_ah *ah, uint32_t qpn)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .wr.ud = { .ah = ah, .remote_qpn = qpn, .remote_qkey = QKEY } }, *bad = NULL;
	int answer = ibv_post_send(from->qp, &wr, &bad);

	MUST(!answer || bad == &wr);
	return answer;
}

static int build(const struct end *from, struct ibv_ah *ah, uint32_t qpn)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(from->qp);

	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_set_ud_addr(qp, ah, qpn, QKEY);
	return ibv_wr_complete(qp);
}

static struct ibv_wc completion(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int count;

	while (!(count = ibv_poll_cq(cq, 1, &wc)))
		;
	MUST(count == 1 && wc.status == IBV_WC_SUCCESS);
	return wc;
}

int main(void)
{
	int count, (*const ways[])(const struct end *, struct ibv_ah *, uint32_t) = { post, build };
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_ah *right, *of_other_device, *of_other_pd;
	struct ibv_recv_wr receive = { .sg_list = NULL }, *bad;
	struct ibv_sge sge = { .length = 40 };
	static char header[40];
	struct end a, b;
	struct ibv_mr *mr;
	struct ibv_pd *pd;
	unsigned int i;

	MUST(list && count == 2);
	a = open_end(list[0]);
	b = open_end(list[1]);
	ibv_free_device_list(list);
	MUST((pd = ibv_alloc_pd(a.context)) && (mr = ibv_reg_mr(b.pd, header, sizeof(header), IBV_ACCESS_LOCAL_WRITE)));
	sge.addr = (uintptr_t)header;
	sge.lkey = mr->lkey;
	receive.sg_list = &sge;
	receive.num_sge = 1;
	right = address_handle(a.pd, &b);
	of_other_device = address_handle(b.pd, &a);
	of_other_pd = address_handle(pd, &b);
	for (i = 0; i < 2; i++) {
		MUST(!ibv_post_recv(b.qp, &receive, &bad));
		MUST(ways[i](&a, of_other_device, b.qp->qp_num) == EINVAL);
		MUST(ways[i](&a, of_other_pd, b.qp->qp_num) == EINVAL);
		MUST(!ways[i](&a, right, b.qp->qp_num));
		completion(a.cq);
		MUST(completion(b.cq).src_qp == a.qp->qp_num);
	}
	MUST(ibv_poll_cq(a.cq, 1, &(struct ibv_wc){ 0 }) == 0 && ibv_poll_cq(b.cq, 1, &(struct ibv_wc){ 0 }) == 0);
	MUST(!ibv_destroy_ah(right) && !ibv_destroy_ah(of_other_device) && !ibv_destroy_ah(of_other_pd));
	MUST(!ibv_close_device(a.context) && !ibv_close_device(b.context));
	puts("all as expected");
	return 0;
}
