//! Connecting: RESET, INIT, RTR, RTS with good values.

use urxe_stack::device::{ModifyError, QpHandle};
use urxe_stack::memory::Access;
use urxe_stack::qp::attr::{AddressVector, PathMtu, QpAttr, QpAttrMask, QpState, QpType};
use urxe_stack::qp::transition;
use urxe_wire::Psn;

use super::QueuePair;
use crate::device::Device;
use crate::endpoint::QpEndpoint;

/// How to connect. The default suits most; the values and their units are those of `struct
/// ibv_qp_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Payload of a packet. Both ends must say the same. `None` takes the largest that fits this
    /// end's link, which is right if both ends' links have the same MTU. By default `None`.
    pub path_mtu: Option<PathMtu>,
    /// How long to wait for an answer before sending again: 4.096 µs · 2^timeout, 0 = for ever. By
    /// default 14: 67 ms.
    pub timeout: u8,
    /// How often to send again without an answer before giving up: 0 to 7. By default 7.
    pub retry_cnt: u8,
    /// How often to send again when the peer has no receive posted: 0 to 6, 7 = for ever. By
    /// default 7.
    pub rnr_retry: u8,
    /// How long the peer shall wait when this end has no receive posted, coded as in IBTA vol. 1,
    /// table 45: 1 = 10 µs, 12 = 640 µs, 0 = 655 ms. By default 12.
    pub min_rnr_timer: u8,
    /// READs, atomics, ATOMIC WRITEs and FLUSHes that this end may have outstanding. At most the
    /// peer's [`max_dest_rd_atomic`](Self::max_dest_rd_atomic). By default 16.
    pub max_rd_atomic: u8,
    /// The same that the peer may have outstanding here. By default 16.
    pub max_dest_rd_atomic: u8,
    /// What the peer may do to this end's regions in the same protection domain, as far as each
    /// region grants it. By default read, write, atomics and both kinds of flush.
    pub access: Access,
    /// Which of the port's GIDs to send from; `None` = the queue pair's.
    pub sgid_index: Option<u8>,
    /// DSCP and ECN bits of the packets. By default 0.
    pub traffic_class: u8,
    /// Hop limit of the packets. By default 64.
    pub hop_limit: u8,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            path_mtu: None,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
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

impl QueuePair {
    /// Connects to `peer`: from RESET by INIT and RTR to RTS. No packet is exchanged: both ends do
    /// this, in any order, and what one sends before the other is ready is sent again.
    ///
    /// Receives that must be there for the peer's first message are posted between
    /// [`init`](Self::init) and [`connect`](Self::connect), or right after connecting (then
    /// `rnr_retry` covers the time between).
    ///
    /// # Errors
    /// [`ModifyError`]: the state is neither RESET nor INIT, a value is out of its range, the
    /// peer's address does not suit. The queue pair is then in RESET, INIT or RTR;
    /// [`reset`](Self::reset) begins anew.
    pub fn connect(&self, peer: &QpEndpoint, options: &ConnectOptions) -> Result<(), ModifyError> {
        self.end().connect(peer, options)
    }

    /// Takes the first step alone: RESET to INIT, where receives can be posted.
    ///
    /// # Errors
    /// [`ModifyError`].
    pub fn init(&self, options: &ConnectOptions) -> Result<(), ModifyError> {
        self.end().init(options)
    }

    /// Takes the second step alone: INIT to RTR, where the peer's requests are served.
    ///
    /// # Errors
    /// [`ModifyError`].
    pub fn ready_to_receive(
        &self,
        peer: &QpEndpoint,
        options: &ConnectOptions,
    ) -> Result<(), ModifyError> {
        self.end().ready_to_receive(peer, options)
    }

    /// Takes the third step alone: RTR to RTS, where this end sends.
    ///
    /// # Errors
    /// [`ModifyError`].
    pub fn ready_to_send(&self, options: &ConnectOptions) -> Result<(), ModifyError> {
        self.end().ready_to_send(options)
    }
}

/// One end of a connection that is being made: a queue pair of any connected service.
pub(crate) struct End<'a> {
    pub device: &'a Device,
    pub handle: QpHandle,
    pub qp_type: QpType,
    pub psn: Psn,
    pub sgid_index: u8,
}

/// Defines the calls that both kinds of ends have, from `end(&self) -> End<'_>` of each.
macro_rules! end_calls {
    ($end:ident) => {
        impl $end {
            /// Its number.
            #[must_use]
            pub fn qpn(&self) -> urxe_wire::Qpn {
                self.handle.qpn()
            }

            /// What the peer needs to connect to it.
            #[must_use]
            pub fn endpoint(&self) -> $crate::QpEndpoint {
                self.end().endpoint()
            }

            /// All its attributes as they are (`ibv_query_qp`).
            #[must_use]
            pub fn query(&self) -> $crate::QpAttr {
                self.end().query()
            }

            /// Its state.
            #[must_use]
            pub fn state(&self) -> $crate::QpState {
                self.query().qp_state
            }

            /// Changes the attributes of `mask` (`ibv_modify_qp`); [`connect`](Self::connect) does
            /// it for the usual case.
            ///
            /// # Errors
            /// [`ModifyError`](crate::ModifyError): the present state, the next, and the bits that
            /// are missing or not allowed, or the value and its range. Nothing was changed then.
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
        // It lives as long as its handle, so there is always an answer.
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

    /// Goes on with the attributes of `mask` that the service has.
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
            min_rnr_timer: options.min_rnr_timer,
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
            timeout: options.timeout,
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
