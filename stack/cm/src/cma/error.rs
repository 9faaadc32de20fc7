//! The errors of the RDMA IP CM service.

use std::net::{IpAddr, SocketAddr};

use urxe_wire::mad::PortSpace;

use super::{CmaId, IdState};
use crate::cm::CmError;
use crate::cm::table::CmState;
use urxe_types::attr::QpState;
use urxe_types::errno::OsError;
use urxe_types::owner::ListenError;

urxe_types::errors! {
    /// The reason why a call fails.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum CmaError {
        /// The identifier was destroyed.
        #[error("identifier {0:?} does not exist")]
        UnknownId(CmaId) = ENOENT,
        /// The channel was destroyed.
        #[error("the event channel does not exist")]
        UnknownChannel = ENOENT,
        /// `call`: the refused call.
        #[error("the identifier is in state {state}, so it cannot {call}")]
        State { id: CmaId, state: IdState, call: &'static str } = EINVAL,
        /// The identifier has not connected, or its device was removed.
        #[error("the identifier is in state {state} and has no connection")]
        NoConnection { id: CmaId, state: IdState } = EINVAL,
        /// A program can only listen on, or connect from, addresses of its host.
        #[error("{ip} is not an address of this host")]
        NotLocal { ip: IpAddr } = EADDRNOTAVAIL,
        /// The address belongs to this host, but no device has it.
        #[error("{ip} is an address of this host, but no RDMA device has it")]
        NoDevice { ip: IpAddr } = ENODEV,
        /// `errno`: the answer of the kernel's routing table.
        #[error("there is no route to {dst}: {errno}")]
        NoRoute { dst: SocketAddr, errno: OsError } = errno.raw_os_error(),
        /// The source address and the destination are IPv4 and IPv6.
        #[error("the identifier is bound to an address of another IP version than {dst}")]
        Families { dst: SocketAddr } = EINVAL,
        /// `errno` is the kernel's number, which depends on wildcard addresses.
        #[error("port {} of {space} is in use by another identifier of this process", addr.port())]
        PortTaken { addr: SocketAddr, space: PortSpace, errno: i32 } = *errno,
        /// All ports of the ephemeral range are in use.
        #[error("no port of {space} is free")]
        NoPortLeft { space: PortSpace } = EADDRNOTAVAIL,
        /// Another process has claimed the port.
        #[error(transparent)] Claim(#[from] ListenError),
        /// `max`: the size of the field of the message.
        #[error("{given} bytes of private data exceed the maximum of {max} bytes")]
        PrivateData { given: usize, max: usize } = EINVAL,
        /// Only INIT, RTR and RTS have attributes of the connection.
        #[error("a connection has no attributes for a queue pair in state {0}")]
        QpState(QpState) = EINVAL,
        /// The connection has ended, or was rejected.
        #[error("the connection is in state {0}, so it has no attributes for a queue pair")]
        CommState(CmState) = EINVAL,
        /// Only addresses of groups can be joined.
        #[error("{0} is not a multicast address")]
        NoGroup(IpAddr) = EINVAL,
        /// The group was left before, or never joined.
        #[error("the identifier is not a member of this group")]
        NotJoined = EADDRNOTAVAIL,
        /// The connection manager rejected the call.
        #[error(transparent)] Cm(#[from] CmError),
    }
}
