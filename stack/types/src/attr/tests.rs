//! Compares numbers with those of libibverbs' header, written by hand.

use super::*;

#[test]
fn numbers_are_those_of_libibverbs() {
    assert_eq!(QpType::ALL.map(QpType::number), [2, 3, 4, 9, 10]);
    assert_eq!(QpState::ALL.map(QpState::number), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(PathMtu::ALL.map(PathMtu::number), [1, 2, 3, 4, 5]);
    for qp_type in QpType::ALL {
        assert_eq!(QpType::from_number(qp_type.number().into()), Some(qp_type));
    }
    for state in QpState::ALL {
        assert_eq!(QpState::from_number(state.number().into()), Some(state));
    }
    for mtu in PathMtu::ALL {
        assert_eq!(PathMtu::from_number(mtu.number().into()), Some(mtu));
    }
    for number in 0..3 {
        assert_eq!(PathMigState::from_number(number).map(|s| u32::from(s.number())), Some(number));
    }
    for number in [7, 8, 255, 256, u32::MAX] {
        assert_eq!(QpState::from_number(number), None);
        assert_eq!(PathMtu::from_number(number), None);
        assert_eq!(QpType::from_number(number), None);
        assert_eq!(PathMigState::from_number(number), None);
    }
}

#[test]
fn path_mtus_are_powers_of_two_in_bytes() {
    assert_eq!(PathMtu::ALL.map(PathMtu::bytes), [256, 512, 1024, 2048, 4096]);
    assert_eq!(PathMtu::at_most(255), None);
    assert_eq!(PathMtu::at_most(256), Some(PathMtu::Mtu256));
    assert_eq!(PathMtu::at_most(1023), Some(PathMtu::Mtu512));
    assert_eq!(PathMtu::at_most(1440), Some(PathMtu::Mtu1024));
    assert_eq!(PathMtu::at_most(usize::MAX), Some(PathMtu::Mtu4096));
    assert!(PathMtu::Mtu512 < PathMtu::Mtu1024);
    assert_eq!(PathMtu::Mtu4096.to_string(), "4096");
}

#[test]
fn masks_have_the_bits_and_names_of_libibverbs() {
    let names: Vec<_> =
        QpAttrMask::all().iter_names().map(|(name, bit)| (name, bit.bits())).collect();
    let expected = [
        ("STATE", 0),
        ("CUR_STATE", 1),
        ("EN_SQD_ASYNC_NOTIFY", 2),
        ("ACCESS_FLAGS", 3),
        ("PKEY_INDEX", 4),
        ("PORT", 5),
        ("QKEY", 6),
        ("AV", 7),
        ("PATH_MTU", 8),
        ("TIMEOUT", 9),
        ("RETRY_CNT", 10),
        ("RNR_RETRY", 11),
        ("RQ_PSN", 12),
        ("MAX_QP_RD_ATOMIC", 13),
        ("ALT_PATH", 14),
        ("MIN_RNR_TIMER", 15),
        ("SQ_PSN", 16),
        ("MAX_DEST_RD_ATOMIC", 17),
        ("PATH_MIG_STATE", 18),
        ("CAP", 19),
        ("DEST_QPN", 20),
        ("RATE_LIMIT", 25),
    ];
    assert_eq!(names, expected.map(|(name, bit)| (name, 1 << bit)));
}

#[test]
fn masks_display_as_their_names() {
    assert_eq!(QpAttrMask::empty().to_string(), "0");
    assert_eq!((QpAttrMask::AV | QpAttrMask::STATE).to_string(), "IBV_QP_STATE | IBV_QP_AV");
    let unknown = QpAttrMask::from_bits_retain(1 << 21 | 1);
    assert_eq!(unknown.to_string(), "IBV_QP_STATE | 0x200000");
    assert_eq!(QpAttrMask::from_bits_retain(1 << 31).to_string(), "0x80000000");
}
