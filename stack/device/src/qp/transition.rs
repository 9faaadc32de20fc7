//! The state transitions of queue pairs and the attributes that each takes.
//!
//! `TABLE` holds each transition once: its states, the services that have it, and its required and
//! optional attributes. The check of `ibv_modify_qp`, its error texts, and the diagram and tables
//! in `transition.md` are derived from the table. A test compares that file with the code.
//!
//! Sources: IBTA vol. 1, 10.3.1 and 11.2.5.2 (required and optional attributes by transition);
//! `ibv_modify_qp(3)`. Where the specification and the kernel's `ib_modify_qp_is_ok`
//! (drivers/infiniband/core/verbs.c) differ, the table follows the kernel, because programs are
//! written against the kernel:
//!
//! - RESET does not go to ERR.
//! - Without [`QpAttrMask::STATE`] the queue pair stays in its state. The attributes are checked as
//!   for the transition from that state to itself, which exists for RESET, INIT, RTS, SQD and ERR.
//!
//! One row of the kernel is left out: SQE to RTS of a reliable connection, which is never in SQE.
//!
//! A caller that names a wrong current state gets an error (IBTA vol. 1, 11.2.5.2).

use std::fmt;

use urxe_wire::QKey;

use super::attr::{PathMigState, PathMtu, QpAttr, QpAttrMask, QpState, QpType};

#[cfg(test)]
mod tests;

bitflags::bitflags! {
    /// The services for which a row of the table holds.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Services: u8 {
        const RC = 1;
        const UC = 1 << 1;
        const UD = 1 << 2;
        const XRC_SEND = 1 << 3;
        const XRC_RECV = 1 << 4;
        /// Services whose requester gets responses.
        const REQUESTER = Self::RC.bits() | Self::XRC_SEND.bits();
        /// Services whose responder sends responses.
        const RESPONDER = Self::RC.bits() | Self::XRC_RECV.bits();
        const RELIABLE = Self::REQUESTER.bits() | Self::RESPONDER.bits();
        const CONNECTED = Self::RELIABLE.bits() | Self::UC.bits();
        const UNRELIABLE = Self::UC.bits() | Self::UD.bits();
        const EVERY = Self::CONNECTED.bits() | Self::UD.bits();
    }
}

impl From<QpType> for Services {
    fn from(qp_type: QpType) -> Self {
        match qp_type {
            QpType::Rc => Self::RC,
            QpType::Uc => Self::UC,
            QpType::Ud | QpType::Gsi => Self::UD,
            QpType::XrcSend => Self::XRC_SEND,
            QpType::XrcRecv => Self::XRC_RECV,
        }
    }
}

/// A row of the table: a transition, and the attributes that it adds for some services. The
/// attributes of all rows of a transition add up.
struct Row {
    from: QpState,
    to: QpState,
    services: Services,
    required: QpAttrMask,
    optional: QpAttrMask,
}

macro_rules! table {
    ($(
        $from:ident -> $to:ident, $service:ident:
            [$($required:ident)*] optional [$($optional:ident)*];
    )*) => {
        &[$(Row {
            from: QpState::$from,
            to: QpState::$to,
            services: Services::$service,
            required: QpAttrMask::from_bits_retain(0 $(| QpAttrMask::$required.bits())*),
            optional: QpAttrMask::from_bits_retain(0 $(| QpAttrMask::$optional.bits())*),
        },)*]
    };
}

/// Every transition. [`QpAttrMask::STATE`] is allowed in all of them and is not listed. A
/// transition exists for a service if at least one row holds for both.
#[rustfmt::skip]
static TABLE: &[Row] = table![
    Reset -> Reset, EVERY:      [] optional [];
    Reset -> Init,  EVERY:      [PKEY_INDEX PORT] optional [];
    Reset -> Init,  CONNECTED:  [ACCESS_FLAGS] optional [];
    Reset -> Init,  UD:         [QKEY] optional [];

    Init  -> Reset, EVERY:      [] optional [];
    Init  -> Err,   EVERY:      [] optional [];
    Init  -> Init,  EVERY:      [] optional [PKEY_INDEX PORT];
    Init  -> Init,  CONNECTED:  [] optional [ACCESS_FLAGS];
    Init  -> Init,  UD:         [] optional [QKEY];
    Init  -> Rtr,   EVERY:      [] optional [PKEY_INDEX];
    Init  -> Rtr,   CONNECTED:  [AV PATH_MTU DEST_QPN RQ_PSN] optional [ACCESS_FLAGS ALT_PATH];
    Init  -> Rtr,   RESPONDER:  [MAX_DEST_RD_ATOMIC MIN_RNR_TIMER] optional [];
    Init  -> Rtr,   UD:         [] optional [QKEY];

    Rtr   -> Reset, EVERY:      [] optional [];
    Rtr   -> Err,   EVERY:      [] optional [];
    Rtr   -> Rts,   EVERY:      [SQ_PSN] optional [CUR_STATE];
    Rtr   -> Rts,   CONNECTED:  [] optional [ACCESS_FLAGS ALT_PATH PATH_MIG_STATE];
    Rtr   -> Rts,   RELIABLE:   [TIMEOUT] optional [];
    Rtr   -> Rts,   REQUESTER:  [RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC] optional [];
    Rtr   -> Rts,   RESPONDER:  [] optional [MIN_RNR_TIMER];
    Rtr   -> Rts,   UD:         [] optional [QKEY];

    Rts   -> Reset, EVERY:      [] optional [];
    Rts   -> Err,   EVERY:      [] optional [];
    Rts   -> Rts,   EVERY:      [] optional [CUR_STATE];
    Rts   -> Rts,   CONNECTED:  [] optional [ACCESS_FLAGS ALT_PATH PATH_MIG_STATE];
    Rts   -> Rts,   RESPONDER:  [] optional [MIN_RNR_TIMER];
    Rts   -> Rts,   UD:         [] optional [QKEY];
    Rts   -> Sqd,   EVERY:      [] optional [EN_SQD_ASYNC_NOTIFY];

    Sqd   -> Reset, EVERY:      [] optional [];
    Sqd   -> Err,   EVERY:      [] optional [];
    Sqd   -> Rts,   EVERY:      [] optional [CUR_STATE];
    Sqd   -> Rts,   CONNECTED:  [] optional [ACCESS_FLAGS ALT_PATH PATH_MIG_STATE];
    Sqd   -> Rts,   RESPONDER:  [] optional [MIN_RNR_TIMER];
    Sqd   -> Rts,   UD:         [] optional [QKEY];
    Sqd   -> Sqd,   EVERY:      [] optional [PKEY_INDEX];
    Sqd   -> Sqd,   CONNECTED:  [] optional [AV ACCESS_FLAGS ALT_PATH PATH_MIG_STATE];
    Sqd   -> Sqd,   RELIABLE:   [] optional [PORT TIMEOUT];
    Sqd   -> Sqd,   REQUESTER:  [] optional [RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC];
    Sqd   -> Sqd,   RESPONDER:  [] optional [MAX_DEST_RD_ATOMIC MIN_RNR_TIMER];
    Sqd   -> Sqd,   UD:         [] optional [QKEY];

    Sqe   -> Reset, EVERY:      [] optional [];
    Sqe   -> Err,   EVERY:      [] optional [];
    Sqe   -> Rts,   UNRELIABLE: [] optional [CUR_STATE];
    Sqe   -> Rts,   UC:         [] optional [ACCESS_FLAGS];
    Sqe   -> Rts,   UD:         [] optional [QKEY];

    Err   -> Reset, EVERY:      [] optional [];
    Err   -> Err,   EVERY:      [] optional [];
];

/// The attributes of one transition of one service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The attributes that the call must give.
    pub required: QpAttrMask,
    /// The attributes that the call may give as well.
    pub optional: QpAttrMask,
}

impl Attributes {
    /// Returns all attributes that may be given, including [`QpAttrMask::STATE`].
    #[must_use]
    pub const fn allowed(self) -> QpAttrMask {
        self.required.union(self.optional).union(QpAttrMask::STATE)
    }
}

/// Returns the attributes of a transition, or `None` if there is no such transition.
#[must_use]
pub fn attributes(from: QpState, to: QpState, qp_type: QpType) -> Option<Attributes> {
    let services = Services::from(qp_type);
    TABLE
        .iter()
        .filter(|row| row.from == from && row.to == to && row.services.contains(services))
        .map(|row| Attributes { required: row.required, optional: row.optional })
        .reduce(|a, b| Attributes {
            required: a.required | b.required,
            optional: a.optional | b.optional,
        })
}

/// Checks that a queue pair of `qp_type` in state `from` may go to `to` with the attributes of
/// `mask`.
///
/// # Errors
/// Fails with [`ModifyQpError::NoTransition`] or [`ModifyQpError::Attributes`].
pub fn check(
    from: QpState,
    to: QpState,
    qp_type: QpType,
    mask: QpAttrMask,
) -> Result<(), ModifyQpError> {
    let Some(attributes) = attributes(from, to, qp_type) else {
        return Err(ModifyQpError::NoTransition { qp_type, from, to });
    };
    let missing = attributes.required.difference(mask);
    let unexpected = mask.difference(attributes.allowed());
    if missing.is_empty() && unexpected.is_empty() {
        Ok(())
    } else {
        Err(ModifyQpError::Attributes { qp_type, from, to, missing, unexpected })
    }
}

/// The limits that the port and the device set for attribute values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The active MTU of the port.
    pub active_mtu: PathMtu,
    /// The number of ports of the device.
    pub ports: u8,
    /// The most READ and atomic requests that a queue pair may have outstanding
    /// (`max_qp_init_rd_atom`).
    pub max_rd_atomic: u8,
}

/// A transition that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The state before.
    pub from: QpState,
    /// The state after. The same if the call names no state.
    pub to: QpState,
}

/// Checks a call of `ibv_modify_qp` on a queue pair of `qp_type` in state `current`. The checks
/// cover the current state that the caller names, the transition, its attributes and their values.
/// Attributes outside `mask` are not read.
///
/// # Errors
/// Fails with a [`ModifyQpError`]. The order of its variants is the order of the checks.
pub fn plan(
    current: QpState,
    qp_type: QpType,
    attr: &QpAttr,
    mask: QpAttrMask,
    limits: &Limits,
) -> Result<Step, ModifyQpError> {
    if mask.contains(QpAttrMask::CUR_STATE) && attr.cur_qp_state != current {
        return Err(ModifyQpError::CurrentState { qp_type, given: attr.cur_qp_state, current });
    }
    let to = if mask.contains(QpAttrMask::STATE) { attr.qp_state } else { current };
    check(current, to, qp_type, mask)?;
    check_qkey(qp_type, attr, mask)?;
    check_values(attr, mask, limits)?;
    Ok(Step { from: current, to })
}

/// Refuses a privileged Q_Key, one with the highest bit set (IBTA vol. 1, 10.2.5). The kernel
/// requires CAP_NET_RAW for it (uverbs_cmd.c). A queue pair with the Q_Key of QP1 could send to
/// every QP1, and no program here may have that right over others.
fn check_qkey(qp_type: QpType, attr: &QpAttr, mask: QpAttrMask) -> Result<(), ModifyQpError> {
    if mask.contains(QpAttrMask::QKEY) && attr.qkey.is_controlled() && qp_type != QpType::Gsi {
        return Err(ModifyQpError::PrivilegedQkey { given: attr.qkey });
    }
    Ok(())
}

/// Checks the values of the attributes in `mask`. The device checks addresses.
///
/// As in `rdma_rxe` (`rxe_qp_chk_attr` in `rxe_qp.c`), some attributes take each value of their
/// type:
///
/// - `pkey_index`, because packets have the default partition key;
/// - `retry_cnt` and `rnr_retry`, which are counts beyond 7 as well;
/// - `min_rnr_timer`, of which packets have the lower 5 bits;
/// - `max_dest_rd_atomic`, because the device uses its own limit if that is less.
///
/// # Errors
/// Fails with [`ModifyQpError::PathMtu`], [`ModifyQpError::Migration`] or [`ModifyQpError::Value`].
pub fn check_values(attr: &QpAttr, mask: QpAttrMask, limits: &Limits) -> Result<(), ModifyQpError> {
    if mask.contains(QpAttrMask::PATH_MTU) && attr.path_mtu > limits.active_mtu {
        return Err(ModifyQpError::PathMtu { given: attr.path_mtu, active: limits.active_mtu });
    }
    if mask.contains(QpAttrMask::PATH_MIG_STATE) && attr.path_mig_state != PathMigState::Migrated {
        return Err(ModifyQpError::Migration { given: attr.path_mig_state });
    }
    let ports = (1, u32::from(limits.ports));
    let reads = (0, u32::from(limits.max_rd_atomic));
    let (ah, alt_ah) = (&attr.ah, &attr.alt_ah);
    let fields: [(QpAttrMask, &'static str, u32, (u32, u32)); 7] = [
        (QpAttrMask::PORT, "port_num", attr.port_num.into(), ports),
        (QpAttrMask::AV, "ah_attr.port_num", ah.port_num.into(), ports),
        (QpAttrMask::TIMEOUT, "timeout", attr.timeout.into(), (0, 31)),
        (QpAttrMask::MAX_QP_RD_ATOMIC, "max_rd_atomic", attr.max_rd_atomic.into(), reads),
        (QpAttrMask::ALT_PATH, "alt_port_num", attr.alt_port_num.into(), ports),
        (QpAttrMask::ALT_PATH, "alt_timeout", attr.alt_timeout.into(), (0, 31)),
        (QpAttrMask::ALT_PATH, "alt_ah_attr.port_num", alt_ah.port_num.into(), ports),
    ];
    for (attribute, field, given, (min, max)) in fields {
        if mask.contains(attribute) && !(min..=max).contains(&given) {
            return Err(ModifyQpError::Value { attribute, field, given, min, max });
        }
    }
    Ok(())
}

urxe_types::errors! {
    /// Why a queue pair cannot be modified. Each text names the current state, the next state and
    /// the attributes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum ModifyQpError {
        /// The caller named a current state that is not the actual one.
        #[error("the {qp_type} QP is in state {current}, not in {given} as IBV_QP_CUR_STATE says")]
        CurrentState { qp_type: QpType, given: QpState, current: QpState } = EINVAL,
        #[error(
            "the {qp_type} QP cannot go from {from} to {to}; from {from} it can go to {}",
            Next(*.from, *.qp_type)
        )]
        NoTransition { qp_type: QpType, from: QpState, to: QpState } = EINVAL,
        #[error(
            "the {qp_type} QP going from {from} to {to}: {}",
            MaskFault(*.missing, *.unexpected)
        )]
        Attributes {
            qp_type: QpType,
            from: QpState,
            to: QpState,
            missing: QpAttrMask,
            unexpected: QpAttrMask,
        } = EINVAL,
        #[error("qkey (IBV_QP_QKEY) is {given}: those with the highest bit set are privileged, and \
                 only QP 1 has one; give one below 0x80000000")]
        PrivilegedQkey { given: QKey } = EPERM,
        #[error("path_mtu (IBV_QP_PATH_MTU) is {given}, but the port's active MTU is {active}")]
        PathMtu { given: PathMtu, active: PathMtu } = EINVAL,
        /// The call asks to prepare or use the alternate path. Its attributes are stored and
        /// returned, and have no other effect: when an address is removed, its sockets are closed,
        /// and no path is left to migrate to.
        #[error("path_mig_state (IBV_QP_PATH_MIG_STATE) is {given}: path migration (APM) is \
                 not supported; give MIGRATED")]
        Migration { given: PathMigState } = EOPNOTSUPP,
        /// `attribute`: the bit of the mask that selects the field.
        ///
        /// `field`: the name of the field in `struct ibv_qp_attr`.
        #[error("{field} ({attribute}) is {given}, not {min} to {max}")]
        Value {
            attribute: QpAttrMask,
            field: &'static str,
            given: u32,
            min: u32,
            max: u32,
        } = EINVAL,
    }
}

/// The states that may follow, for an error text.
struct Next(QpState, QpType);

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for to in QpState::ALL {
            if attributes(self.0, to, self.1).is_some() {
                write!(f, "{separator}{to}")?;
                separator = ", ";
            }
        }
        Ok(())
    }
}

/// The missing and the unexpected attributes of a mask, for an error text.
struct MaskFault(QpAttrMask, QpAttrMask);

impl fmt::Display for MaskFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.is_empty(), self.1.is_empty()) {
            (false, true) => write!(f, "missing {}", self.0),
            (true, false) => write!(f, "not allowed {}", self.1),
            _ => write!(f, "missing {}; not allowed {}", self.0, self.1),
        }
    }
}
