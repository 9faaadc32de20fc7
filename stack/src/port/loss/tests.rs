use std::net::{IpAddr, Ipv4Addr};

use super::*;

const SIZE: usize = 100;

fn datagrams(bytes: &[u8]) -> Datagrams<'_> {
    let ip = IpAddr::from(Ipv4Addr::LOCALHOST);
    Datagrams { from: ip, from_port: 1, to: ip, bytes, segment_size: SIZE, traffic_class: 0, hop_limit: 64 }
}

/// Ten packets, each of its number, the last shorter.
fn packets() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..10).flat_map(|nr| [nr; SIZE]).collect();
    bytes.truncate(9 * SIZE + 30);
    bytes
}

#[test]
fn what_is_not_lost_arrives_in_order_and_whole() {
    let bytes = packets();
    let mut loss = Loss::new(Chance::from_percent(30), 7).unwrap();
    let (mut lost, mut arrived) = (0, 0);
    for _ in 0..1000 {
        let mut numbers = Vec::new();
        let now = loss.thin(&datagrams(&bytes), |rest| {
            for packet in rest.segments() {
                assert!(packet.iter().all(|byte| *byte == packet[0]), "one packet is one piece");
                assert_eq!(packet.len(), if packet[0] == 9 { 30 } else { SIZE });
                numbers.push(packet[0]);
            }
        });
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        assert_eq!(numbers.len() as u64 + now, 10);
        (lost, arrived) = (lost + now, arrived + numbers.len());
    }
    assert!((2700..3300).contains(&lost) && arrived > 0, "{lost} of 10000 lost");
}

#[test]
fn the_same_seed_loses_the_same_packets() {
    let bytes = packets();
    let run = |seed| {
        let mut loss = Loss::new(Chance::from_percent(50), seed).unwrap();
        let mut pieces = Vec::new();
        for _ in 0..20 {
            loss.thin(&datagrams(&bytes), |rest| pieces.push(rest.bytes.to_vec()));
        }
        pieces
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn always_and_never() {
    assert!(Loss::new(Chance::NEVER, 1).is_none());
    let bytes = packets();
    let mut all = Loss::new(Chance::ALWAYS, 1).unwrap();
    assert_eq!(all.thin(&datagrams(&bytes), |_| panic!("nothing is left")), 10);
}
