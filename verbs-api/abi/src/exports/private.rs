//! What rdma-core's own programs and providers import from libibverbs. Their node is renamed
//! whenever one of them changes.
//!
//! Programs (`ibv_devinfo`, pyverbs) need [`gid::query_gid_type`]. The providers libmlx5 and
//! libefa, which perftest and others are linked against, call `verbs_register_driver_*` when they
//! are loaded, for devices that do not exist here; the rest they import and never call.

use super::export;
use crate::{absent, gid, text};

/// Exports each symbol in every node: the first is the one that new programs are linked against.
macro_rules! private {
    ($($symbol:ident => $function:path,)*) => {
        export! {
            p34 "@@IBVERBS_PRIVATE_34" { $($symbol => $function,)* }
            p57 "@IBVERBS_PRIVATE_57" { $($symbol => $function,)* }
            p59 "@IBVERBS_PRIVATE_59" { $($symbol => $function,)* }
            p64 "@IBVERBS_PRIVATE_64" { $($symbol => $function,)* }
            p65 "@IBVERBS_PRIVATE_65" { $($symbol => $function,)* }
        }
    };
}

private! {
    __ioctl_final_num_attrs => absent::zero,
    __verbs_log => absent::nothing,
    _verbs_init_and_alloc_context => absent::pointer,
    execute_ioctl => absent::number,
    ibv_cmd_advise_mr => absent::number,
    ibv_cmd_alloc_dm => absent::number,
    ibv_cmd_alloc_mw => absent::number,
    ibv_cmd_alloc_pd => absent::number,
    ibv_cmd_attach_mcast => absent::number,
    ibv_cmd_close_xrcd => absent::number,
    ibv_cmd_create_ah => absent::number,
    ibv_cmd_create_counters => absent::number,
    ibv_cmd_create_cq => absent::number,
    ibv_cmd_create_cq_ex => absent::number,
    ibv_cmd_create_cq_ex2 => absent::number,
    ibv_cmd_create_flow => absent::number,
    ibv_cmd_create_flow_action_esp => absent::number,
    ibv_cmd_create_qp => absent::number,
    ibv_cmd_create_qp_ex => absent::number,
    ibv_cmd_create_qp_ex2 => absent::number,
    ibv_cmd_create_rwq_ind_table => absent::number,
    ibv_cmd_create_srq => absent::number,
    ibv_cmd_create_srq_ex => absent::number,
    ibv_cmd_create_wq => absent::number,
    ibv_cmd_dealloc_mw => absent::number,
    ibv_cmd_dealloc_pd => absent::number,
    ibv_cmd_dereg_mr => absent::number,
    ibv_cmd_destroy_ah => absent::number,
    ibv_cmd_destroy_counters => absent::number,
    ibv_cmd_destroy_cq => absent::number,
    ibv_cmd_destroy_flow => absent::number,
    ibv_cmd_destroy_flow_action => absent::number,
    ibv_cmd_destroy_qp => absent::number,
    ibv_cmd_destroy_rwq_ind_table => absent::number,
    ibv_cmd_destroy_srq => absent::number,
    ibv_cmd_destroy_wq => absent::number,
    ibv_cmd_detach_mcast => absent::number,
    ibv_cmd_free_dm => absent::number,
    ibv_cmd_get_context => absent::number,
    ibv_cmd_modify_cq => absent::number,
    ibv_cmd_modify_flow_action_esp => absent::number,
    ibv_cmd_modify_qp => absent::number,
    ibv_cmd_modify_qp_ex => absent::number,
    ibv_cmd_modify_srq => absent::number,
    ibv_cmd_modify_wq => absent::number,
    ibv_cmd_open_qp => absent::number,
    ibv_cmd_open_xrcd => absent::number,
    ibv_cmd_poll_cq => absent::number,
    ibv_cmd_post_recv => absent::number,
    ibv_cmd_post_send => absent::number,
    ibv_cmd_post_srq_recv => absent::number,
    ibv_cmd_query_context => absent::number,
    ibv_cmd_query_device_any => absent::number,
    ibv_cmd_query_mr => absent::number,
    ibv_cmd_query_port => absent::number,
    ibv_cmd_query_qp => absent::number,
    ibv_cmd_query_srq => absent::number,
    ibv_cmd_read_counters => absent::number,
    ibv_cmd_reg_dm_mr => absent::number,
    ibv_cmd_reg_dmabuf_mr => absent::number,
    ibv_cmd_reg_mr => absent::number,
    ibv_cmd_req_notify_cq => absent::number,
    ibv_cmd_rereg_mr => absent::number,
    ibv_cmd_resize_cq => absent::number,
    ibv_query_gid_type => gid::query_gid_type,
    ibv_read_ibdev_sysfs_file => absent::minus_one,
    ibv_wr_opcode_str => text::wr_opcode_str,
    verbs_init_cq => absent::nothing,
    verbs_open_device => absent::pointer,
    verbs_set_ops => absent::nothing,
    verbs_uninit_context => absent::nothing,
}

export! {
    p34 "@@IBVERBS_PRIVATE_34" { verbs_register_driver_34 => absent::nothing, }
    p57 "@@IBVERBS_PRIVATE_57" { verbs_register_driver_57 => absent::nothing, }
    p59 "@@IBVERBS_PRIVATE_59" {
        verbs_register_driver_59 => absent::nothing,
        ibv_cmd_alloc_dmah => absent::number,
        ibv_cmd_export_dmabuf_fd => absent::number,
        ibv_cmd_free_dmah => absent::number,
        ibv_cmd_query_port_speed => absent::number,
        ibv_cmd_reg_mr_ex => absent::number,
    }
    p64 "@@IBVERBS_PRIVATE_64" {
        verbs_register_driver_64 => absent::nothing,
        ibv_dmabuf_heap_alloc => absent::pointer,
        ibv_dmabuf_heap_cc_shared_init => absent::pointer,
        ibv_dmabuf_heap_destroy => absent::nothing,
        ibv_dmabuf_heap_free => absent::nothing,
    }
    p64 "@IBVERBS_PRIVATE_64" {
        ibv_cmd_alloc_dmah => absent::number,
        ibv_cmd_export_dmabuf_fd => absent::number,
        ibv_cmd_free_dmah => absent::number,
        ibv_cmd_query_port_speed => absent::number,
        ibv_cmd_reg_mr_ex => absent::number,
    }
    p65 "@@IBVERBS_PRIVATE_65" { verbs_register_driver_65 => absent::nothing, }
}

/// A byte that is 0, which providers look at before they destroy objects of a device that is gone.
macro_rules! flag {
    ($tag:literal $version:literal) => {
        std::arch::global_asm!(
            ".pushsection .bss.urxe_flags, \"aw\", @nobits",
            concat!(".globl urxe_", $tag, "_flag"),
            concat!(".type urxe_", $tag, "_flag, @object"),
            concat!("urxe_", $tag, "_flag: .byte 0"),
            concat!(".size urxe_", $tag, "_flag, 1"),
            concat!(".symver urxe_", $tag, "_flag, verbs_allow_disassociate_destroy", $version),
            ".popsection",
        );
    };
}

flag!("p34" "@@IBVERBS_PRIVATE_34");
flag!("p57" "@IBVERBS_PRIVATE_57");
flag!("p59" "@IBVERBS_PRIVATE_59");
flag!("p64" "@IBVERBS_PRIVATE_64");
flag!("p65" "@IBVERBS_PRIVATE_65");
