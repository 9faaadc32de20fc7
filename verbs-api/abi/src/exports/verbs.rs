//! libibverbs of rdma-core 44 to 56: nodes 1.0 to 1.14.

use super::export;
use crate::{
    absent, ah, attributes, channel, context, cq, devices, events, gid, import, mr, multicast, pd,
    port, qp, rate, srq, sysfs, text,
};

export! {
    v1_0 "@@IBVERBS_1.0" {
        ibv_copy_path_rec_from_kern => absent::nothing,
        ibv_copy_path_rec_to_kern => absent::nothing,
        ibv_copy_qp_attr_from_kern => absent::nothing,
        ibv_create_comp_channel => channel::create_comp_channel,
        ibv_destroy_comp_channel => channel::destroy_comp_channel,
        ibv_get_sysfs_path => sysfs::get_sysfs_path,
        ibv_rate_to_mult => rate::rate_to_mult,
        ibv_read_sysfs_file => sysfs::read_sysfs_file,
        mult_to_ibv_rate => rate::mult_to_rate,
    }
    v1_1 "@@IBVERBS_1.1" {
        ibv_ack_async_event => events::ack_async_event,
        ibv_ack_cq_events => channel::ack_cq_events,
        ibv_alloc_pd => pd::alloc_pd,
        ibv_attach_mcast => multicast::attach_mcast,
        ibv_close_device => context::close_device,
        ibv_copy_ah_attr_from_kern => absent::nothing,
        ibv_create_ah => ah::create_ah,
        ibv_create_ah_from_wc => ah::create_ah_from_wc,
        ibv_create_cq => cq::create_cq,
        ibv_create_qp => qp::create_qp,
        ibv_create_srq => srq::create_srq,
        ibv_dealloc_pd => pd::dealloc_pd,
        ibv_dereg_mr => mr::dereg_mr,
        ibv_destroy_ah => ah::destroy_ah,
        ibv_destroy_cq => cq::destroy_cq,
        ibv_destroy_qp => qp::destroy_qp,
        ibv_destroy_srq => srq::destroy_srq,
        ibv_detach_mcast => multicast::detach_mcast,
        ibv_dofork_range => absent::zero,
        ibv_dontfork_range => absent::zero,
        ibv_event_type_str => text::event_type_str,
        ibv_fork_init => absent::zero,
        ibv_free_device_list => devices::free_device_list,
        ibv_get_async_event => events::get_async_event,
        ibv_get_cq_event => channel::get_cq_event,
        ibv_get_device_guid => devices::get_device_guid,
        ibv_get_device_list => devices::get_device_list,
        ibv_get_device_name => devices::get_device_name,
        ibv_init_ah_from_wc => ah::init_ah_from_wc,
        ibv_modify_qp => qp::modify_qp,
        ibv_modify_srq => srq::modify_srq,
        ibv_node_type_str => text::node_type_str,
        ibv_open_device => context::open_device,
        ibv_port_state_str => text::port_state_str,
        ibv_query_device => attributes::query_device,
        ibv_query_gid => gid::query_gid,
        ibv_query_pkey => port::query_pkey,
        ibv_query_port => port::query_port,
        ibv_query_qp => qp::query_qp,
        ibv_query_srq => srq::query_srq,
        ibv_rate_to_mbps => rate::rate_to_mbps,
        ibv_reg_mr => mr::reg_mr,
        ibv_rereg_mr => mr::rereg_mr,
        ibv_resize_cq => cq::resize_cq,
        ibv_resolve_eth_l2_from_gid => absent::minus_one,
        ibv_wc_status_str => text::wc_status_str,
        mbps_to_ibv_rate => rate::mbps_to_rate,
    }
    old_v1_1 "@IBVERBS_1.1" {
        ibv_register_driver => absent::nothing,
    }
    v1_5 "@@IBVERBS_1.5" {
        ibv_get_pkey_index => port::get_pkey_index,
    }
    v1_6 "@@IBVERBS_1.6" {
        ibv_qp_to_qp_ex => qp::qp_to_qp_ex,
    }
    v1_7 "@@IBVERBS_1.7" {
        ibv_reg_mr_iova => mr::reg_mr_iova,
    }
    v1_8 "@@IBVERBS_1.8" {
        ibv_reg_mr_iova2 => mr::reg_mr_iova2,
    }
    v1_9 "@@IBVERBS_1.9" {
        ibv_get_device_index => devices::get_device_index,
    }
    v1_10 "@@IBVERBS_1.10" {
        ibv_import_device => import::import_device,
        ibv_import_mr => import::import_mr,
        ibv_import_pd => import::import_pd,
        ibv_query_ece => qp::query_ece,
        ibv_set_ece => qp::set_ece,
        ibv_unimport_mr => import::unimport_mr,
        ibv_unimport_pd => import::unimport_pd,
    }
    v1_11 "@@IBVERBS_1.11" {
        _ibv_query_gid_ex => gid::query_gid_ex,
        _ibv_query_gid_table => gid::query_gid_table,
    }
    v1_12 "@@IBVERBS_1.12" {
        ibv_reg_dmabuf_mr => mr::reg_dmabuf_mr,
    }
    v1_13 "@@IBVERBS_1.13" {
        ibv_import_dm => import::import_dm,
        ibv_is_fork_initialized => absent::fork_unneeded,
        ibv_unimport_dm => import::unimport_dm,
    }
    v1_14 "@@IBVERBS_1.14" {
        ibv_query_qp_data_in_order => qp::query_qp_data_in_order,
    }
}

// What libibverbs 1.0 of 2006 had under the same names and with other structures. A program of that
// age is told that there are no devices, and does not get further.
export! {
    compat "@IBVERBS_1.0" {
        ibv_ack_async_event => absent::nothing,
        ibv_ack_cq_events => absent::nothing,
        ibv_alloc_pd => absent::pointer,
        ibv_attach_mcast => absent::number,
        ibv_close_device => absent::minus_one,
        ibv_create_ah => absent::pointer,
        ibv_create_cq => absent::pointer,
        ibv_create_qp => absent::pointer,
        ibv_create_srq => absent::pointer,
        ibv_dealloc_pd => absent::number,
        ibv_dereg_mr => absent::number,
        ibv_destroy_ah => absent::number,
        ibv_destroy_cq => absent::number,
        ibv_destroy_qp => absent::number,
        ibv_destroy_srq => absent::number,
        ibv_detach_mcast => absent::number,
        ibv_free_device_list => absent::nothing,
        ibv_get_async_event => absent::minus_one,
        ibv_get_cq_event => absent::minus_one,
        ibv_get_device_guid => absent::zero,
        ibv_get_device_list => absent::pointer,
        ibv_get_device_name => absent::pointer,
        ibv_modify_qp => absent::number,
        ibv_modify_srq => absent::number,
        ibv_open_device => absent::pointer,
        ibv_query_device => absent::number,
        ibv_query_gid => absent::minus_one,
        ibv_query_pkey => absent::minus_one,
        ibv_query_port => absent::number,
        ibv_query_qp => absent::number,
        ibv_query_srq => absent::number,
        ibv_reg_mr => absent::pointer,
        ibv_resize_cq => absent::number,
    }
}
