//! Socket options: those of a socket that mean something here, and SOL_RDMA's.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::io::Errno;
use urxe_stack::qp::attr::PathMtu;
use urxe_stack::sync::lock;
use urxe_wire::Gid;

use super::connect::Phase;
use super::endpoint::MAX_QUEUE;
use super::error::Result;
use super::id::CmId;
use super::protocol::connect::{meant, told};
use super::protocol::sender::LOW_WATER;
use super::protocol::stream::{Life, Sizes};
use super::service::Service;
use super::stream::Stream;

/// The level of options that only rsockets have.
pub const SOL_RDMA: c_int = 0x10000;
const RDMA_SQSIZE: c_int = 0;
const RDMA_RQSIZE: c_int = 1;
const RDMA_INLINE: c_int = 2;
const RDMA_IOMAPSIZE: c_int = 3;
const RDMA_ROUTE: c_int = 4;
/// `struct ibv_path_data`, of which a route is made.
const PATH_DATA: usize = 72;
/// Said of a value that is exact (`IBV_PATH_RECORD`).
const EXACTLY: u8 = 2 << 6;
/// `IBV_RATE_2_5_GBPS`, the least, which any link has.
const RATE: u8 = 2;
const HOP_LIMIT: u8 = 64;
/// `TCP_MAXSEG` of who has no route yet.
const NO_ROUTE_SEGMENT: c_int = 2048;
/// Seconds between keepalives where the system says nothing.
const KEEPALIVE_TIME: u32 = 7200;
/// `TCP_ESTABLISHED`, `TCP_CLOSE` of `struct tcp_info`, and where `tcpi_snd_cwnd` lies in it.
const TCP_ESTABLISHED: u8 = 1;
const TCP_CLOSE: u8 = 7;
const SND_CWND: usize = 80;
const TCP_INFO_LEN: usize = 104;

/// What is set of a socket.
#[derive(Clone, Debug)]
pub struct Options {
    pub sizes: Sizes,
    pub keepalive: bool,
    keepalive_time: u32,
    reuse_address: bool,
    out_of_band_inline: bool,
    lingers_off: bool,
    no_delay: bool,
    only_v6: bool,
    type_of_service: c_int,
    route: Option<Vec<u8>>,
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

    /// Options that need nothing but their place; whether this is one. `is_fixed`: buffers are made
    /// already.
    pub fn set_plain(
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
            // The connection is a reliable one: these have nothing to say.
            (
                libc::IPPROTO_TCP,
                libc::TCP_KEEPCNT | libc::TCP_KEEPINTVL | libc::TCP_MAXSEG | libc::TCP_CONGESTION,
            ) => {}
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => self.no_delay = number()? != 0,
            (SOL_RDMA, _) if is_fixed => return Err(Errno::INVAL),
            (SOL_RDMA, RDMA_SQSIZE) => sizes.send_queue = queue_size(number()?),
            (SOL_RDMA, RDMA_RQSIZE) => sizes.recv_queue = queue_size(number()?),
            (SOL_RDMA, RDMA_INLINE) => sizes.inline = queue_size(number()?).into(),
            (SOL_RDMA, RDMA_IOMAPSIZE) => sizes.iomaps = meant(told(number()?.cast_unsigned())),
            (SOL_RDMA, RDMA_ROUTE) => self.route = Some(value.to_vec()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What such an option stands at.
    pub fn get_plain(&self, level: c_int, name: c_int) -> Option<Vec<u8>> {
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

/// An option's number; a program may also give one byte.
pub fn number(value: &[u8]) -> Result<c_int> {
    match (value.first_chunk(), value.first()) {
        (Some(bytes), _) => Ok(c_int::from_ne_bytes(*bytes)),
        (None, Some(byte)) => Ok((*byte).into()),
        (None, None) => Err(Errno::INVAL),
    }
}

/// Buffers are as large as twice what was asked for, as a socket's.
fn doubled(size: c_int) -> u32 {
    size.cast_unsigned().saturating_mul(2).clamp(2, 1 << 30)
}

fn queue_size(size: c_int) -> u16 {
    u16::try_from(size.cast_unsigned()).unwrap_or(MAX_QUEUE).min(MAX_QUEUE)
}

impl Stream {
    pub fn set_option(self: &Arc<Self>, level: c_int, name: c_int, value: &[u8]) -> Result<()> {
        let is_fixed = !matches!(*self.phase(), Phase::Unbound | Phase::Bound | Phase::Listening);
        let mut options = lock(&self.options);
        if options.set_plain(level, name, value, is_fixed)? {
            return Ok(());
        }
        let on = number(value)? != 0;
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => {
                let set = self.id.call(|cma, _, id| cma.set_reuse_addr(id, on));
                // Too late is no error, as in the original.
                if !is_fixed {
                    set?;
                }
                options.reuse_address = on;
            }
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => {
                if on && options.keepalive_time == 0 {
                    options.keepalive_time = system_keepalive_time();
                }
                options.keepalive = on;
                let period = Duration::from_secs(options.keepalive_time.into());
                drop(options);
                if on {
                    Service::get().keep_alive(self, period)?;
                } else {
                    Service::get().let_sleep(self.fd);
                }
            }
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => {
                let seconds = u32::try_from(number(value)?).ok().filter(|seconds| *seconds > 0);
                options.keepalive_time = seconds.ok_or(Errno::INVAL)?;
                if options.keepalive {
                    let period = Duration::from_secs(options.keepalive_time.into());
                    drop(options);
                    Service::get().keep_alive(self, period)?;
                }
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => {
                let tos = number(value)?;
                self.id.call(|cma, _, id| cma.options_mut(id).map(|own| own.tos = tos as u8))?;
                options.type_of_service = tos;
            }
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => {
                self.id.call(|cma, _, id| cma.set_af_only(id, on))?;
                options.only_v6 = on;
            }
            _ => return Err(Errno::OPNOTSUPP),
        }
        Ok(())
    }

    pub fn option(&self, level: c_int, name: c_int) -> Result<Vec<u8>> {
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => {
                let failed = self.io.get().is_some_and(|io| io.life() == Life::Failed);
                let error = self.error.swap(0, Ordering::AcqRel);
                let error = if error == 0 && failed { libc::EIO } else { error };
                return Ok(error.to_ne_bytes().to_vec());
            }
            (libc::SOL_SOCKET, libc::SO_TYPE) => {
                return Ok(libc::SOCK_STREAM.to_ne_bytes().to_vec());
            }
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => {
                let listens = matches!(*self.phase(), Phase::Listening);
                return Ok(c_int::from(listens).to_ne_bytes().to_vec());
            }
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => {
                if let Some(route) = self.route() {
                    let bytes = route.mtu.bytes() as c_int;
                    return Ok(bytes.to_ne_bytes().to_vec());
                }
            }
            (libc::IPPROTO_TCP, libc::TCP_INFO) => return Ok(self.tcp_info()),
            (SOL_RDMA, RDMA_ROUTE) if lock(&self.options).route.is_none() => {
                let route = self.route();
                return Ok(route.map(|route| route.path_data().to_vec()).unwrap_or_default());
            }
            _ => {}
        }
        lock(&self.options).get_plain(level, name).ok_or(Errno::OPNOTSUPP)
    }

    /// Returns the path that its address resolved to.
    fn route(&self) -> Option<Route> {
        let phase = self.phase();
        let is_resolved =
            matches!(*phase, Phase::Connecting(_) | Phase::Accepting(_) | Phase::Connected);
        is_resolved.then(|| Route::of(&self.id).ok()).flatten()
    }

    /// State and window, as far as there are such here. It takes no lock that it has to wait for:
    /// iperf3 asks out of signal handlers.
    fn tcp_info(&self) -> Vec<u8> {
        let mut info = vec![0; TCP_INFO_LEN];
        info[0] = TCP_CLOSE;
        if let Some(io) = self.io.get() {
            let is_over = io.try_life().is_some_and(|life| !matches!(life, Life::Open { .. }));
            info[0] = if is_over { TCP_CLOSE } else { TCP_ESTABLISHED };
            let window = u32::from(io.endpoint.sizes.send_queue);
            info[SND_CWND..SND_CWND + 4].copy_from_slice(&window.to_ne_bytes());
        }
        info
    }
}

fn system_keepalive_time() -> u32 {
    let said = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_keepalive_time");
    said.ok()
        .and_then(|text| text.trim().parse().ok())
        .filter(|time| *time > 0)
        .unwrap_or(KEEPALIVE_TIME)
}

/// The path of a connection.
struct Route {
    local: Gid,
    remote: Gid,
    mtu: PathMtu,
    traffic_class: u8,
    packet_life_time: u8,
}

impl Route {
    fn of(id: &CmId) -> Result<Self> {
        id.look(|cma, id| {
            let ((local, remote), mtu) = (cma.gids(id)?, cma.path_mtu(id)?);
            let (traffic_class, packet_life_time) = cma.route(id)?;
            Ok(Self { local, remote, mtu, traffic_class, packet_life_time })
        })
    }

    /// Returns the path as `struct ibv_path_data` has it, numbers in network order.
    fn path_data(&self) -> [u8; PATH_DATA] {
        let mut data = [0; PATH_DATA];
        let mut put = |at: usize, bytes: &[u8]| data[at..at + bytes.len()].copy_from_slice(bytes);
        put(16, &self.remote.0);
        put(32, &self.local.0);
        // Hop limit, traffic class, reversible with one path, the default partition.
        put(55, &[HOP_LIMIT, self.traffic_class, 1 << 7 | 1, 0xff, 0xff]);
        let exact = [self.mtu.number(), RATE, self.packet_life_time];
        put(62, &exact.map(|value| value | EXACTLY));
        data
    }
}
