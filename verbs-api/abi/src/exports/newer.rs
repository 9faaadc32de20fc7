//! What rdma-core 57 to 65 added to both libraries. Of libibverbs' part none is offered yet.

use super::export;
use crate::absent;
use crate::cm::written;
use crate::rsocket;

export! {
    v1_15 "@@IBVERBS_1.15" {
        ibv_alloc_dmah => absent::pointer,
        ibv_dealloc_dmah => absent::number,
        ibv_reg_mr_ex => absent::pointer,
    }
    v1_16 "@@IBVERBS_1.16" {
        ibv_dm_export_dmabuf_fd => absent::minus_one,
        ibv_query_port_speed => absent::number,
    }
    v1_17 "@@IBVERBS_1.17" {
        ibv_alloc_buf => absent::pointer,
        ibv_free_buf => absent::nothing,
        ibv_reg_buf_mr => absent::pointer,
    }
    v1_18 "@@IBVERBS_1.18" {
        _ibv_query_comp_cntr_caps => absent::number,
        ibv_create_comp_cntr => absent::pointer,
        ibv_destroy_comp_cntr => absent::number,
        ibv_export_buf_dmabuf_fd => absent::minus_one,
        ibv_inc_comp_cntr => absent::number,
        ibv_inc_err_comp_cntr => absent::number,
        ibv_qp_attach_comp_cntr => absent::number,
        ibv_read_comp_cntr => absent::number,
        ibv_read_err_comp_cntr => absent::number,
        ibv_set_comp_cntr => absent::number,
        ibv_set_err_comp_cntr => absent::number,
    }
    cm1_4 "@@RDMACM_1.4" {
        rdma_query_addrinfo => written::query_addrinfo,
        rdma_resolve_addrinfo => written::resolve_addrinfo,
        rdma_write_cm_event => written::write_cm_event,
    }
    cm1_5 "@@RDMACM_1.5" {
        repoll_create => rsocket::epoll_create,
        repoll_ctl => rsocket::epoll_ctl,
        repoll_wait => rsocket::epoll_wait,
    }
}
