//! Socket options that are only stored: the options of both socket types, and those of SOL_RDMA.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::io::Errno;
use urxe_stack::allocate;

use crate::error::{Result, errno};
use crate::protocol::connect::{decode_iomaps, encode_iomaps};
use crate::protocol::sender::LOW_WATER;
use crate::protocol::stream::Sizes;

/// Maximum number of work requests of a queue that the protocol can count (`RS_QP_MAX_SIZE`).
pub const MAX_QUEUE: u16 = 0xfffe;
/// The level of options that only rsockets have.
pub const SOL_RDMA: c_int = 0x10000;
const RDMA_SQSIZE: c_int = 0;
const RDMA_RQSIZE: c_int = 1;
const RDMA_INLINE: c_int = 2;
const RDMA_IOMAPSIZE: c_int = 3;
pub const RDMA_ROUTE: c_int = 4;
/// `TCP_MAXSEG` of a socket without a route.
const NO_ROUTE_SEGMENT: c_int = 2048;
/// Whether a call may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    Never,
    Here,
}

/// The status flags (such as `O_NONBLOCK`) and descriptor flags (`FD_CLOEXEC`) that the program
/// set.
#[derive(Debug, Default)]
pub struct Flags {
    pub status: AtomicI32,
    pub descriptor: AtomicI32,
}

impl Flags {
    /// Returns whether a call with the message flags `flags` may sleep.
    pub fn wait(&self, flags: c_int) -> Wait {
        let nonblocking = self.status.load(Ordering::Relaxed) & libc::O_NONBLOCK;
        if nonblocking != 0 || flags & libc::MSG_DONTWAIT != 0 { Wait::Never } else { Wait::Here }
    }

    /// Sets the flags.
    pub fn set(&self, status: c_int, descriptor: c_int) {
        self.status.store(status, Ordering::Relaxed);
        self.descriptor.store(descriptor, Ordering::Relaxed);
    }
}

/// The options of a socket.
#[derive(Clone, Debug)]
pub struct Options {
    pub sizes: Sizes,
    pub keepalive: bool,
    pub keepalive_time: u32,
    pub reuse_address: bool,
    out_of_band_inline: bool,
    lingers_off: bool,
    no_delay: bool,
    pub only_v6: bool,
    pub type_of_service: c_int,
    pub route: Option<Vec<u8>>,
}

impl Options {
    pub const fn new(sizes: Sizes) -> Self {
        Self {
            sizes,
            keepalive: false,
            keepalive_time: 0,
            reuse_address: false,
            out_of_band_inline: false,
            lingers_off: false,
            no_delay: false,
            only_v6: false,
            type_of_service: 0,
            route: None,
        }
    }

    /// Sets an option that is only stored, and returns whether it is one. `is_fixed`: the buffers
    /// exist, so that their sizes cannot change.
    pub fn set_stored(
        &mut self,
        level: c_int,
        name: c_int,
        value: &[u8],
        is_fixed: bool,
    ) -> Result<bool> {
        let number = || number(value);
        let sizes = &mut self.sizes;
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_RCVBUF) if !is_fixed => {
                sizes.recv_buffer = doubled(number()?)
            }
            (libc::SOL_SOCKET, libc::SO_SNDBUF) if !is_fixed => {
                let size = doubled(number()?);
                sizes.send_buffer = if size < LOW_WATER { LOW_WATER * 2 } else { size };
            }
            (libc::SOL_SOCKET, libc::SO_RCVBUF | libc::SO_SNDBUF) => {}
            (libc::SOL_SOCKET, libc::SO_LINGER) => self.lingers_off = number()? == 0,
            (libc::SOL_SOCKET, libc::SO_OOBINLINE) => self.out_of_band_inline = number()? != 0,
            // A reliable connection always has these properties, so the values are ignored.
            (
                libc::IPPROTO_TCP,
                libc::TCP_KEEPCNT | libc::TCP_KEEPINTVL | libc::TCP_MAXSEG | libc::TCP_CONGESTION,
            ) => {}
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => self.no_delay = number()? != 0,
            (SOL_RDMA, _) if is_fixed => return Err(Errno::INVAL),
            (SOL_RDMA, RDMA_SQSIZE) => sizes.send_queue = queue_size(number()?),
            (SOL_RDMA, RDMA_RQSIZE) => sizes.recv_queue = queue_size(number()?),
            (SOL_RDMA, RDMA_INLINE) => sizes.inline = queue_size(number()?).into(),
            (SOL_RDMA, RDMA_IOMAPSIZE) => {
                sizes.iomaps = decode_iomaps(encode_iomaps(number()?.cast_unsigned()))
            }
            (SOL_RDMA, RDMA_ROUTE) => {
                self.route = Some(allocate::copied(value).map_err(errno)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the value of an option that is only stored.
    pub fn get_stored(&self, level: c_int, name: c_int) -> Option<Vec<u8>> {
        let sizes = &self.sizes;
        let is = |on: bool| c_int::from(on);
        let number = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => is(self.reuse_address),
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => is(self.keepalive),
            (libc::SOL_SOCKET, libc::SO_OOBINLINE) => is(self.out_of_band_inline),
            (libc::SOL_SOCKET, libc::SO_BROADCAST) => 0,
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => sizes.recv_buffer.cast_signed(),
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => sizes.send_buffer.cast_signed(),
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let linger = [is(!self.lingers_off), 0];
                return Some(linger.into_iter().flat_map(c_int::to_ne_bytes).collect());
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => self.type_of_service,
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION | libc::TCP_KEEPCNT | libc::TCP_KEEPINTVL) => {
                1
            }
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => self.keepalive_time.cast_signed(),
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => is(self.no_delay),
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => NO_ROUTE_SEGMENT,
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => is(self.only_v6),
            (SOL_RDMA, RDMA_SQSIZE) => sizes.send_queue.into(),
            (SOL_RDMA, RDMA_RQSIZE) => sizes.recv_queue.into(),
            (SOL_RDMA, RDMA_INLINE) => sizes.inline.cast_signed(),
            (SOL_RDMA, RDMA_IOMAPSIZE) => sizes.iomaps.cast_signed(),
            (SOL_RDMA, RDMA_ROUTE) => return self.route.clone(),
            _ => return None,
        };
        Some(number.to_ne_bytes().to_vec())
    }
}

/// Returns the number in the value of an option; a program may also pass one byte.
pub fn number(value: &[u8]) -> Result<c_int> {
    match (value.first_chunk(), value.first()) {
        (Some(bytes), _) => Ok(c_int::from_ne_bytes(*bytes)),
        (None, Some(byte)) => Ok((*byte).into()),
        (None, None) => Err(Errno::INVAL),
    }
}

/// Returns twice the requested size, as the system does for sockets.
fn doubled(size: c_int) -> u32 {
    size.cast_unsigned().saturating_mul(2).clamp(2, 1 << 30)
}

fn queue_size(size: c_int) -> u16 {
    u16::try_from(size.cast_unsigned()).unwrap_or(MAX_QUEUE).min(MAX_QUEUE)
}
