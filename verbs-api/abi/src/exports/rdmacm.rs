//! librdmacm: nodes 1.0 to 1.3. Connecting by it is not offered yet: every call says EOPNOTSUPP, so that programs which need the
//! library only to be loaded run.

use super::export;
use crate::absent;

export! {
    cm1_0 "@@RDMACM_1.0" {
        raccept => absent::minus_one,
        rbind => absent::minus_one,
        rclose => absent::minus_one,
        rconnect => absent::minus_one,
        rdma_accept => absent::minus_one,
        rdma_ack_cm_event => absent::minus_one,
        rdma_bind_addr => absent::minus_one,
        rdma_connect => absent::minus_one,
        rdma_create_ep => absent::minus_one,
        rdma_create_event_channel => absent::pointer,
        rdma_create_id => absent::minus_one,
        rdma_create_qp => absent::minus_one,
        rdma_create_qp_ex => absent::minus_one,
        rdma_create_srq => absent::minus_one,
        rdma_create_srq_ex => absent::minus_one,
        rdma_destroy_ep => absent::nothing,
        rdma_destroy_event_channel => absent::nothing,
        rdma_destroy_id => absent::minus_one,
        rdma_destroy_qp => absent::nothing,
        rdma_destroy_srq => absent::nothing,
        rdma_disconnect => absent::minus_one,
        rdma_event_str => absent::no_event,
        rdma_free_devices => absent::nothing,
        rdma_freeaddrinfo => absent::nothing,
        rdma_get_cm_event => absent::minus_one,
        rdma_get_devices => absent::pointer,
        rdma_get_dst_port => absent::zero,
        rdma_get_request => absent::minus_one,
        rdma_get_src_port => absent::zero,
        rdma_getaddrinfo => absent::minus_one,
        rdma_join_multicast => absent::minus_one,
        rdma_leave_multicast => absent::minus_one,
        rdma_listen => absent::minus_one,
        rdma_migrate_id => absent::minus_one,
        rdma_notify => absent::minus_one,
        rdma_reject => absent::minus_one,
        rdma_resolve_addr => absent::minus_one,
        rdma_resolve_route => absent::minus_one,
        rdma_set_option => absent::minus_one,
        rfcntl => absent::minus_one,
        rgetpeername => absent::minus_one,
        rgetsockname => absent::minus_one,
        rgetsockopt => absent::minus_one,
        riomap => absent::minus_one,
        riounmap => absent::minus_one,
        riowrite => absent::minus_one,
        rlisten => absent::minus_one,
        rpoll => absent::minus_one,
        rread => absent::minus_one,
        rreadv => absent::minus_one,
        rrecv => absent::minus_one,
        rrecvfrom => absent::minus_one,
        rrecvmsg => absent::minus_one,
        rselect => absent::minus_one,
        rsend => absent::minus_one,
        rsendmsg => absent::minus_one,
        rsendto => absent::minus_one,
        rsetsockopt => absent::minus_one,
        rshutdown => absent::minus_one,
        rsocket => absent::minus_one,
        rwrite => absent::minus_one,
        rwritev => absent::minus_one,
    }
    cm1_1 "@@RDMACM_1.1" {
        rdma_join_multicast_ex => absent::minus_one,
    }
    cm1_2 "@@RDMACM_1.2" {
        rdma_establish => absent::minus_one,
        rdma_init_qp_attr => absent::minus_one,
    }
    cm1_3 "@@RDMACM_1.3" {
        rdma_get_remote_ece => absent::minus_one,
        rdma_reject_ece => absent::minus_one,
        rdma_set_local_ece => absent::minus_one,
    }
}
