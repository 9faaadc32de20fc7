use super::*;

/// IBTA 9.5.2 and 9.7.5.
#[test]
fn every_syndrome_byte_survives_a_round_trip() {
    for byte in 0..=u8::MAX {
        assert_eq!(Syndrome::from_byte(byte).byte(), byte, "{byte:#04x}");
    }
    assert_eq!(Syndrome::from_byte(0x1f), Syndrome::ACK);
    assert_eq!(Syndrome::from_byte(0x60), Syndrome::Nak(NakCode::PsnSequence));
    assert_eq!(Syndrome::from_byte(0x63), Syndrome::Nak(NakCode::RemoteOperational));
    assert_eq!(Syndrome::from_byte(0x2c), Syndrome::RnrNak(RnrTimer(12)));
    for reserved in [0x40, 0x65, 0x7f, 0x80, 0xff] {
        assert!(
            matches!(Syndrome::from_byte(reserved), Syndrome::Reserved(b) if b.byte() == reserved)
        );
    }
}

#[test]
fn rnr_table_is_the_specifications() {
    let ms = |code| RnrTimer::new(code).unwrap().duration_ns() as f64 / 1e6;
    // IBTA vol. 1, table 45, every entry.
    let table = [
        655.36, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16, 0.24, 0.32, 0.48, 0.64, 0.96, 1.28,
        1.92, 2.56, 3.84, 5.12, 7.68, 10.24, 15.36, 20.48, 30.72, 40.96, 61.44, 81.92, 122.88,
        163.84, 245.76, 327.68, 491.52,
    ];
    for (code, want) in table.into_iter().enumerate() {
        assert_eq!(ms(code as u8), want, "code {code}");
    }
    assert_eq!(RnrTimer::new(32), None);
}

#[test]
fn rnr_timer_rounds_up() {
    assert_eq!(RnrTimer::at_least(0).code(), 1);
    assert_eq!(RnrTimer::at_least(10_000).code(), 1);
    assert_eq!(RnrTimer::at_least(10_001).code(), 2);
    assert_eq!(RnrTimer::at_least(640_000).code(), 12);
    assert_eq!(RnrTimer::at_least(491_520_001), RnrTimer::LONGEST);
    assert_eq!(RnrTimer::at_least(u64::MAX), RnrTimer::LONGEST);
}

/// IBTA 9.9.2.1.1.
#[test]
fn ack_timeout_is_an_exponent() {
    assert_eq!(AckTimeout::OFF.duration_ns(), None);
    assert_eq!(AckTimeout::new(1).unwrap().duration_ns(), Some(8_192));
    assert_eq!(AckTimeout::new(14).unwrap().duration_ns(), Some(67_108_864));
    assert_eq!(AckTimeout::new(31).unwrap().duration_ns(), Some(4_096 << 31));
    assert_eq!(AckTimeout::new(32), None);
}

#[test]
fn credit_codes_are_the_specifications() {
    let counts: Vec<_> = (0..32).map(|c| Credits::new(c).unwrap().count()).collect();
    let want = [
        0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
        2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
    ];
    assert_eq!(counts[..31], want.map(Some));
    assert_eq!(counts[31], None);
}

#[test]
fn shapes_of_display() {
    assert_eq!(Aeth { syndrome: Syndrome::ACK, msn: Msn::masked(7) }.to_string(), "ACK msn 7");
    assert_eq!(Syndrome::RnrNak(RnrTimer(12)).to_string(), "RNR NAK wait 0.64 ms");
    assert_eq!(Syndrome::from_byte(0).to_string(), "ACK credits 0");
    assert_eq!(Syndrome::from_byte(0xff).to_string(), "reserved syndrome 0xff");
}
