/*
 * A device with the profile mlx5: the identity of the NIC, and limits that hold. The NIC's own
 * interface, mlx5dv, reports that it does not support the device. The program is compiled against
 * Debian's headers, linked with -libverbs -lmlx5, and does not depend on urxe.
 *
 * It prints the line of the first failed check.
 */
#include <infiniband/mlx5dv.h>

#include "check.h"

static struct ibv_qp *queue_pair(struct ibv_pd *pd, struct ibv_cq *cq, int wr, int sge)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = wr, .max_recv_wr = 1, .max_send_sge = sge, .max_recv_sge = 1 },
	};

	return ibv_create_qp(pd, &init);
}

static void has_no_interface_of_its_own(struct ibv_device *device, struct ibv_context *context)
{
	struct mlx5dv_context_attr attr = { 0 };
	struct mlx5dv_context dv = { 0 };

	MUST(!mlx5dv_is_supported(device));
	errno = 0;
	MUST(!mlx5dv_open_device(device, &attr) && errno == EOPNOTSUPP);
	MUST(mlx5dv_query_device(context, &dv) == EOPNOTSUPP);
}

static void limits_hold(struct ibv_context *context, const struct ibv_device_attr *attr)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = attr->max_srq_wr + 1, .max_sge = 1 } };
	struct ibv_qp *qp;

	MUST(pd && cq);
	MUST(qp = queue_pair(pd, cq, attr->max_qp_wr, attr->max_sge));
	MUST(!ibv_destroy_qp(qp));
	MUST(!queue_pair(pd, cq, attr->max_qp_wr + 1, 1));
	MUST(!queue_pair(pd, cq, 1, attr->max_sge + 1));
	MUST(!ibv_create_cq(context, attr->max_cqe + 1, NULL, NULL, 0));
	MUST(!ibv_create_srq(pd, &srq));
	MUST(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	struct ibv_context *context;

	MUST(list && list[0] && !strcmp(ibv_get_device_name(list[0]), "mlx5_0"));
	MUST(context = ibv_open_device(list[0]));
	has_no_interface_of_its_own(list[0], context);
	MUST(!ibv_query_device(context, &attr) && !ibv_query_port(context, 1, &port));
	MUST(attr.vendor_id == 0x02c9 && attr.vendor_part_id == 4119 && !strncmp(attr.fw_ver, "16.", 3));
	MUST(port.active_width == 2 && port.active_speed == 32);
	MUST(port.max_msg_sz == 1U << 30);
	MUST(attr.max_qp_wr == 32768 && attr.max_sge == 30 && attr.max_qp_rd_atom == 16);
	MUST(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B && attr.device_cap_flags & IBV_DEVICE_XRC);
	/* The NIC has it, and urxe has not. */
	MUST(!(attr.device_cap_flags & (IBV_DEVICE_AUTO_PATH_MIG | IBV_DEVICE_RAW_IP_CSUM)));
	/* urxe has it, and the NIC has not. */
	MUST(!(attr.device_cap_flags & (IBV_DEVICE_UD_AV_PORT_ENFORCE | IBV_DEVICE_SRQ_RESIZE)));
	limits_hold(context, &attr);
	MUST(!ibv_close_device(context));
	ibv_free_device_list(list);
	puts("all as expected");
	return 0;
}
