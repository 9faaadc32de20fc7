//! Symbols of libibverbs that rdma-core's own programs and providers import. rdma-core renames
//! their node whenever one of them changes.
//!
//! Programs (`ibv_devinfo`, pyverbs) need [`gid::query_gid_type`]. perftest and other programs are
//! linked against the providers libmlx5 and libefa. When the loader loads these, they call
//! `verbs_register_driver_*` for hardware that does not exist here. They import the other symbols
//! and never call them.

use super::{export_alike, unsupported};
use crate::{enums, gid};

/// Exports each symbol in every node; newly linked programs use the first node.
macro_rules! private {
    ($($symbols:tt)*) => {
        export_alike! {
            p34 "@@IBVERBS_PRIVATE_34" { $($symbols)* }
            p57 "@IBVERBS_PRIVATE_57" { $($symbols)* }
            p59 "@IBVERBS_PRIVATE_59" { $($symbols)* }
            p64 "@IBVERBS_PRIVATE_64" { $($symbols)* }
            p65 "@IBVERBS_PRIVATE_65" { $($symbols)* }
        }
    };
}

private! {
    unsupported::zero { __ioctl_final_num_attrs }
    unsupported::nothing { __verbs_log, verbs_init_cq, verbs_set_ops, verbs_uninit_context }
    unsupported::null { _verbs_init_and_alloc_context, verbs_open_device }
    unsupported::errno {
        execute_ioctl, ibv_cmd_advise_mr, ibv_cmd_alloc_dm, ibv_cmd_alloc_mw, ibv_cmd_alloc_pd,
        ibv_cmd_attach_mcast, ibv_cmd_close_xrcd, ibv_cmd_create_ah, ibv_cmd_create_counters,
        ibv_cmd_create_cq, ibv_cmd_create_cq_ex, ibv_cmd_create_cq_ex2, ibv_cmd_create_flow,
        ibv_cmd_create_flow_action_esp, ibv_cmd_create_qp, ibv_cmd_create_qp_ex,
        ibv_cmd_create_qp_ex2, ibv_cmd_create_rwq_ind_table, ibv_cmd_create_srq,
        ibv_cmd_create_srq_ex, ibv_cmd_create_wq, ibv_cmd_dealloc_mw, ibv_cmd_dealloc_pd,
        ibv_cmd_dereg_mr, ibv_cmd_destroy_ah, ibv_cmd_destroy_counters, ibv_cmd_destroy_cq,
        ibv_cmd_destroy_flow, ibv_cmd_destroy_flow_action, ibv_cmd_destroy_qp,
        ibv_cmd_destroy_rwq_ind_table, ibv_cmd_destroy_srq, ibv_cmd_destroy_wq,
        ibv_cmd_detach_mcast, ibv_cmd_free_dm, ibv_cmd_get_context, ibv_cmd_modify_cq,
        ibv_cmd_modify_flow_action_esp, ibv_cmd_modify_qp, ibv_cmd_modify_qp_ex, ibv_cmd_modify_srq,
        ibv_cmd_modify_wq, ibv_cmd_open_qp, ibv_cmd_open_xrcd, ibv_cmd_poll_cq, ibv_cmd_post_recv,
        ibv_cmd_post_send, ibv_cmd_post_srq_recv, ibv_cmd_query_context, ibv_cmd_query_device_any,
        ibv_cmd_query_mr, ibv_cmd_query_port, ibv_cmd_query_qp, ibv_cmd_query_srq,
        ibv_cmd_read_counters, ibv_cmd_reg_dm_mr, ibv_cmd_reg_dmabuf_mr, ibv_cmd_reg_mr,
        ibv_cmd_req_notify_cq, ibv_cmd_rereg_mr, ibv_cmd_resize_cq,
    }
    gid::query_gid_type { ibv_query_gid_type }
    unsupported::minus_one { ibv_read_ibdev_sysfs_file }
    enums::wr_opcode_str { ibv_wr_opcode_str }
}

export_alike! {
    p34 "@@IBVERBS_PRIVATE_34" { unsupported::nothing { verbs_register_driver_34 } }
    p57 "@@IBVERBS_PRIVATE_57" { unsupported::nothing { verbs_register_driver_57 } }
    p59 "@@IBVERBS_PRIVATE_59" {
        unsupported::nothing { verbs_register_driver_59 }
        unsupported::errno {
            ibv_cmd_alloc_dmah, ibv_cmd_export_dmabuf_fd, ibv_cmd_free_dmah,
            ibv_cmd_query_port_speed, ibv_cmd_reg_mr_ex,
        }
    }
    p64 "@@IBVERBS_PRIVATE_64" {
        unsupported::nothing {
            verbs_register_driver_64, ibv_dmabuf_heap_destroy, ibv_dmabuf_heap_free,
        }
        unsupported::null { ibv_dmabuf_heap_alloc, ibv_dmabuf_heap_cc_shared_init }
    }
    p64 "@IBVERBS_PRIVATE_64" {
        unsupported::errno {
            ibv_cmd_alloc_dmah, ibv_cmd_export_dmabuf_fd, ibv_cmd_free_dmah,
            ibv_cmd_query_port_speed, ibv_cmd_reg_mr_ex,
        }
    }
    p65 "@@IBVERBS_PRIVATE_65" {
        unsupported::nothing { verbs_register_driver_65 }
        unsupported::errno {
            ibv_cmd_create_comp_cntr, ibv_cmd_destroy_comp_cntr, ibv_cmd_inc_comp_cntr,
            ibv_cmd_inc_err_comp_cntr, ibv_cmd_qp_attach_comp_cntr, ibv_cmd_query_comp_cntr_caps,
            ibv_cmd_read_comp_cntr, ibv_cmd_read_err_comp_cntr, ibv_cmd_set_comp_cntr,
            ibv_cmd_set_err_comp_cntr,
        }
    }
    p65 "@IBVERBS_PRIVATE_65" {
        unsupported::nothing { ibv_dmabuf_heap_destroy, ibv_dmabuf_heap_free }
        unsupported::null { ibv_dmabuf_heap_alloc, ibv_dmabuf_heap_cc_shared_init }
        unsupported::errno {
            ibv_cmd_alloc_dmah, ibv_cmd_export_dmabuf_fd, ibv_cmd_free_dmah,
            ibv_cmd_query_port_speed, ibv_cmd_reg_mr_ex,
        }
    }
}

/// Exports a zero byte. Providers read it before they destroy objects of a removed device.
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
