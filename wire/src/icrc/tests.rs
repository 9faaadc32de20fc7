use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;

/// Computes the ICRC as the specification describes: lays out and masks the message, then one CRC.
fn plain_v4(
    src: Ipv4Addr,
    sport: u16,
    dst: Ipv4Addr,
    dport: u16,
    id: u16,
    df: bool,
    packet: &[u8],
) -> u32 {
    let udp_len = (packet.len() + 4 + 8) as u16;
    let mut m = vec![0xff; 8];
    m.extend([0x45, 0xff]);
    m.extend((udp_len + 20).to_be_bytes());
    m.extend(id.to_be_bytes());
    m.extend([if df { 0x40 } else { 0 }, 0, 0xff, 17, 0xff, 0xff]);
    m.extend(src.octets());
    m.extend(dst.octets());
    m.extend(sport.to_be_bytes());
    m.extend(dport.to_be_bytes());
    m.extend(udp_len.to_be_bytes());
    m.extend([0xff, 0xff]);
    let bth = m.len();
    m.extend(packet);
    m[bth + 4] = 0xff;
    crc32fast::hash(&m)
}

fn packet(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + 3) as u8).collect()
}

const SRC: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 12);
const DST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 11);

fn seed() -> IcrcSeed {
    IcrcSeed::new(SRC.into(), 0xc123, DST.into(), 4791).unwrap()
}

/// IBTA A17.3.3.
#[test]
fn ipv4_equals_the_plain_computation() {
    for len in [12, 16, 28, 80, 1040, 4112, 4136] {
        for (id, df) in [(0, true), (0, false), (1, true), (0x1234, true), (0xffff, false)] {
            let p = packet(len);
            assert_eq!(
                seed().icrc(id, df, &p),
                plain_v4(SRC, 0xc123, DST, 4791, id, df, &p),
                "{len} {id} {df}"
            );
        }
    }
}

/// IBTA A17.3.3.
#[test]
fn ipv6_equals_the_plain_computation() {
    let src: Ipv6Addr = "fe80::1".parse().unwrap();
    let dst: Ipv6Addr = "2001:db8::2:3".parse().unwrap();
    let seed = IcrcSeed::new(src.into(), 50_000, dst.into(), 4791).unwrap();
    for len in [12, 16, 80, 4112] {
        let p = packet(len);
        let udp_len = (len as u16 + 12).to_be_bytes();
        let mut m = vec![0xff; 8];
        m.extend([0x6f, 0xff, 0xff, 0xff, udp_len[0], udp_len[1], 17, 0xff]);
        m.extend(src.octets());
        m.extend(dst.octets());
        m.extend(50_000u16.to_be_bytes());
        m.extend(4791u16.to_be_bytes());
        m.extend(udp_len);
        m.extend([0xff, 0xff]);
        let bth = m.len();
        m.extend(&p);
        m[bth + 4] = 0xff;
        assert_eq!(seed.icrc(0, true, &p), crc32fast::hash(&m), "{len}");
        assert_eq!(seed.icrc(77, false, &p), crc32fast::hash(&m), "no identification in IPv6");
    }
}

/// IBTA A17.3.3.
#[test]
fn congestion_marks_do_not_change_it() {
    let mut p = packet(80);
    let before = seed().icrc(0, true, &p);
    for byte in [0, 0x40, 0x80, 0xff] {
        p[4] = byte;
        assert_eq!(seed().icrc(0, true, &p), before);
    }
    p[5] ^= 1;
    assert_ne!(seed().icrc(0, true, &p), before);
}

#[test]
fn families_do_not_mix() {
    assert_eq!(IcrcSeed::new(SRC.into(), 1, Ipv6Addr::LOCALHOST.into(), 4791), None);
}

#[test]
fn every_identification_is_found() {
    let mut solver = IcrcSolver::new();
    for len in [12, 80, 268] {
        let mut p = packet(len + ICRC_LEN);
        for id in 0..=u16::MAX {
            let icrc = seed().icrc(id, true, &p[..len]);
            p[len..].copy_from_slice(&icrc.to_le_bytes());
            let want = match id {
                0 | 3 => IcrcVerdict::Exact { identification: id },
                _ => IcrcVerdict::Solved { identification: id },
            };
            assert_eq!(seed().verify(&mut solver, &p, 3), want, "len {len}");
        }
    }
}

/// Of the 2^32 differences, 2^16 correspond to an identification, because the images of its 16 bits
/// are independent. Damage therefore passes with probability 2^-16: about 64 of 2^22 random
/// differences.
#[test]
fn damage_passes_once_in_65536_times() {
    let mut solver = IcrcSolver::new();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut passed = 0;
    for _ in 0..1 << 22 {
        // xorshift64* with a fixed seed.
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let difference = (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32;
        passed += u32::from(solver.solve(difference, 76).is_some());
    }
    assert!((32..=96).contains(&passed), "four standard deviations around 64: {passed}");
}

#[test]
fn strict_and_segment_identifications_are_exact() {
    let mut solver = IcrcSolver::new();
    let mut p = packet(80);
    for segment in 0..64 {
        assert_eq!(seed().append(segment, &mut p, 76), Some(80));
        assert_eq!(
            seed().verify(&mut solver, &p, segment),
            IcrcVerdict::Exact { identification: segment }
        );
    }
    assert_eq!(seed().append(0, &mut p, 77), None, "no room");
    assert_eq!(seed().append(0, &mut p, 81), None);
    // A packet without DF is rejected for every identification, unless another identification
    // explains it.
    let without_df = seed().icrc(5, false, &p[..76]);
    p[76..].copy_from_slice(&without_df.to_le_bytes());
    assert_eq!(seed().verify(&mut solver, &p, 5), IcrcVerdict::Bad);
}

#[test]
fn lengths_that_share_an_entry_do_not_disturb_each_other() {
    let mut solver = IcrcSolver::new();
    for _ in 0..2 {
        for len in [76, 76 + 4 * SOLVER_ENTRIES, 76 + 8 * SOLVER_ENTRIES] {
            let p = packet(len);
            let image = seed().icrc(0, true, &p) ^ seed().icrc(0xbeef, true, &p);
            assert_eq!(solver.solve(image, len), Some(0xbeef));
        }
    }
}

#[test]
fn packets_of_every_length_are_solved() {
    let mut solver = IcrcSolver::new();
    for len in (12..1 << 16).step_by(4 * 251) {
        let packet = packet(len);
        let image = seed().icrc(0, true, &packet) ^ seed().icrc(0xbeef, true, &packet);
        assert_eq!(solver.solve(image, len), Some(0xbeef), "{len}");
    }
}

#[test]
fn arithmetic_modulo_the_generator() {
    assert_eq!(mul(0x1234_5678, ONE), 0x1234_5678);
    assert_eq!(mul(x_pow(100), x_pow(-100)), ONE);
    assert_eq!(x_pow(0), ONE);
    assert_eq!(mul(x_pow(31), x_pow(1)), POLY, "x^32 is what the generator leaves");
    for (a, b) in [(0xdead_beef, 0x0bad_cafe), (1, 0x8000_0001)] {
        assert_eq!(mul(a, b), mul(b, a));
    }
}

/// A FLUSH from a kernel 6.12, BTH to ICRC: 10.77.0.12 port 65354 to 10.77.0.1.
const KERNEL_FLUSH: &str =
    "1c00ffff000051be807438340000000100007fedcba01000a222cdbf00000001895863ed";

#[test]
fn a_flush_of_the_kernel_holds_and_one_sent_as_such_is_the_same() {
    let hex = |at: usize| u8::from_str_radix(&KERNEL_FLUSH[at..at + 2], 16).unwrap();
    let kernels: Vec<u8> = (0..KERNEL_FLUSH.len()).step_by(2).map(hex).collect();
    let (src, dst) = (Ipv4Addr::new(10, 77, 0, 12), Ipv4Addr::new(10, 77, 0, 1));
    let seed = IcrcSeed::new(src.into(), 65354, dst.into(), 4791).unwrap();
    let verdict = seed.verify(&mut IcrcSolver::new(), &kernels, 0);
    let IcrcVerdict::Solved { identification } = verdict else { panic!("{verdict:?}") };
    let mut own = kernels.clone();
    let end = own.len() - 4;
    own[end..].fill(0);
    assert_eq!(seed.append(identification, &mut own, end), Some(kernels.len()));
    assert_eq!(own, kernels);

    let standard = seed.with_flush(FlushIcrc::Standard);
    assert_eq!(standard.append(7, &mut own, end), Some(kernels.len()));
    assert_ne!(own, kernels);
    assert_eq!(own[end..], seed.icrc(7, true, &own[..end]).to_le_bytes());
    let exact = IcrcVerdict::Exact { identification: 7 };
    assert_eq!(seed.verify(&mut IcrcSolver::new(), &own, 7), exact, "both kinds are accepted");
    own[20] ^= 1;
    assert_eq!(seed.verify(&mut IcrcSolver::new(), &own, 7), IcrcVerdict::Bad);
    // No other opcode may use this ICRC.
    let mut write = kernels;
    write[0] = Opcode::RcWriteOnly as u8;
    let icrc = seed.rxe_flush_icrc(0, true, &write[..end]);
    write[end..].copy_from_slice(&icrc.to_le_bytes());
    assert_eq!(seed.verify(&mut IcrcSolver::new(), &write, 0), IcrcVerdict::Bad);
}

#[test]
fn a_translated_icrc_fits_the_new_port_whatever_the_identification() {
    let to = IcrcSeed::new(SRC.into(), 50_000, DST.into(), 4791).unwrap();
    let [of_rxe, standard] =
        [FlushIcrc::Rxe, FlushIcrc::Standard].map(|flush| seed().with_flush(flush));
    for (opcode, from) in
        [(Opcode::RcSendOnly, seed()), (Opcode::RcFlush, standard), (Opcode::RcFlush, of_rxe)]
    {
        for identification in [0, 1, 0x1234] {
            let mut packet = packet(40);
            packet[0] = opcode as u8;
            from.append(identification, &mut packet, 36).unwrap();
            let mut damaged = packet.clone();
            damaged[20] ^= 1;
            let verdict = |packet: &[u8]| to.verify(&mut IcrcSolver::new(), packet, identification);
            from.translate(&to, &mut packet);
            assert_eq!(verdict(&packet), IcrcVerdict::Exact { identification }, "{opcode:?}");
            from.translate(&to, &mut damaged);
            assert_eq!(verdict(&damaged), IcrcVerdict::Bad, "{opcode:?}");
        }
    }
    let mut short = [0; 3];
    seed().translate(&to, &mut short);
    assert_eq!(short, [0; 3]);
}
