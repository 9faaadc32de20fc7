//! Connecting queue pairs: the transitions from RESET through INIT and RTR to RTS.

use urxe_stack::device::{ModifyError, QpHandle};
use urxe_stack::memory::Access;
use urxe_stack::qp::attr::{AddressVector, PathMtu, QpAttr, QpAttrMask, QpState, QpType};
use urxe_stack::qp::transition;
use urxe_wire::{AckTimeout, Psn, RnrTimer};

use super::QueuePair;
use crate::device::Device;
use crate::endpoint::QpEndpoint;

/// The options of a connection. Numbers have the units of `struct ibv_qp_attr`.
///
/// ```
/// use std::time::Duration;
/// use urxe::{ConnectOptions, PathMtu, QpState, sim::Fabric};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = Fabric::new(1).device([10, 0, 0, 1])?;
/// # let (pd, cq) = (device.alloc_pd()?, device.create_cq(16)?);
/// # let qp = pd.queue_pair(&cq).create()?;
/// # let peer = qp.endpoint();
/// let options = ConnectOptions::new()
///     .path_mtu(PathMtu::Mtu1024)
///     .timeout(Duration::from_secs(1));
/// qp.connect(&peer, &options)?;
/// // The next longer timeout is 4.096 µs · 2^18, which is 1.07 s.
/// assert_eq!((qp.state(), qp.query().timeout), (QpState::Rts, 18));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "the options do nothing until a queue pair is connected with them"]
pub struct ConnectOptions {
    path_mtu: Option<PathMtu>,
    timeout: AckTimeout,
    retry_cnt: u8,
    rnr_retry: u8,
    min_rnr_timer: RnrTimer,
    max_rd_atomic: u8,
    max_dest_rd_atomic: u8,
    access: Access,
    sgid_index: Option<u8>,
    traffic_class: u8,
    hop_limit: u8,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            path_mtu: None,
            timeout: AckTimeout::at_least(4096 << 14),
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: RnrTimer::at_least(640_000),
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            access: Access::REMOTE_READ
                | Access::REMOTE_WRITE
                | Access::REMOTE_ATOMIC
                | Access::FLUSH_GLOBAL
                | Access::FLUSH_PERSISTENT,
            sgid_index: None,
            traffic_class: 0,
            hop_limit: 64,
        }
    }
}

impl ConnectOptions {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the payload of a packet. Both ends must use the same value. The default, also of
    /// `None`, is the largest value that fits the link of this end. The default is correct if the
    /// links of both ends have the same MTU.
    pub fn path_mtu(mut self, mtu: impl Into<Option<PathMtu>>) -> Self {
        self.path_mtu = mtu.into();
        self
    }

    /// Sets the time after which an unacknowledged packet is sent again. A [`Duration`] is rounded
    /// up to the next of 4.096 µs · 2^n, with n from 1 to 31. [`AckTimeout::OFF`] means never. The
    /// default is 67 ms (n = 14).
    ///
    /// ```
    /// use urxe::{AckTimeout, ConnectOptions, RnrTimer};
    ///
    /// // The peer may stop for any time, and has a receive posted within 2 ms.
    /// let options = ConnectOptions::new()
    ///     .timeout(AckTimeout::OFF)
    ///     .min_rnr_timer(RnrTimer::at_least(2_000_000));
    /// assert_ne!(options, ConnectOptions::new());
    /// ```
    ///
    /// [`Duration`]: std::time::Duration
    pub fn timeout(mut self, timeout: impl Into<AckTimeout>) -> Self {
        self.timeout = timeout.into();
        self
    }

    /// Sets the number of retransmissions without an acknowledgement before the connection fails: 0
    /// to 7. The default is 7.
    pub fn retry_cnt(mut self, times: u8) -> Self {
        self.retry_cnt = times;
        self
    }

    /// Sets the number of retransmissions when the peer has no receive posted: 0 to 6, or 7 for no
    /// limit. The default is 7.
    pub fn rnr_retry(mut self, times: u8) -> Self {
        self.rnr_retry = times;
        self
    }

    /// Sets the time that the peer waits before it retransmits when this end has no receive posted.
    /// A [`Duration`] is rounded up to the next of the 32 times of IBTA vol. 1, table 45, which
    /// range from 10 µs to 655.36 ms. The default is 640 µs.
    ///
    /// [`Duration`]: std::time::Duration
    pub fn min_rnr_timer(mut self, timer: impl Into<RnrTimer>) -> Self {
        self.min_rnr_timer = timer.into();
        self
    }

    /// Sets the number of outstanding READs, atomics, ATOMIC WRITEs and FLUSHes of this end. It
    /// must be at most [`max_dest_rd_atomic`](Self::max_dest_rd_atomic) of the peer. The default is
    /// 16.
    pub fn max_rd_atomic(mut self, operations: u8) -> Self {
        self.max_rd_atomic = operations;
        self
    }

    /// Sets the number of outstanding READs, atomics, ATOMIC WRITEs and FLUSHes of the peer at this
    /// end. A value above the device's limit becomes that limit. The default is 16.
    pub fn max_dest_rd_atomic(mut self, operations: u8) -> Self {
        self.max_dest_rd_atomic = operations;
        self
    }

    /// Sets the operations that the peer may perform on regions of the same protection domain. Each
    /// region must grant the operation, too. The default is READ, WRITE, atomics and both kinds of
    /// FLUSH.
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Sets the index of the GID to send from. The default is the GID of the queue pair.
    pub fn sgid_index(mut self, index: u8) -> Self {
        self.sgid_index = Some(index);
        self
    }

    /// Sets the DSCP and ECN bits of the packets. The default is 0.
    pub fn traffic_class(mut self, class: u8) -> Self {
        self.traffic_class = class;
        self
    }

    /// Sets the hop limit of the packets. The default is 64.
    pub fn hop_limit(mut self, hops: u8) -> Self {
        self.hop_limit = hops;
        self
    }
}

impl QueuePair {
    /// Connects to `peer`: moves the queue pair from RESET or INIT through RTR to RTS.
    ///
    /// The queue pairs exchange no packet. Both ends must call `connect`, in any order. Packets
    /// that arrive before the other end is ready are sent again.
    ///
    /// A receive for the first message of the peer can be posted between [`init`](Self::init) and
    /// `connect`. It can also be posted right after `connect`; until then the peer retries as often
    /// as its `rnr_retry` allows.
    ///
    /// # Errors
    /// Fails with [`ModifyError`] in these cases:
    /// * The state is neither RESET nor INIT.
    /// * A value is out of its range.
    /// * The peer's address has no route, or another IP version than the GID of this end.
    ///
    /// The queue pair is then in RESET, INIT or RTR. Call [`reset`](Self::reset) before another
    /// attempt.
    pub fn connect(&self, peer: &QpEndpoint, options: &ConnectOptions) -> Result<(), ModifyError> {
        self.end().connect(peer, options)
    }

    /// Performs the first step of [`connect`](Self::connect): RESET to INIT, where receives can be
    /// posted.
    ///
    /// # Errors
    /// Fails with [`ModifyError`] if the state is not RESET, or if a value is out of its range.
    pub fn init(&self, options: &ConnectOptions) -> Result<(), ModifyError> {
        self.end().init(options)
    }

    /// Performs the second step of [`connect`](Self::connect): INIT to RTR, where the queue pair
    /// serves requests of the peer.
    ///
    /// # Errors
    /// Fails with [`ModifyError`] if the state is not INIT, or if a value is out of its range.
    pub fn ready_to_receive(
        &self,
        peer: &QpEndpoint,
        options: &ConnectOptions,
    ) -> Result<(), ModifyError> {
        self.end().ready_to_receive(peer, options)
    }

    /// Performs the third step of [`connect`](Self::connect): RTR to RTS, where the queue pair
    /// sends.
    ///
    /// # Errors
    /// Fails with [`ModifyError`] if the state is not RTR, or if a value is out of its range.
    pub fn ready_to_send(&self, options: &ConnectOptions) -> Result<(), ModifyError> {
        self.end().ready_to_send(options)
    }
}

/// The view of a [`QueuePair`] or an [`XrcTarget`](crate::XrcTarget) that both share.
pub(crate) struct End<'a> {
    pub device: &'a Device,
    pub handle: QpHandle,
    pub qp_type: QpType,
    pub psn: Psn,
    pub sgid_index: u8,
}

/// Defines the methods that both kinds of ends have. Each type provides `end(&self) -> End<'_>`.
macro_rules! end_calls {
    ($end:ident) => {
        impl $end {
            /// Returns the queue pair number.
            #[must_use]
            pub fn qpn(&self) -> urxe_wire::Qpn {
                self.handle.qpn()
            }

            /// Returns the endpoint that the peer needs to connect.
            #[must_use]
            pub fn endpoint(&self) -> $crate::QpEndpoint {
                self.end().endpoint()
            }

            /// Returns all attributes (`ibv_query_qp`).
            #[must_use]
            pub fn query(&self) -> $crate::QpAttr {
                self.end().query()
            }

            /// Returns the current state.
            #[must_use]
            pub fn state(&self) -> $crate::QpState {
                self.query().qp_state
            }

            /// Changes the attributes in `mask` (`ibv_modify_qp`). [`connect`](Self::connect) does
            /// this for the usual case.
            ///
            /// # Errors
            /// Fails with [`ModifyError`](crate::ModifyError), which names the present and the next
            /// state with the missing or forbidden attributes, or the value and its range. No
            /// attribute is changed then.
            pub fn modify(
                &self,
                attr: &$crate::QpAttr,
                mask: $crate::QpAttrMask,
            ) -> Result<(), $crate::ModifyError> {
                self.end().modify(attr, mask)
            }
        }

        impl std::fmt::Debug for $end {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($end))
                    .field("qpn", &self.qpn())
                    .field("state", &self.state())
                    .finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use end_calls;

impl End<'_> {
    pub fn endpoint(&self) -> QpEndpoint {
        let gid = self.device.gid(self.sgid_index).unwrap_or_default();
        QpEndpoint { gid, qpn: self.handle.qpn(), psn: self.psn }
    }

    pub fn query(&self) -> QpAttr {
        // The queue pair exists as long as its handle, so the query cannot fail.
        self.device.core().query_qp(self.handle).unwrap_or_default()
    }

    pub fn destroy(&self, kept: &str) {
        let backend = &self.device.inner.backend;
        self.device.destroy(kept, |core| {
            backend.flush_acks(self.handle);
            core.destroy_qp_without_wait(backend.now(), self.handle)
        });
    }

    pub fn modify(&self, attr: &QpAttr, mask: QpAttrMask) -> Result<(), ModifyError> {
        let result = self.device.inner.backend.modify_qp(self.handle, attr, mask);
        self.device.run_ready_wakers();
        result
    }

    pub fn connect(&self, peer: &QpEndpoint, options: &ConnectOptions) -> Result<(), ModifyError> {
        if self.query().qp_state != QpState::Init {
            self.init(options)?;
        }
        self.ready_to_receive(peer, options)?;
        self.ready_to_send(options)
    }

    /// Performs a transition with those attributes of `mask` that the transport service has.
    fn step(&self, from: QpState, attr: &QpAttr, mask: QpAttrMask) -> Result<(), ModifyError> {
        let known = transition::attributes(from, attr.qp_state, self.qp_type);
        let known = known.map_or(mask, |attributes| attributes.allowed());
        self.modify(attr, QpAttrMask::STATE | mask.intersection(known))
    }

    pub fn init(&self, options: &ConnectOptions) -> Result<(), ModifyError> {
        let attr = QpAttr {
            qp_state: QpState::Init,
            port_num: 1,
            access_flags: options.access,
            ..QpAttr::default()
        };
        let mask = QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::ACCESS_FLAGS;
        self.step(QpState::Reset, &attr, mask)
    }

    pub fn ready_to_receive(
        &self,
        peer: &QpEndpoint,
        options: &ConnectOptions,
    ) -> Result<(), ModifyError> {
        let active_mtu = self.device.core().active_mtu();
        let attr = QpAttr {
            qp_state: QpState::Rtr,
            path_mtu: options.path_mtu.unwrap_or(active_mtu),
            dest_qp_num: peer.qpn,
            rq_psn: peer.psn,
            max_dest_rd_atomic: options.max_dest_rd_atomic,
            min_rnr_timer: options.min_rnr_timer.code(),
            ah: AddressVector {
                dgid: peer.gid,
                is_global: true,
                sgid_index: options.sgid_index.unwrap_or(self.sgid_index),
                hop_limit: options.hop_limit,
                traffic_class: options.traffic_class,
                port_num: 1,
                ..AddressVector::default()
            },
            ..QpAttr::default()
        };
        let mask = QpAttrMask::AV
            | QpAttrMask::PATH_MTU
            | QpAttrMask::DEST_QPN
            | QpAttrMask::RQ_PSN
            | QpAttrMask::MAX_DEST_RD_ATOMIC
            | QpAttrMask::MIN_RNR_TIMER;
        self.step(QpState::Init, &attr, mask)
    }

    pub fn ready_to_send(&self, options: &ConnectOptions) -> Result<(), ModifyError> {
        let attr = QpAttr {
            qp_state: QpState::Rts,
            sq_psn: self.psn,
            timeout: options.timeout.exponent(),
            retry_cnt: options.retry_cnt,
            rnr_retry: options.rnr_retry,
            max_rd_atomic: options.max_rd_atomic,
            ..QpAttr::default()
        };
        let mask = QpAttrMask::SQ_PSN
            | QpAttrMask::TIMEOUT
            | QpAttrMask::RETRY_CNT
            | QpAttrMask::RNR_RETRY
            | QpAttrMask::MAX_QP_RD_ATOMIC;
        self.step(QpState::Rtr, &attr, mask)
    }
}
