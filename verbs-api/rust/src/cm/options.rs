//! How a connection shall be: what to say to the peer, and which objects to make it with.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use urxe_stack::cma::{Options as IdOptions, RetryPolicy};
use urxe_stack::qp::attr::{QpCap, QpType};

use super::error::ConnectError;
use crate::cq::CompletionQueue;
use crate::device::Device;
use crate::pd::ProtectionDomain;
use crate::qp::{DEFAULT_CAP, QueuePair};
use crate::srq::SharedReceiveQueue;

/// Bytes of private data that go with [`prepare`](super::prepare) and [`connect`](super::connect).
pub const CONNECT_DATA_MAX: usize = 56;
/// Bytes that go with accepting.
pub const ACCEPT_DATA_MAX: usize = 196;
/// Bytes that go with refusing.
pub const REJECT_DATA_MAX: usize = 148;

/// A packet's time to the peer and back, as requests reckon it (cma.c, `CMA_IBOE_PACKET_LIFETIME`).
const ROUND_TRIP_NS: u64 = 2 * (4096 << 16);
const UNIT_NS: u64 = 4096;

/// How a connection shall be, for both who connects and who accepts. Without further ado: a
/// protection domain, a queue pair and two completion queues of its own, with room for 128 sends
/// and 128 receives of 4 scatter-gather entries and 64 bytes of inline data; as many READs and
/// atomics at a time as both ends can; no private data.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = urxe::Device::open_address([127, 49, 11, 1])?;
/// let options = urxe::cm::Options::new()
///     .pd(&device.alloc_pd()?)
///     .private_data(b"version 3")
///     .max_recv_wr(16)
///     .timeout(std::time::Duration::from_secs(5));
/// # let _ = options;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Options {
    device: Option<Device>,
    pd: Option<ProtectionDomain>,
    send_cq: Option<CompletionQueue>,
    recv_cq: Option<CompletionQueue>,
    srq: Option<SharedReceiveQueue>,
    cap: QpCap,
    signal_all: bool,
    pub(super) source: Option<SocketAddr>,
    pub(super) private_data: Vec<u8>,
    pub(super) responder_resources: Option<u8>,
    pub(super) initiator_depth: Option<u8>,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) min_rnr_timer: u8,
    type_of_service: u8,
    ack_timeout: u8,
    pub(super) timeout: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            device: None,
            pd: None,
            send_cq: None,
            recv_cq: None,
            srq: None,
            cap: DEFAULT_CAP,
            signal_all: false,
            source: None,
            private_data: Vec::new(),
            responder_resources: None,
            initiator_depth: None,
            retry_count: 7,
            rnr_retry_count: 7,
            min_rnr_timer: 12,
            type_of_service: 0,
            ack_timeout: 0,
            timeout: None,
        }
    }
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The device to connect with. By default that of [`pd`](Self::pd) or of a queue, else
    /// whichever of the configured devices ([`devices`](crate::devices)) the way to the peer begins
    /// at; those are opened by the first connection that needs them, and stay so. Who accepts has
    /// the device that the request came to.
    pub fn device(mut self, device: &Device) -> Self {
        self.device = Some(device.clone());
        self
    }

    /// The protection domain of the queue pair. By default one of its own.
    pub fn pd(mut self, pd: &ProtectionDomain) -> Self {
        self.pd = Some(pd.clone());
        self
    }

    /// One completion queue for everything. By default two of its own, of as many entries as the
    /// queue pair has requests.
    pub fn cq(self, cq: &CompletionQueue) -> Self {
        self.send_cq(cq).recv_cq(cq)
    }

    /// The completion queue of its sends.
    pub fn send_cq(mut self, cq: &CompletionQueue) -> Self {
        self.send_cq = Some(cq.clone());
        self
    }

    /// The completion queue of its receives.
    pub fn recv_cq(mut self, cq: &CompletionQueue) -> Self {
        self.recv_cq = Some(cq.clone());
        self
    }

    /// Its messages take their receives from `srq`.
    pub fn shared_receive_queue(mut self, srq: &SharedReceiveQueue) -> Self {
        self.srq = Some(srq.clone());
        self
    }

    /// All sizes of the queue pair.
    pub fn cap(mut self, cap: QpCap) -> Self {
        self.cap = cap;
        self
    }

    /// Sends that may be outstanding.
    pub fn max_send_wr(mut self, requests: u32) -> Self {
        self.cap.max_send_wr = requests;
        self
    }

    /// Receives that may be outstanding.
    pub fn max_recv_wr(mut self, requests: u32) -> Self {
        self.cap.max_recv_wr = requests;
        self
    }

    /// Bytes of inline data of a send.
    pub fn max_inline_data(mut self, bytes: u32) -> Self {
        self.cap.max_inline_data = bytes;
        self
    }

    /// Whether every send makes a completion, signaled or not.
    pub fn signal_all(mut self, all: bool) -> Self {
        self.signal_all = all;
        self
    }

    /// The own address, which chooses the device, and the own port, or 0 for any. Not used when
    /// accepting.
    pub fn source(mut self, addr: impl Into<SocketAddr>) -> Self {
        self.source = Some(addr.into());
        self
    }

    /// As [`source`](Self::source), of any port.
    pub fn source_ip(self, ip: impl Into<IpAddr>) -> Self {
        self.source((ip.into(), 0))
    }

    /// What to tell the peer's program: up to [`CONNECT_DATA_MAX`] bytes with a request,
    /// [`ACCEPT_DATA_MAX`] when accepting. The peer sees them with zeros behind, which fill the
    /// message.
    pub fn private_data(mut self, data: &[u8]) -> Self {
        self.private_data = data.to_vec();
        self
    }

    /// READs, atomics, ATOMIC WRITEs and FLUSHes of the peer that are answered at a time. By
    /// default as many as the device can; when accepting, and the peer asks for. With 0 the peer
    /// may do none.
    pub fn responder_resources(mut self, operations: u8) -> Self {
        self.responder_resources = Some(operations);
        self
    }

    /// The same of this end that may be outstanding. By default as many as the device can; when
    /// accepting, and the peer answers.
    pub fn initiator_depth(mut self, operations: u8) -> Self {
        self.initiator_depth = Some(operations);
        self
    }

    /// How often packets are sent again without an answer before the connection breaks: 0 to 7, by
    /// default 7. Who connects says it for both ends.
    pub fn retry_count(mut self, times: u8) -> Self {
        self.retry_count = times;
        self
    }

    /// How often the peer shall send again when this end has no receive posted: 0 to 6, 7 = for
    /// ever, which is the default.
    pub fn rnr_retry_count(mut self, times: u8) -> Self {
        self.rnr_retry_count = times;
        self
    }

    /// How long the peer shall wait when this end has no receive posted, coded as in IBTA vol. 1,
    /// table 45. By default 12: 640 µs.
    pub fn min_rnr_timer(mut self, code: u8) -> Self {
        self.min_rnr_timer = code;
        self
    }

    /// The type of service of the connection's packets (`RDMA_OPTION_ID_TOS`). By default 0. Not
    /// used when accepting, where it is the listener's.
    pub fn type_of_service(mut self, tos: u8) -> Self {
        self.type_of_service = tos;
        self
    }

    /// How long the queue pair waits for an answer before it sends again
    /// (`RDMA_OPTION_ID_ACK_TIMEOUT`): 4.096 µs · 2^timeout, 1 to 31. By default derived from what
    /// packets may take, as the kernel does it: 0.5 s. Not used when accepting, where it is the
    /// listener's.
    pub fn ack_timeout(mut self, timeout: u8) -> Self {
        self.ack_timeout = timeout;
        self
    }

    /// How long connecting and accepting may take. By default a peer that does not answer is asked
    /// sixteen times in 77 s, as the kernel does it. Who connects asks no longer than this, or
    /// little more, whether a thread or a task waits; a thread's waiting ends then in any case.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The device that the options speak of.
    pub(super) fn selected_device(&self) -> Option<&Device> {
        let of_queues =
            || self.send_cq.as_ref().or(self.recv_cq.as_ref()).map(CompletionQueue::device);
        let of_pd = || self.pd.as_ref().map(ProtectionDomain::device);
        let of_srq = || self.srq.as_ref().map(|srq| srq.pd().device());
        self.device.as_ref().or_else(of_pd).or_else(of_queues).or_else(of_srq)
    }

    /// What the identifier is told.
    pub(super) fn for_id(&self) -> IdOptions {
        IdOptions {
            tos: self.type_of_service,
            ack_timeout: (self.ack_timeout != 0).then_some(self.ack_timeout),
            retry_policy: self.timeout.map_or_else(RetryPolicy::default, retry_policy),
            ..IdOptions::default()
        }
    }

    /// Checks what has few bits in the messages.
    pub(super) fn check(&self) -> Result<(), ConnectError> {
        let numbers = [
            ("retry_count", self.retry_count, 7),
            ("rnr_retry_count", self.rnr_retry_count, 7),
            ("min_rnr_timer", self.min_rnr_timer, 31),
            ("ack_timeout", self.ack_timeout, 31),
        ];
        check(numbers)
    }

    /// The protection domain, on `device`.
    pub(super) fn pd_on(
        &self,
        device: &Device,
        peer: SocketAddr,
    ) -> Result<ProtectionDomain, ConnectError> {
        match &self.pd {
            None => Ok(device.alloc_pd()?),
            Some(pd) if pd.device().is_same(device) => Ok(pd.clone()),
            Some(_) => {
                Err(ConnectError::OtherDevice { object: "protection domain", peer: peer.ip() })
            }
        }
    }

    /// Makes the queue pair, on `device`.
    pub(super) fn make_qp(
        &self,
        device: &Device,
        peer: SocketAddr,
    ) -> Result<QueuePair, ConnectError> {
        let is_other = |of: Option<&Device>| of.is_some_and(|of| !of.is_same(device));
        let given = [
            ("completion queue of sends", self.send_cq.as_ref().map(CompletionQueue::device)),
            ("completion queue of receives", self.recv_cq.as_ref().map(CompletionQueue::device)),
            ("shared receive queue", self.srq.as_ref().map(|srq| srq.pd().device())),
        ];
        if let Some((object, _)) = given.into_iter().find(|(_, of)| is_other(*of)) {
            return Err(ConnectError::OtherDevice { object, peer: peer.ip() });
        }
        let pd = self.pd_on(device, peer)?;
        let cq = |given: &Option<CompletionQueue>, entries: u32| match given {
            Some(cq) => Ok(cq.clone()),
            None => device.create_cq(entries.max(1)),
        };
        let send_cq = cq(&self.send_cq, self.cap.max_send_wr)?;
        let recv_cq = cq(&self.recv_cq, self.cap.max_recv_wr)?;
        let mut builder = pd
            .queue_pair(&send_cq)
            .recv_cq(&recv_cq)
            .qp_type(QpType::Rc)
            .cap(self.cap)
            .signal_all(self.signal_all);
        if let Some(srq) = &self.srq {
            builder = builder.shared_receive_queue(srq);
        }
        Ok(builder.create()?)
    }
}

/// Checks options with their values and the most that is allowed.
pub(super) fn check<const N: usize>(
    numbers: [(&'static str, u8, u8); N],
) -> Result<(), ConnectError> {
    match numbers.into_iter().find(|(_, given, max)| given > max) {
        Some((option, given, max)) => {
            Err(ConnectError::Option { option, given: given.into(), max: max.into() })
        }
        None => Ok(()),
    }
}

/// The exponent and the number of repetitions that take about `time`, no less.
fn retry_policy(time: Duration) -> RetryPolicy {
    let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let tries = time_ns.div_ceil(2 * ROUND_TRIP_NS).clamp(1, 16);
    let answer_ns = (time_ns / tries).saturating_sub(ROUND_TRIP_NS).max(UNIT_NS);
    let response_timeout = (0..=31).find(|exponent| UNIT_NS << exponent >= answer_ns).unwrap_or(31);
    RetryPolicy { response_timeout, max_retries: (tries - 1) as u8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_asked_for_the_time_given_and_at_most_twice_as_long() {
        for ms in [1100, 2000, 5000, 8600, 20_000, 77_000, 600_000] {
            let RetryPolicy { response_timeout, max_retries } =
                retry_policy(Duration::from_millis(ms));
            let tries = u64::from(max_retries) + 1;
            let asked_ms = tries * (ROUND_TRIP_NS + (UNIT_NS << response_timeout)) / 1_000_000;
            assert!((ms..=2 * ms + 1).contains(&asked_ms), "{ms} ms become {asked_ms} ms");
        }
        assert_eq!(
            retry_policy(Duration::MAX),
            RetryPolicy { response_timeout: 31, max_retries: 15 }
        );
        assert_eq!(retry_policy(Duration::ZERO).max_retries, 0);
    }
}
