//! libibverbs of rdma-core 44 to 65: nodes 1.0 to 1.18.

use super::{export, export_alike, unsupported};
use crate::{
    ah, attributes, buf, channel, context, cq, devices, enums, events, gid, import, mr, pd, port,
    qp, srq, sysfs,
};

export! {
    v1_0 "@@IBVERBS_1.0" {
        ibv_create_comp_channel => channel::create_comp_channel,
        ibv_destroy_comp_channel => channel::destroy_comp_channel,
        ibv_get_sysfs_path => sysfs::get_sysfs_path,
        ibv_rate_to_mult => enums::rate_to_mult,
        ibv_read_sysfs_file => sysfs::read_sysfs_file,
        mult_to_ibv_rate => enums::mult_to_rate,
    }
    v1_1 "@@IBVERBS_1.1" {
        ibv_ack_async_event => events::ack_async_event,
        ibv_ack_cq_events => channel::ack_cq_events,
        ibv_alloc_pd => pd::alloc_pd,
        ibv_attach_mcast => qp::attach_mcast,
        ibv_close_device => context::close_device,
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
        ibv_detach_mcast => qp::detach_mcast,
        ibv_event_type_str => enums::event_type_str,
        ibv_free_device_list => devices::free_device_list,
        ibv_get_async_event => events::get_async_event,
        ibv_get_cq_event => channel::get_cq_event,
        ibv_get_device_guid => devices::get_device_guid,
        ibv_get_device_list => devices::get_device_list,
        ibv_get_device_name => devices::get_device_name,
        ibv_init_ah_from_wc => ah::init_ah_from_wc,
        ibv_modify_qp => qp::modify_qp,
        ibv_modify_srq => srq::modify_srq,
        ibv_node_type_str => enums::node_type_str,
        ibv_open_device => context::open_device,
        ibv_port_state_str => enums::port_state_str,
        ibv_query_device => attributes::query_device,
        ibv_query_gid => gid::query_gid,
        ibv_query_pkey => port::query_pkey,
        ibv_query_port => port::query_port,
        ibv_query_qp => qp::query_qp,
        ibv_query_srq => srq::query_srq,
        ibv_rate_to_mbps => enums::rate_to_mbps,
        ibv_reg_mr => mr::reg_mr,
        ibv_rereg_mr => mr::rereg_mr,
        ibv_resize_cq => cq::resize_cq,
        ibv_wc_status_str => enums::wc_status_str,
        mbps_to_ibv_rate => enums::mbps_to_rate,
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
        ibv_unimport_dm => import::unimport_dm,
    }
    v1_14 "@@IBVERBS_1.14" {
        ibv_query_qp_data_in_order => qp::query_qp_data_in_order,
    }
    v1_15 "@@IBVERBS_1.15" {
        ibv_reg_mr_ex => buf::reg_mr_ex,
    }
    v1_17 "@@IBVERBS_1.17" {
        ibv_alloc_buf => buf::alloc_buf,
        ibv_free_buf => buf::free_buf,
        ibv_reg_buf_mr => buf::reg_buf_mr,
    }
    v1_18 "@@IBVERBS_1.18" {
        ibv_export_buf_dmabuf_fd => buf::export_buf_dmabuf_fd,
    }
}

export_alike! {
    v1_0 "@@IBVERBS_1.0" {
        unsupported::nothing {
            ibv_copy_path_rec_from_kern, ibv_copy_path_rec_to_kern, ibv_copy_qp_attr_from_kern,
        }
    }
    v1_1 "@@IBVERBS_1.1" {
        unsupported::nothing { ibv_copy_ah_attr_from_kern }
        unsupported::zero { ibv_dofork_range, ibv_dontfork_range, ibv_fork_init }
        unsupported::minus_one { ibv_resolve_eth_l2_from_gid }
    }
    old_v1_1 "@IBVERBS_1.1" { unsupported::nothing { ibv_register_driver } }
    v1_13 "@@IBVERBS_1.13" { unsupported::fork_unneeded { ibv_is_fork_initialized } }
    v1_15 "@@IBVERBS_1.15" {
        unsupported::null { ibv_alloc_dmah }
        unsupported::errno { ibv_dealloc_dmah }
    }
    v1_16 "@@IBVERBS_1.16" {
        unsupported::minus_one { ibv_dm_export_dmabuf_fd }
        unsupported::errno { ibv_query_port_speed }
    }
    v1_18 "@@IBVERBS_1.18" {
        unsupported::errno {
            _ibv_query_comp_cntr_caps, ibv_destroy_comp_cntr, ibv_inc_comp_cntr,
            ibv_inc_err_comp_cntr, ibv_qp_attach_comp_cntr, ibv_read_comp_cntr,
            ibv_read_err_comp_cntr, ibv_set_comp_cntr, ibv_set_err_comp_cntr,
        }
        unsupported::null { ibv_create_comp_cntr }
    }
}

// libibverbs 1.0 of 2006 had functions of the same names with other structures. For programs of
// that age, the device list is empty, so they do not call further functions.
export_alike! {
    compat "@IBVERBS_1.0" {
        unsupported::nothing { ibv_ack_async_event, ibv_ack_cq_events, ibv_free_device_list }
        unsupported::null {
            ibv_alloc_pd, ibv_create_ah, ibv_create_cq, ibv_create_qp, ibv_create_srq,
            ibv_get_device_list, ibv_get_device_name, ibv_open_device, ibv_reg_mr,
        }
        unsupported::errno {
            ibv_attach_mcast, ibv_dealloc_pd, ibv_dereg_mr, ibv_destroy_ah, ibv_destroy_cq,
            ibv_destroy_qp, ibv_destroy_srq, ibv_detach_mcast, ibv_modify_qp, ibv_modify_srq,
            ibv_query_device, ibv_query_port, ibv_query_qp, ibv_query_srq, ibv_resize_cq,
        }
        unsupported::minus_one {
            ibv_close_device, ibv_get_async_event, ibv_get_cq_event, ibv_query_gid, ibv_query_pkey,
        }
        unsupported::zero { ibv_get_device_guid }
    }
}
