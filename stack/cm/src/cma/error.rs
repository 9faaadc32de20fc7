//! Why a call fails.

use std::net::{IpAddr, SocketAddr};

use urxe_wire::mad::PortSpace;

use super::{CmaId, IdState};
use crate::cm::CmError;
use crate::cm::table::CmState;
use urxe_types::attr::QpState;
use urxe_types::owner::ListenError;

urxe_types::errors! {
    /// Why a call fails.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum CmaError {
        #[error("there is no such identifier: {0:?}")]
        UnknownId(CmaId) = ENOENT,
        #[error("there is no such event channel")]
        UnknownChannel = ENOENT,
        #[error("the identifier is in {state}: it cannot {call}")]
        State { id: CmaId, state: IdState, call: &'static str } = EINVAL,
        /// It has no communication: it has not connected, or its device is gone.
        #[error("the identifier is in {state} and has no connection")]
        NoConnection { id: CmaId, state: IdState } = EINVAL,
        #[error("{ip} is no address of this host")]
        NotLocal { ip: IpAddr } = EADDRNOTAVAIL,
        /// The address is this host's, but no device has it.
        #[error("{ip} is an address of this host, but of no RDMA device")]
        NoDevice { ip: IpAddr } = ENODEV,
        #[error("there is no way to {dst}: {errno}")]
        NoRoute { dst: SocketAddr, errno: rustix::io::Errno } = errno.raw_os_error(),
        #[error("the identifier is bound to an address of the other IP version than {dst}")]
        Families { dst: SocketAddr } = EINVAL,
        /// `errno`: the kernel's number for it, which depends on wildcards.
        #[error("port {} of {space} is taken by another identifier of this process", addr.port())]
        PortTaken { addr: SocketAddr, space: PortSpace, errno: i32 } = *errno,
        /// All ports that nobody asks for by number are taken.
        #[error("no port of {space} is free")]
        NoPortLeft { space: PortSpace } = EADDRNOTAVAIL,
        /// The port is claimed by another process.
        #[error(transparent)] Claim(#[from] ListenError),
        #[error("{given} bytes of private data, at most {max} are allowed")]
        PrivateData { given: usize, max: usize } = EINVAL,
        #[error("a queue pair in {0} takes no attributes from a connection")]
        QpState(QpState) = EINVAL,
        /// Nothing is left of the connection that it would be an attribute of.
        #[error("the connection is in {0}, where a queue pair takes no attributes from it")]
        CommState(CmState) = EINVAL,
        #[error("{0} is no multicast address")]
        NoGroup(IpAddr) = EINVAL,
        #[error("the identifier is no member of this group")]
        NotJoined = EADDRNOTAVAIL,
        /// The connection manager.
        #[error(transparent)] Cm(#[from] CmError),
    }
}
