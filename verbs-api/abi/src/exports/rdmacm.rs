//! librdmacm of rdma-core 44 to 65: nodes 1.0 to 1.5.

use super::export;
use crate::cm::{
    address, addrinfo, channel, connect, endpoint, event, id, multicast, option, qp, srq,
    user_events,
};
use crate::enums;
use crate::rsocket;

export! {
    cm1_0 "@@RDMACM_1.0" {
        raccept => rsocket::accept,
        rbind => rsocket::bind,
        rclose => rsocket::close,
        rconnect => rsocket::connect,
        rdma_accept => connect::accept,
        rdma_ack_cm_event => event::ack_cm_event,
        rdma_bind_addr => address::bind_addr,
        rdma_connect => connect::connect,
        rdma_create_ep => endpoint::create_ep,
        rdma_create_event_channel => channel::create_event_channel,
        rdma_create_id => id::create_id,
        rdma_create_qp => qp::create_qp,
        rdma_create_qp_ex => qp::create_qp_ex,
        rdma_create_srq => srq::create_srq,
        rdma_create_srq_ex => srq::create_srq_ex,
        rdma_destroy_ep => endpoint::destroy_ep,
        rdma_destroy_event_channel => channel::destroy_event_channel,
        rdma_destroy_id => id::destroy_id,
        rdma_destroy_qp => qp::destroy_qp,
        rdma_destroy_srq => srq::destroy_srq,
        rdma_disconnect => connect::disconnect,
        rdma_event_str => enums::event_str,
        rdma_free_devices => endpoint::free_devices,
        rdma_freeaddrinfo => addrinfo::freeaddrinfo,
        rdma_get_cm_event => event::get_cm_event,
        rdma_get_devices => endpoint::get_devices,
        rdma_get_dst_port => address::get_dst_port,
        rdma_get_request => endpoint::get_request,
        rdma_get_src_port => address::get_src_port,
        rdma_getaddrinfo => addrinfo::getaddrinfo,
        rdma_join_multicast => multicast::join_multicast,
        rdma_leave_multicast => multicast::leave_multicast,
        rdma_listen => connect::listen,
        rdma_migrate_id => id::migrate_id,
        rdma_notify => connect::notify,
        rdma_reject => connect::reject,
        rdma_resolve_addr => address::resolve_addr,
        rdma_resolve_route => address::resolve_route,
        rdma_set_option => option::set_option,
        rfcntl => rsocket::fcntl,
        rgetpeername => rsocket::getpeername,
        rgetsockname => rsocket::getsockname,
        rgetsockopt => rsocket::getsockopt,
        riomap => rsocket::iomap,
        riounmap => rsocket::iounmap,
        riowrite => rsocket::iowrite,
        rlisten => rsocket::listen,
        rpoll => rsocket::poll,
        rread => rsocket::read,
        rreadv => rsocket::readv,
        rrecv => rsocket::recv,
        rrecvfrom => rsocket::recvfrom,
        rrecvmsg => rsocket::recvmsg,
        rselect => rsocket::select,
        rsend => rsocket::send,
        rsendmsg => rsocket::sendmsg,
        rsendto => rsocket::sendto,
        rsetsockopt => rsocket::setsockopt,
        rshutdown => rsocket::shutdown,
        rsocket => rsocket::socket,
        rwrite => rsocket::write,
        rwritev => rsocket::writev,
    }
    cm1_1 "@@RDMACM_1.1" {
        rdma_join_multicast_ex => multicast::join_multicast_ex,
    }
    cm1_2 "@@RDMACM_1.2" {
        rdma_establish => connect::establish,
        rdma_init_qp_attr => qp::init_qp_attr,
    }
    cm1_3 "@@RDMACM_1.3" {
        rdma_get_remote_ece => connect::get_remote_ece,
        rdma_reject_ece => connect::reject_ece,
        rdma_set_local_ece => connect::set_local_ece,
    }
    cm1_4 "@@RDMACM_1.4" {
        rdma_query_addrinfo => user_events::query_addrinfo,
        rdma_resolve_addrinfo => user_events::resolve_addrinfo,
        rdma_write_cm_event => user_events::write_cm_event,
    }
    cm1_5 "@@RDMACM_1.5" {
        repoll_create => rsocket::epoll_create,
        repoll_ctl => rsocket::epoll_ctl,
        repoll_wait => rsocket::epoll_wait,
    }
}
