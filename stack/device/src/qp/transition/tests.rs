//! Tests of the table: against the calls of programs, against general rules, and against its
//! picture.

mod snapshot;

use proptest::prelude::*;
use urxe_wire::Gid;

use super::super::attr::AddressVector;
use super::*;

type Mask = QpAttrMask;

const LIMITS: Limits = Limits { active_mtu: PathMtu::Mtu1024, ports: 1, max_rd_atomic: 128 };

/// The calls of `ibv_rc_pingpong`, `ibv_uc_pingpong` and `ibv_ud_pingpong`.
///
/// IBTA 11.2.5.2.
#[test]
fn the_pingpong_programs_connect() {
    use QpState::{Init, Reset, Rtr, Rts};
    let init = Mask::STATE | Mask::PKEY_INDEX | Mask::PORT;
    let rtr = Mask::STATE | Mask::AV | Mask::PATH_MTU | Mask::DEST_QPN | Mask::RQ_PSN;
    let rc = [
        init | Mask::ACCESS_FLAGS,
        rtr | Mask::MAX_DEST_RD_ATOMIC | Mask::MIN_RNR_TIMER,
        Mask::STATE
            | Mask::TIMEOUT
            | Mask::RETRY_CNT
            | Mask::RNR_RETRY
            | Mask::SQ_PSN
            | Mask::MAX_QP_RD_ATOMIC,
    ];
    let uc = [init | Mask::ACCESS_FLAGS, rtr, Mask::STATE | Mask::SQ_PSN];
    let ud = [init | Mask::QKEY, Mask::STATE, Mask::STATE | Mask::SQ_PSN];
    for (qp_type, masks) in [(QpType::Rc, rc), (QpType::Uc, uc), (QpType::Ud, ud)] {
        for ((from, to), mask) in [(Reset, Init), (Init, Rtr), (Rtr, Rts)].into_iter().zip(masks) {
            assert_eq!(check(from, to, qp_type, mask), Ok(()), "{qp_type} {from} {to}");
        }
    }
}

/// IBTA 10.3.1.
#[test]
fn every_state_but_reset_goes_to_err_and_every_one_to_reset_with_nothing_else() {
    for from in QpState::ALL {
        for qp_type in QpType::ALL {
            assert_eq!(check(from, QpState::Reset, qp_type, Mask::STATE), Ok(()));
            let to_err = check(from, QpState::Err, qp_type, Mask::STATE);
            assert_eq!(to_err.is_ok(), from != QpState::Reset);
            for to in [QpState::Reset, QpState::Err] {
                assert!(check(from, to, qp_type, Mask::STATE | Mask::CUR_STATE).is_err());
            }
        }
    }
}

#[test]
fn only_unreliable_queue_pairs_leave_sqe_for_rts() {
    for qp_type in QpType::ALL {
        let unreliable = matches!(qp_type, QpType::Uc | QpType::Ud);
        assert_eq!(check(QpState::Sqe, QpState::Rts, qp_type, Mask::STATE).is_ok(), unreliable);
        for from in QpState::ALL {
            assert!(attributes(from, QpState::Sqe, qp_type).is_none(), "nobody asks for SQE");
        }
    }
}

#[test]
fn a_receiver_of_xrc_has_no_retries_and_a_sender_no_responder_resources() {
    let rts = |qp_type| attributes(QpState::Rtr, QpState::Rts, qp_type).unwrap();
    let rtr = |qp_type| attributes(QpState::Init, QpState::Rtr, qp_type).unwrap();
    assert_eq!(rts(QpType::XrcRecv).required, Mask::TIMEOUT | Mask::SQ_PSN);
    assert_eq!(rts(QpType::XrcSend).required, rts(QpType::Rc).required);
    assert_eq!(rtr(QpType::XrcRecv), rtr(QpType::Rc));
    assert_eq!(rtr(QpType::XrcSend), rtr(QpType::Uc));
}

#[test]
fn rows_name_each_attribute_once() {
    for (at, row) in TABLE.iter().enumerate() {
        assert!((row.required & row.optional).is_empty());
        for later in &TABLE[at + 1..] {
            if row.from == later.from
                && row.to == later.to
                && row.services.intersects(later.services)
            {
                let both = (row.required | row.optional) & (later.required | later.optional);
                assert_eq!(both, Mask::empty(), "{} to {}", row.from, row.to);
            }
        }
    }
}

#[test]
fn texts_name_states_and_attributes() {
    let mask = Mask::STATE | Mask::AV | Mask::PATH_MTU | Mask::DEST_QPN | Mask::QKEY;
    let error = check(QpState::Init, QpState::Rtr, QpType::Uc, mask).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the UC QP going from INIT to RTR: missing IBV_QP_RQ_PSN; not allowed IBV_QP_QKEY"
    );
    let error = check(QpState::Rtr, QpState::Rts, QpType::Ud, Mask::STATE).unwrap_err();
    assert_eq!(error.to_string(), "the UD QP going from RTR to RTS: missing IBV_QP_SQ_PSN");
    let error =
        check(QpState::Rts, QpState::Rts, QpType::Rc, Mask::from_bits_retain(1 << 23)).unwrap_err();
    assert_eq!(error.to_string(), "the RC QP going from RTS to RTS: not allowed 0x800000");
    let error = check(QpState::Reset, QpState::Rts, QpType::Rc, Mask::STATE).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the RC QP cannot go from RESET to RTS; from RESET it can go to RESET, INIT"
    );
    assert_eq!(error.errno(), libc::EINVAL);
}

#[test]
fn the_state_stays_without_the_state_bit() {
    let attr = QpAttr { qp_state: QpState::Err, min_rnr_timer: 12, ..QpAttr::default() };
    let step = plan(QpState::Rts, QpType::Rc, &attr, Mask::MIN_RNR_TIMER, &LIMITS);
    assert_eq!(step, Ok(Step { from: QpState::Rts, to: QpState::Rts }));
    let step = plan(QpState::Rtr, QpType::Rc, &attr, Mask::MIN_RNR_TIMER, &LIMITS);
    let loop_at_rtr =
        ModifyQpError::NoTransition { qp_type: QpType::Rc, from: QpState::Rtr, to: QpState::Rtr };
    assert_eq!(step, Err(loop_at_rtr));
}

#[test]
fn a_wrong_current_state_is_refused() {
    let attr = QpAttr { qp_state: QpState::Rts, cur_qp_state: QpState::Sqd, ..QpAttr::default() };
    let mask = Mask::STATE | Mask::CUR_STATE;
    let step = plan(QpState::Sqd, QpType::Rc, &attr, mask, &LIMITS);
    assert_eq!(step, Ok(Step { from: QpState::Sqd, to: QpState::Rts }));
    let error = plan(QpState::Rts, QpType::Rc, &attr, mask, &LIMITS).unwrap_err();
    assert_eq!(error.to_string(), "the RC QP is in state RTS, not in SQD as IBV_QP_CUR_STATE says");
}

/// IBTA 10.2.5.
#[test]
fn only_queue_pair_one_has_a_privileged_q_key() {
    let attr =
        QpAttr { qp_state: QpState::Init, port_num: 1, qkey: QKey::GSI, ..QpAttr::default() };
    let mask = Mask::STATE | Mask::PKEY_INDEX | Mask::PORT | Mask::QKEY;
    let error = plan(QpState::Reset, QpType::Ud, &attr, mask, &LIMITS).unwrap_err();
    assert_eq!(
        (error, error.errno()),
        (ModifyQpError::PrivilegedQkey { given: QKey::GSI }, libc::EPERM)
    );
    assert!(error.to_string().starts_with("qkey (IBV_QP_QKEY) is 0x80010000: "), "{error}");
    assert!(plan(QpState::Reset, QpType::Gsi, &attr, mask, &LIMITS).is_ok());
    // Every transition that takes the attribute refuses it.
    for from in [QpState::Init, QpState::Rts, QpState::Sqd] {
        let refused = plan(from, QpType::Ud, &attr, Mask::QKEY, &LIMITS);
        assert_eq!(refused, Err(ModifyQpError::PrivilegedQkey { given: QKey::GSI }), "{from}");
        let highest = QpAttr { qkey: QKey(0x7fff_ffff), ..attr };
        assert!(plan(from, QpType::Ud, &highest, Mask::QKEY, &LIMITS).is_ok(), "{from}");
    }
    // Attributes outside the mask are not read.
    let unnamed = QpAttr { qp_state: QpState::Rtr, ..attr };
    assert!(plan(QpState::Init, QpType::Ud, &unnamed, Mask::STATE, &LIMITS).is_ok());
}

#[test]
fn values_have_ranges() {
    let good = QpAttr {
        port_num: 1,
        ah: AddressVector {
            port_num: 1,
            sgid_index: 3,
            is_global: true,
            dgid: Gid::ZERO,
            ..Default::default()
        },
        alt_ah: AddressVector { port_num: 1, ..Default::default() },
        alt_port_num: 1,
        path_mtu: PathMtu::Mtu1024,
        timeout: 31,
        alt_timeout: 31,
        pkey_index: u16::MAX,
        alt_pkey_index: u16::MAX,
        retry_cnt: u8::MAX,
        rnr_retry: u8::MAX,
        min_rnr_timer: u8::MAX,
        max_rd_atomic: 128,
        max_dest_rd_atomic: u8::MAX,
        ..QpAttr::default()
    };
    assert_eq!(check_values(&good, Mask::all(), &LIMITS), Ok(()));

    let mut bad = good;
    bad.path_mtu = PathMtu::Mtu2048;
    let error = check_values(&bad, Mask::all(), &LIMITS).unwrap_err();
    assert_eq!(
        error.to_string(),
        "path_mtu (IBV_QP_PATH_MTU) is 2048, but the port's active MTU is 1024"
    );
    assert_eq!(check_values(&bad, Mask::all() - Mask::PATH_MTU, &LIMITS), Ok(()));

    type Spoil = fn(&mut QpAttr);
    let cases: [(Mask, &str, u32, Spoil); 11] = [
        (Mask::PORT, "port_num", 0, |a| a.port_num = 0),
        (Mask::PORT, "port_num", 2, |a| a.port_num = 2),
        (Mask::AV, "ah_attr.port_num", 0, |a| a.ah.port_num = 0),
        (Mask::TIMEOUT, "timeout", 32, |a| a.timeout = 32),
        (Mask::MAX_QP_RD_ATOMIC, "max_rd_atomic", 129, |a| a.max_rd_atomic = 129),
        (Mask::MAX_QP_RD_ATOMIC, "max_rd_atomic", 255, |a| a.max_rd_atomic = 255),
        (Mask::ALT_PATH, "alt_port_num", 0, |a| a.alt_port_num = 0),
        (Mask::ALT_PATH, "alt_port_num", 2, |a| a.alt_port_num = 2),
        (Mask::ALT_PATH, "alt_timeout", 32, |a| a.alt_timeout = 32),
        (Mask::ALT_PATH, "alt_ah_attr.port_num", 0, |a| a.alt_ah.port_num = 0),
        (Mask::ALT_PATH, "alt_ah_attr.port_num", 2, |a| a.alt_ah.port_num = 2),
    ];
    for (bit, name, value, spoil) in cases {
        let mut bad = good;
        spoil(&mut bad);
        match check_values(&bad, Mask::all(), &LIMITS) {
            Err(ModifyQpError::Value { attribute, field, given, .. }) => {
                assert_eq!((attribute, field, given), (bit, name, value));
            }
            other => panic!("{name} = {value}: {other:?}"),
        }
        assert_eq!(
            check_values(&bad, Mask::all() - bit, &LIMITS),
            Ok(()),
            "{name} is not read without its bit"
        );
    }
    let mut bad = good;
    bad.timeout = 40;
    let error = check_values(&bad, Mask::all(), &LIMITS).unwrap_err();
    assert_eq!(error.to_string(), "timeout (IBV_QP_TIMEOUT) is 40, not 0 to 31");
}

fn states() -> impl Strategy<Value = QpState> {
    (0..QpState::ALL.len()).prop_map(|at| QpState::ALL[at])
}

fn types() -> impl Strategy<Value = QpType> {
    (0..QpType::ALL.len()).prop_map(|at| QpType::ALL[at])
}

proptest! {
    /// Following the advice of an error makes the call valid, whatever its mask was.
    #[test]
    fn errors_say_what_to_change(from in states(), to in states(), qp_type in types(), bits: u32) {
        let mask = QpAttrMask::from_bits_retain(bits);
        match check(from, to, qp_type, mask) {
            Ok(()) => {
                let attributes = attributes(from, to, qp_type).unwrap();
                prop_assert!(mask.contains(attributes.required));
                prop_assert!(attributes.allowed().contains(mask));
            }
            Err(ModifyQpError::Attributes { missing, unexpected, .. }) => {
                prop_assert!(mask.contains(unexpected) && !mask.intersects(missing));
                prop_assert!(!missing.is_empty() || !unexpected.is_empty());
                let mended = mask.difference(unexpected).union(missing);
                prop_assert_eq!(check(from, to, qp_type, mended), Ok(()));
            }
            Err(ModifyQpError::NoTransition { .. }) => {
                prop_assert_eq!(attributes(from, to, qp_type), None);
            }
            Err(other) => prop_assert!(false, "{other:?}"),
        }
    }

    /// Every call is either planned or refused, and every refusal has a text.
    #[test]
    fn no_call_panics(
        from in states(), to in states(), current in states(), qp_type in types(),
        bits: u32, value: u8,
    ) {
        let attr = QpAttr {
            qp_state: to,
            cur_qp_state: current,
            port_num: value,
            timeout: value,
            retry_cnt: value,
            max_rd_atomic: value,
            ..QpAttr::default()
        };
        let mask = QpAttrMask::from_bits_retain(bits);
        match plan(from, qp_type, &attr, mask, &LIMITS) {
            Ok(step) => {
                prop_assert_eq!(step.from, from);
                prop_assert_eq!(step.to, if mask.contains(QpAttrMask::STATE) { to } else { from });
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
