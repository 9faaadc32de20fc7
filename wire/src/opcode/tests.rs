use super::*;

#[test]
fn info_is_the_opcodes_own_row() {
    for opcode in Opcode::all() {
        assert_eq!(opcode.info().opcode, opcode);
        assert_eq!(Opcode::try_from(opcode.byte()), Ok(opcode));
        assert_eq!(u8::from(opcode), opcode.byte());
    }
    assert_eq!(Opcode::all().len(), 65);
}

#[test]
fn bytes_that_are_no_opcode() {
    for byte in 0..=u8::MAX {
        let known = Opcode::all().any(|o| o.byte() == byte);
        let want = match byte {
            _ if known => continue,
            0x40..=0x5f => OpcodeError::ReliableDatagram(byte),
            _ => OpcodeError::Unknown(byte),
        };
        assert_eq!(Opcode::try_from(byte), Err(want));
        assert!(Opcode::lookup(byte).is_none());
    }
    assert_eq!(
        Opcode::try_from(0x15),
        Err(OpcodeError::Unknown(0x15)),
        "RESYNC is of Reliable Datagram alone"
    );
}

/// Lengths and offsets as in IBTA table 38.
#[test]
fn lengths_and_offsets() {
    let len = |o: Opcode| o.info().headers_len();
    assert_eq!(len(Opcode::RcSendOnly), 12);
    assert_eq!(len(Opcode::RcWriteOnlyImm), 32);
    assert_eq!(len(Opcode::RcAcknowledge), 16);
    assert_eq!(len(Opcode::RcAtomicAcknowledge), 24);
    assert_eq!(len(Opcode::RcCompareSwap), 40);
    assert_eq!(len(Opcode::RcFlush), 32);
    assert_eq!(len(Opcode::RcAtomicWrite), 28);
    assert_eq!(len(Opcode::UdSendOnlyImm), 24);
    assert_eq!(len(Opcode::XrcWriteOnlyImm), 36);
    assert_eq!(len(Opcode::XrcReadResponseFirst), 16);
    assert_eq!(len(Opcode::Cnp), 12);

    let at = |o: Opcode, h| o.info().offset(h);
    assert_eq!(at(Opcode::RcWriteOnlyImm, HeaderSet::RETH), Some(12));
    assert_eq!(at(Opcode::RcWriteOnlyImm, HeaderSet::IMM), Some(28));
    assert_eq!(at(Opcode::RcFlush, HeaderSet::FETH), Some(12));
    assert_eq!(at(Opcode::RcFlush, HeaderSet::RETH), Some(16));
    assert_eq!(at(Opcode::RcAtomicAcknowledge, HeaderSet::ATOMIC_ACK_ETH), Some(16));
    assert_eq!(at(Opcode::XrcWriteOnlyImm, HeaderSet::XRCETH), Some(12));
    assert_eq!(at(Opcode::XrcWriteOnlyImm, HeaderSet::RETH), Some(16));
    assert_eq!(at(Opcode::UdSendOnlyImm, HeaderSet::IMM), Some(20));
    assert_eq!(at(Opcode::RcSendOnly, HeaderSet::RETH), None);
    assert_eq!(
        at(Opcode::RcWriteOnlyImm, HeaderSet::RETH | HeaderSet::IMM),
        None,
        "one header at a time"
    );
}

#[test]
fn receive_wqes_are_taken_and_completed_where_the_specification_says() {
    let takes: Vec<_> = Opcode::all()
        .filter(|o| o.info().needs_recv_wqe && o.info().service == Service::Rc)
        .collect();
    let completes: Vec<_> = Opcode::all()
        .filter(|o| o.info().completes_recv_wqe && o.info().service == Service::Rc)
        .collect();
    use Opcode::*;
    assert_eq!(
        takes,
        [RcSendFirst, RcSendOnly, RcSendOnlyImm, RcWriteLastImm, RcWriteOnlyImm, RcSendOnlyInv]
    );
    assert_eq!(
        completes,
        [
            RcSendLast,
            RcSendLastImm,
            RcSendOnly,
            RcSendOnlyImm,
            RcWriteLastImm,
            RcWriteOnlyImm,
            RcSendLastInv,
            RcSendOnlyInv
        ]
    );
}

/// IBTA A14.4.
#[test]
fn xrc_is_rc_with_an_xrceth_in_requests() {
    for rc in Opcode::all().filter(|o| o.info().service == Service::Rc) {
        let (rc, xrc) = (rc.info(), Opcode::try_from(rc.byte() | 0xa0).unwrap().info());
        assert_eq!((xrc.kind, xrc.position, xrc.payload), (rc.kind, rc.position, rc.payload));
        let want = if rc.is_request { rc.headers | HeaderSet::XRCETH } else { rc.headers };
        assert_eq!(xrc.headers, want, "{}", xrc.name);
        assert_eq!(xrc.name, format!("X{}", rc.name));
        assert_eq!(rc.opcode.over_xrc(), xrc.opcode);
    }
    for other in Opcode::all().filter(|o| o.info().service != Service::Rc) {
        assert_eq!(other.over_xrc(), other);
    }
}

/// IBTA 9.7.4.1.4 to 9.7.4.1.6.
#[test]
fn a_packet_has_the_length_of_its_position() {
    const MTU: usize = 1024;
    let fitting = |position: Position| {
        [0, 1, MTU - 1, MTU, MTU + 1].into_iter().filter(move |&len| position.fits(len, MTU))
    };
    for position in [Position::First, Position::Middle] {
        assert!(fitting(position).eq([MTU]), "{position:?}");
    }
    assert!(fitting(Position::Last).eq([1, MTU - 1, MTU]));
    assert!(fitting(Position::Only).eq([0, 1, MTU - 1, MTU]));
}

#[test]
fn only_a_compare_and_swap_and_a_fetch_and_add_are_atomics() {
    let atomics = Opcode::all().filter(|opcode| opcode.info().kind.is_atomic());
    use Opcode::*;
    assert!(atomics.eq([RcCompareSwap, RcFetchAdd, XrcCompareSwap, XrcFetchAdd]));
}

#[test]
fn requests_and_responses() {
    for info in Opcode::all().map(Opcode::info) {
        assert!(!(info.is_request && info.is_response));
        assert_eq!(info.is_request || info.is_response, info.kind != Kind::Cnp, "{}", info.name);
        assert_eq!(
            info.is_response,
            (0x0d..=0x12).contains(&(info.opcode.byte() & 0x1f)),
            "{}",
            info.name
        );
    }
}
