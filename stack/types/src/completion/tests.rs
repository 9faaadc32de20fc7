//! Compares numbers and texts with those of libibverbs' header, written by hand.

use super::*;

#[test]
fn a_completion_is_48_bytes() {
    assert_eq!(size_of::<Completion>(), 48);
}

#[test]
fn statuses_have_the_numbers_of_libibverbs() {
    for (number, status) in WcStatus::ALL.into_iter().enumerate() {
        assert_eq!(usize::from(status.number()), number);
        assert_eq!(WcStatus::from_number(u32::from(status.number())), Some(status));
    }
    assert_eq!(WcStatus::from_number(24), None);
    assert_eq!(WcStatus::from_number(u32::MAX), None);
    assert_eq!(WcStatus::WrFlushErr.number(), 5);
    assert_eq!(WcStatus::RemAccessErr.number(), 10);
    assert_eq!(WcStatus::RetryExcErr.number(), 12);
    assert_eq!(WcStatus::RnrRetryExcErr.number(), 13);
    assert_eq!(WcStatus::GeneralErr.number(), 21);
}

#[test]
fn statuses_have_the_texts_of_libibverbs() {
    assert_eq!(WcStatus::Success.to_string(), "success");
    assert_eq!(WcStatus::WrFlushErr.to_string(), "Work Request Flushed Error");
    assert_eq!(WcStatus::RetryExcErr.to_string(), "transport retry counter exceeded");
    assert_eq!(format!("[{:>9}]", WcStatus::Success), "[  success]");
    let mut texts: Vec<_> = WcStatus::ALL.iter().map(|status| status.as_str()).collect();
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), WcStatus::ALL.len());
}

#[test]
fn opcodes_have_the_numbers_of_libibverbs() {
    let numbers: Vec<_> = WcOpcode::ALL.iter().map(|opcode| opcode.number()).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 128, 129]);
    for opcode in WcOpcode::ALL {
        assert_eq!(
            opcode.is_receive(),
            matches!(opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm)
        );
        // Only the kernel has fast registration.
        let prefix = if opcode == WcOpcode::RegMr { "IB_WC_" } else { "IBV_WC_" };
        assert!(opcode.to_string().starts_with(prefix));
    }
}

#[test]
fn immediate_and_invalidated_key_share_a_field() {
    let plain = Completion::new(7, Qpn::QP1, WcOpcode::Recv, WcStatus::Success).with_byte_len(3);
    assert_eq!(
        (plain.wr_id, plain.byte_len, plain.imm_data(), plain.invalidated_rkey()),
        (7, 3, None, None)
    );

    let imm = plain.with_grh().with_imm(0x0102_0304);
    assert_eq!(imm.flags(), WcFlags::GRH | WcFlags::WITH_IMM);
    assert_eq!((imm.imm_data(), imm.invalidated_rkey()), (Some(0x0102_0304), None));

    let inv = imm.with_invalidated(Rkey(9));
    assert_eq!(inv.flags(), WcFlags::GRH | WcFlags::WITH_INV);
    assert_eq!((inv.imm_data(), inv.invalidated_rkey()), (None, Some(Rkey(9))));
    assert_eq!(inv.with_imm(0).imm_data(), Some(0));
}

#[test]
fn flags_have_the_bits_of_libibverbs() {
    assert_eq!(WcFlags::GRH.bits(), 1);
    assert_eq!(WcFlags::WITH_IMM.bits(), 2);
    assert_eq!(WcFlags::IP_CSUM_OK.bits(), 4);
    assert_eq!(WcFlags::WITH_INV.bits(), 8);
}

#[test]
fn a_failed_completion_is_an_error_with_its_request() {
    let sent = Completion::new(7, Qpn::QP1, WcOpcode::Send, WcStatus::Success).with_byte_len(3);
    assert_eq!(sent.ok(), Ok(sent));
    for status in WcStatus::ALL.into_iter().filter(|status| !status.is_success()) {
        for opcode in WcOpcode::ALL {
            let error = Completion::new(7, Qpn::QP1, opcode, status).ok().unwrap_err();
            let fields = (error.status, error.opcode, error.qp_num, error.wr_id);
            assert_eq!(fields, (status, opcode, Qpn::QP1, 7));
        }
    }
    let write = Completion::new(7, Qpn::masked(0x12), WcOpcode::RdmaWrite, WcStatus::RemOpErr);
    assert_eq!(
        write.ok().unwrap_err().to_string(),
        "RDMA WRITE with wr_id 7 on queue pair 0x000012 failed: remote operation error"
    );
}
