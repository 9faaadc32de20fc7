//! The options of a connection: its objects, its private data and its parameters.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use urxe_stack::allocate::LARGE;
use urxe_stack::cma::{Options as IdOptions, RetryPolicy};
use urxe_stack::qp::attr::{QpCap, QpType};
use urxe_wire::{AckTimeout, RnrTimer};

use super::error::ConnectError;
use crate::cq::CompletionQueue;
use crate::device::Device;
use crate::pd::ProtectionDomain;
use crate::qp::{DEFAULT_CAP, QueuePair};
use crate::srq::SharedReceiveQueue;

/// The maximum number of bytes of private data of [`prepare`](super::prepare).
pub const CONNECT_DATA_MAX: usize = 56;
/// The maximum number of bytes of private data of an accepted request.
pub const ACCEPT_DATA_MAX: usize = 196;
/// The maximum number of bytes of private data of a rejected request.
pub const REJECT_DATA_MAX: usize = 148;

/// The round-trip time that connection requests assume, in nanoseconds (cma.c,
/// `CMA_IBOE_PACKET_LIFETIME`).
const ROUND_TRIP_NS: u64 = 2 * (4096 << 16);
const UNIT_NS: u64 = 4096;

/// The options of a connection, for the end that connects and the end that accepts.
///
/// By default, a connection has a protection domain, a queue pair and two completion queues of its
/// own. The queue pair has room for 128 sends and 128 receives of 4 scatter-gather entries each and
/// for 64 bytes of inline data. It allows as many READs and atomics at a time as both devices do.
///
/// ```
/// use std::time::Duration;
/// use urxe::cm::Options;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = urxe::Device::open_address([127, 49, 11, 1])?;
/// let options = Options::new()
///     .pd(&device.alloc_pd()?)
///     .private_data(b"version 3")
///     .max_recv_wr(16)
///     .timeout(Duration::from_secs(5));
/// // The route starts at the device of the protection domain. No peer is asked yet.
/// let pending = urxe::cm::prepare("127.49.11.2:7471", &options)?;
/// assert!(pending.qp().query().cap.max_recv_wr >= 16);
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
    new_queues: NewQueues,
    pub(super) source: Option<SocketAddr>,
    pub(super) private_data: Vec<u8>,
    pub(super) responder_resources: Option<u8>,
    pub(super) initiator_depth: Option<u8>,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) min_rnr_timer: RnrTimer,
    type_of_service: u8,
    ack_timeout: Option<AckTimeout>,
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
            new_queues: NewQueues::Two,
            source: None,
            private_data: Vec::new(),
            responder_resources: None,
            initiator_depth: None,
            retry_count: 7,
            rnr_retry_count: 7,
            min_rnr_timer: RnrTimer::at_least(640_000),
            type_of_service: 0,
            ack_timeout: None,
            timeout: None,
        }
    }
}

impl Options {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the device that connects. The default is the device of [`pd`](Self::pd) or of a queue.
    /// Without these, the route to the peer selects one of the configured devices
    /// ([`devices`](crate::devices)). The first connection opens the configured devices, and they
    /// stay open. The end that accepts always uses the device of the request.
    pub fn device(mut self, device: &Device) -> Self {
        self.device = Some(device.clone());
        self
    }

    /// Sets the protection domain of the queue pair. The default is a new one.
    pub fn pd(mut self, pd: &ProtectionDomain) -> Self {
        self.pd = Some(pd.clone());
        self
    }

    /// Sets one completion queue for sends and receives. The default is two new queues with as many
    /// entries as the queue pair has requests.
    ///
    /// The queue needs an entry for each request that can be outstanding: the sum of `max_send_wr`
    /// and `max_recv_wr` of all connections that share it, by default 256 a connection. The
    /// receives of a shared receive queue count once. [`CompletionQueue::resize`] enlarges the
    /// queue. See [`Device::create_cq`] for the effect of an overflow.
    pub fn cq(self, cq: &CompletionQueue) -> Self {
        self.send_cq(cq).recv_cq(cq)
    }

    /// Sets the completion queue of sends.
    pub fn send_cq(mut self, cq: &CompletionQueue) -> Self {
        self.send_cq = Some(cq.clone());
        self
    }

    /// Sets the completion queue of receives.
    pub fn recv_cq(mut self, cq: &CompletionQueue) -> Self {
        self.recv_cq = Some(cq.clone());
        self
    }

    /// Takes the receives from `srq` instead of a receive queue of the queue pair.
    pub fn shared_receive_queue(mut self, srq: &SharedReceiveQueue) -> Self {
        self.srq = Some(srq.clone());
        self
    }

    /// Sets all capacities of the queue pair.
    pub fn cap(mut self, cap: QpCap) -> Self {
        self.cap = cap;
        self
    }

    /// Sets the number of outstanding sends. The default is 128. Posting more fails with
    /// [`PostError::QueueFull`](crate::PostError::QueueFull).
    pub fn max_send_wr(mut self, requests: u32) -> Self {
        self.cap.max_send_wr = requests;
        self
    }

    /// Sets the number of outstanding receives. The default is 128. Posting more fails with
    /// [`PostError::QueueFull`](crate::PostError::QueueFull).
    ///
    /// A message that finds no posted receive is not lost and takes no memory of this end. The peer
    /// sends it again after [`min_rnr_timer`](Self::min_rnr_timer), as often as
    /// [`rnr_retry_count`](Self::rnr_retry_count) allows, by default without limit.
    pub fn max_recv_wr(mut self, requests: u32) -> Self {
        self.cap.max_recv_wr = requests;
        self
    }

    /// Sets the number of bytes of inline data of a send.
    pub fn max_inline_data(mut self, bytes: u32) -> Self {
        self.cap.max_inline_data = bytes;
        self
    }

    /// Sets whether every send creates a completion, signaled or not. The default is `false`.
    pub fn signal_all(mut self, all: bool) -> Self {
        self.signal_all = all;
        self
    }

    /// Sets the source address, which selects the device, and the source port, or 0 for any. This
    /// option does not apply when accepting.
    pub fn source(mut self, addr: impl Into<SocketAddr>) -> Self {
        self.source = Some(addr.into());
        self
    }

    /// Sets the source address, as [`source`](Self::source) does, with any port.
    pub fn source_ip(self, ip: impl Into<IpAddr>) -> Self {
        self.source((ip.into(), 0))
    }

    /// Sets the private data for the program of the peer: up to [`CONNECT_DATA_MAX`] bytes when
    /// connecting and [`ACCEPT_DATA_MAX`] when accepting. The peer receives them padded with zeros
    /// to the length of the message; [`PrivateData`](super::PrivateData) has ways to tell the
    /// length.
    pub fn private_data(mut self, data: &[u8]) -> Self {
        // Longer data are refused anyway.
        self.private_data = data[..data.len().min(LARGE)].to_vec();
        self
    }

    /// Sets the number of outstanding READs, atomics, ATOMIC WRITEs and FLUSHes of the peer. By
    /// default this is the limit of the device, and when accepting at most the number that the peer
    /// asks for. With 0 the peer cannot perform these operations.
    pub fn responder_resources(mut self, operations: u8) -> Self {
        self.responder_resources = Some(operations);
        self
    }

    /// Sets the number of outstanding READs, atomics, ATOMIC WRITEs and FLUSHes of this end. By
    /// default this is the limit of the device, and when accepting at most the number that the peer
    /// serves.
    pub fn initiator_depth(mut self, operations: u8) -> Self {
        self.initiator_depth = Some(operations);
        self
    }

    /// Sets the number of retransmissions without an acknowledgement before the connection fails: 0
    /// to 7. The default is 7. The end that connects decides for both ends.
    pub fn retry_count(mut self, times: u8) -> Self {
        self.retry_count = times;
        self
    }

    /// Sets the number of retransmissions of the peer when this end has no receive posted: 0 to 6,
    /// or 7 for no limit. The default is 7.
    pub fn rnr_retry_count(mut self, times: u8) -> Self {
        self.rnr_retry_count = times;
        self
    }

    /// Sets the time that the peer waits before it retransmits when this end has no receive posted.
    /// A [`Duration`] is rounded up to the next of the 32 times of IBTA vol. 1, table 45, which
    /// range from 10 µs to 655.36 ms. The default is 640 µs.
    pub fn min_rnr_timer(mut self, timer: impl Into<RnrTimer>) -> Self {
        self.min_rnr_timer = timer.into();
        self
    }

    /// Sets the type of service of the packets (`RDMA_OPTION_ID_TOS`). The default is 0. This
    /// option does not apply when accepting, where the listener's type of service is used.
    pub fn type_of_service(mut self, tos: u8) -> Self {
        self.type_of_service = tos;
        self
    }

    /// Sets the time after which an unacknowledged packet is sent again
    /// (`RDMA_OPTION_ID_ACK_TIMEOUT`). A [`Duration`] is rounded up to the next of 4.096 µs · 2^n,
    /// with n from 1 to 31. [`AckTimeout::OFF`] means never. By default the time follows from the
    /// assumed packet lifetime, as in the kernel, and is 0.5 s. This option does not apply when
    /// accepting, where the listener's timeout is used.
    pub fn ack_timeout(mut self, timeout: impl Into<AckTimeout>) -> Self {
        self.ack_timeout = Some(timeout.into());
        self
    }

    /// Sets the time limit of connecting and accepting. By default the request is sent sixteen
    /// times in 77 s, as in the kernel. With a limit, this end sends the request for at least this
    /// time and at most about twice as long. A blocked thread returns when the limit has passed.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Selects the completion queues in place of those that the program names.
    pub(crate) fn new_queues(mut self, queues: NewQueues) -> Self {
        self.new_queues = queues;
        self
    }

    /// Returns the name of a queue that the program selected.
    pub(crate) fn named_queue(&self) -> Option<&'static str> {
        let queues = [
            ("completion queue of sends", self.send_cq.is_some()),
            ("completion queue of receives", self.recv_cq.is_some()),
            ("shared receive queue", self.srq.is_some()),
        ];
        queues.into_iter().find_map(|(name, is_given)| is_given.then_some(name))
    }

    /// Returns the device that the options select, if they select one.
    pub(crate) fn selected_device(&self) -> Option<&Device> {
        let of_queues =
            || self.send_cq.as_ref().or(self.recv_cq.as_ref()).map(CompletionQueue::device);
        let of_pd = || self.pd.as_ref().map(ProtectionDomain::device);
        let of_srq = || self.srq.as_ref().map(|srq| srq.pd().device());
        self.device.as_ref().or_else(of_pd).or_else(of_queues).or_else(of_srq)
    }

    /// Returns the options of the identifier.
    pub(super) fn for_id(&self) -> IdOptions {
        IdOptions {
            tos: self.type_of_service,
            ack_timeout: self.ack_timeout.map(AckTimeout::exponent),
            retry_policy: self.timeout.map_or_else(RetryPolicy::default, retry_policy),
            ..IdOptions::default()
        }
    }

    /// Checks the options that have few bits in the messages.
    pub(super) fn check(&self) -> Result<(), ConnectError> {
        let numbers =
            [("retry_count", self.retry_count, 7), ("rnr_retry_count", self.rnr_retry_count, 7)];
        check(numbers)
    }

    /// Returns the protection domain, which must belong to `device`.
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

    /// Creates the queue pair on `device`.
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
        let both = |queue: CompletionQueue| (queue.clone(), queue);
        let (send_cq, recv_cq) = match self.new_queues {
            NewQueues::Private { entries } => both(CompletionQueue::private(device, entries)?),
            NewQueues::One { entries } => both(device.create_cq(entries)?),
            NewQueues::Two => {
                (cq(&self.send_cq, self.cap.max_send_wr)?, cq(&self.recv_cq, self.cap.max_recv_wr)?)
            }
        };
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

/// The completion queues of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NewQueues {
    /// Those that the program names, or else one for sends and one for receives.
    Two,
    /// One new queue for sends and receives.
    One { entries: u32 },
    /// One new queue for sends and receives, of an awaitable queue pair.
    Private { entries: u32 },
}

/// Checks that no option exceeds its maximum. Each row has the name, the value and the maximum.
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

/// Returns the retry policy whose total time is at least `time`, and at most about twice as long.
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
