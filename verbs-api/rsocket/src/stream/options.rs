//! Options of a SOCK_STREAM.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::io::Errno;
use urxe_stack::qp::attr::PathMtu;
use urxe_stack::sync::lock;
use urxe_wire::Gid;

use super::Stream;
use super::connect::Phase;
use crate::error::Result;
use crate::options::{RDMA_ROUTE, SOL_RDMA, number};
use crate::protocol::stream::ConnState;
use crate::service::Service;
use crate::transport::id::CmId;

/// Size of `struct ibv_path_data`, which describes a route.
const PATH_DATA: usize = 72;
/// The selector of an exact value (`IBV_PATH_RECORD`).
const EXACT: u8 = 2 << 6;
/// `IBV_RATE_2_5_GBPS`, the lowest rate, which every link supports.
const RATE: u8 = 2;
const HOP_LIMIT: u8 = 64;
/// Seconds between keepalives, if the system states no time.
const KEEPALIVE_TIME: u32 = 7200;
/// `TCP_ESTABLISHED` and `TCP_CLOSE` of `struct tcp_info`, and the offset of `tcpi_snd_cwnd`.
const TCP_ESTABLISHED: u8 = 1;
const TCP_CLOSE: u8 = 7;
const SND_CWND: usize = 80;
const TCP_INFO_LEN: usize = 104;

impl Stream {
    pub fn set_option(self: &Arc<Self>, level: c_int, name: c_int, value: &[u8]) -> Result<()> {
        let is_fixed = !matches!(*self.phase(), Phase::Unbound | Phase::Bound | Phase::Listening);
        let mut options = lock(&self.options);
        if options.set_stored(level, name, value, is_fixed)? {
            return Ok(());
        }
        let on = number(value)? != 0;
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => {
                let set = self.id.call(|cma, _, id| cma.set_reuse_addr(id, on));
                // A late change is no error, as in the original.
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
                    Service::get().start_keepalive(self, period)?;
                } else {
                    Service::get().stop_keepalive(self.fd);
                }
            }
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => {
                let seconds = u32::try_from(number(value)?).ok().filter(|seconds| *seconds > 0);
                options.keepalive_time = seconds.ok_or(Errno::INVAL)?;
                if options.keepalive {
                    let period = Duration::from_secs(options.keepalive_time.into());
                    drop(options);
                    Service::get().start_keepalive(self, period)?;
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
                let failed = self.io.get().is_some_and(|io| io.state() == ConnState::Failed);
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
        lock(&self.options).get_stored(level, name).ok_or(Errno::OPNOTSUPP)
    }

    /// Returns the path to which the address resolved.
    fn route(&self) -> Option<Route> {
        let phase = self.phase();
        let is_resolved =
            matches!(*phase, Phase::Connecting(_) | Phase::Accepting(_) | Phase::Connected);
        is_resolved.then(|| Route::of(&self.id).ok()).flatten()
    }

    /// Returns the state and the window, as far as they exist here. The function never waits for a
    /// lock, because iperf3 calls it in signal handlers.
    fn tcp_info(&self) -> Vec<u8> {
        let mut info = vec![0; TCP_INFO_LEN];
        info[0] = TCP_CLOSE;
        if let Some(io) = self.io.get() {
            let is_over =
                io.try_state().is_some_and(|state| !matches!(state, ConnState::Open { .. }));
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
        id.inspect(|cma, id| {
            let ((local, remote), mtu) = (cma.gids(id)?, cma.path_mtu(id)?);
            let (traffic_class, packet_life_time) = cma.route(id)?;
            Ok(Self { local, remote, mtu, traffic_class, packet_life_time })
        })
    }

    /// Returns the path as a `struct ibv_path_data`, with numbers in network byte order.
    fn path_data(&self) -> [u8; PATH_DATA] {
        let mut data = [0; PATH_DATA];
        let mut put = |at: usize, bytes: &[u8]| data[at..at + bytes.len()].copy_from_slice(bytes);
        put(16, &self.remote.0);
        put(32, &self.local.0);
        // Hop limit, traffic class, reversible with one path, the default partition.
        put(55, &[HOP_LIMIT, self.traffic_class, 1 << 7 | 1, 0xff, 0xff]);
        let exact = [self.mtu.number(), RATE, self.packet_life_time];
        put(62, &exact.map(|value| value | EXACT));
        data
    }
}
