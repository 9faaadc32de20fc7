use std::net::{IpAddr, Ipv4Addr};

use urxe_types::rng::Probability;
use urxe_wire::packet::ICRC_LEN;
use urxe_wire::{IcrcSeed, IcrcSolver, IcrcVerdict, ROCE_PORT};

use super::*;

const SIZE: usize = 100;
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn datagrams(bytes: &[u8]) -> Datagrams<'_> {
    let (from, to) = (HERE, HERE);
    Datagrams { from, from_port: 1, to, bytes, segment_size: SIZE, traffic_class: 0, hop_limit: 64 }
}

/// Returns ten packets that are filled with their number. The last one is shorter.
fn packets() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..10).flat_map(|nr| [nr; SIZE]).collect();
    bytes.truncate(9 * SIZE + 30);
    bytes
}

fn impairment(faults: &str, seed: u64) -> Impairment {
    Impairment::new(faults.parse::<FaultSpec>().unwrap().link, seed, 0)
}

/// Returns the packets that are delivered at once, one by one.
fn apply(link: &mut Impairment, now: Time, bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    link.apply(now, HERE, &datagrams(bytes), |rest| {
        out.extend(rest.segments().map(<[u8]>::to_vec))
    });
    out
}

fn release(link: &mut Impairment, now: Time) -> Vec<u8> {
    let mut out = Vec::new();
    link.release(now, |at, packet| {
        assert_eq!((at, packet.from_port, packet.hop_limit), (HERE, 1, 64));
        assert_eq!(packet.segments().len(), 1);
        out.push(packet.bytes[0]);
    });
    out
}

#[test]
fn what_is_not_lost_arrives_in_order_and_whole() {
    let bytes = packets();
    let mut link = impairment("loss=30%", 7);
    let mut arrived = 0;
    for _ in 0..1000 {
        let out = apply(&mut link, Time::ZERO, &bytes);
        for packet in &out {
            assert!(packet.iter().all(|byte| *byte == packet[0]), "one packet is one piece");
            assert_eq!(packet.len(), if packet[0] == 9 { 30 } else { SIZE });
        }
        assert!(out.is_sorted_by(|a, b| a[0] < b[0]));
        arrived += out.len();
    }
    assert_eq!(link.counters.lost + arrived as u64, 10_000);
    assert!((2700..3300).contains(&link.counters.lost), "{} of 10000 lost", link.counters.lost);
}

#[test]
fn the_same_seed_does_the_same() {
    let bytes = packets();
    let run = |seed| {
        let mut link = impairment("loss=20%,duplicate=10%,corrupt=20%", seed);
        (0..20).map(|_| apply(&mut link, Time::ZERO, &bytes)).collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_duplicate_comes_twice_and_a_corrupted_packet_differs_by_few_bits() {
    let bytes = packets();
    let mut twice = impairment("duplicate=100%", 1);
    let numbers: Vec<u8> =
        apply(&mut twice, Time::ZERO, &bytes).iter().map(|packet| packet[0]).collect();
    assert_eq!(numbers, (0..10).flat_map(|nr| [nr; 2]).collect::<Vec<_>>());
    let mut corrupting = impairment("corrupt=100%", 1);
    for (nr, packet) in apply(&mut corrupting, Time::ZERO, &bytes).iter().enumerate() {
        let flipped: u32 = packet.iter().map(|byte| (byte ^ nr as u8).count_ones()).sum();
        assert!((1..=3).contains(&flipped), "{flipped} bits of packet {nr}");
    }
    assert_eq!((twice.counters.duplicated, corrupting.counters.corrupted), (10, 10));
}

#[test]
fn delayed_packets_come_when_they_are_due_and_in_order() {
    let bytes = packets();
    let mut link = impairment("delay=50us,jitter=20us", 3);
    assert!(apply(&mut link, Time::from_ns(1_000), &bytes).is_empty());
    let due = link.next_due().unwrap();
    assert!((51_000..=71_000).contains(&due.as_ns()));
    assert!(release(&mut link, Time::from_ns(due.as_ns() - 1)).is_empty());
    let mut all = release(&mut link, due);
    assert_eq!(all.first(), Some(&0));
    all.extend(release(&mut link, Time::from_ns(71_000)));
    assert_eq!(all, (0..10).collect::<Vec<u8>>());
    assert_eq!((link.next_due(), link.delayed_bytes), (None, 0));
}

#[test]
fn reordered_packets_come_behind_later_ones() {
    let bytes = packets();
    let mut link = impairment("reorder=50%,late=10us", 3);
    let mut all: Vec<u8> =
        apply(&mut link, Time::ZERO, &bytes).iter().map(|packet| packet[0]).collect();
    assert!(all.is_sorted() && (1..10).contains(&all.len()));
    all.extend(release(&mut link, Time::from_ns(10_000)));
    assert!(!all.is_sorted());
    all.sort_unstable();
    assert_eq!(all, (0..10).collect::<Vec<u8>>());
}

#[test]
fn no_more_is_held_than_fits() {
    let bytes = vec![7; MAX_DELAYED_BYTES / 16];
    let big = Datagrams { segment_size: bytes.len(), ..datagrams(&bytes) };
    let mut link = impairment("delay=1s", 1);
    for _ in 0..20 {
        link.apply(Time::ZERO, HERE, &big, |_| panic!("nothing is on time"));
    }
    assert_eq!((link.delayed.len(), link.counters.overload), (16, 4));
    let counters = Counters::default();
    link.count(&counters);
    assert_eq!(counters.value(Counter::DropSimulated), 4);
}

#[test]
fn every_fault_is_read_and_shown_as_it_was_given() {
    let text = "loss=1%,duplicate=0.5%,reorder=0.0001%,corrupt=100%,rebind=0.01%,burst=4,\
                late=200us,delay=50us,jitter=3ms,rate=100M,seed=7";
    let spec: FaultSpec = text.parse().unwrap();
    assert_eq!(spec.to_string(), text);
    assert_eq!(spec.link.loss, Probability::from_ppm(10_000));
    assert_eq!(spec.link.duplicate, Probability::from_ppm(5_000));
    assert_eq!(spec.link.reorder, Probability::from_ppm(1));
    assert_eq!(spec.link.corrupt, Probability::ALWAYS);
    assert_eq!(spec.link.rebind, Probability::from_ppm(100));
    let link = &spec.link;
    assert_eq!((link.loss_burst_max, link.reorder_delay_ns), (4, 200_000));
    assert_eq!((link.delay_ns, link.jitter_ns), (50_000, 3_000_000));
    assert_eq!((link.bandwidth_bps, spec.seed), (Some(100_000_000), Some(7)));
    assert_eq!(" loss = 1% , seed=7 ".parse::<FaultSpec>().unwrap().to_string(), "loss=1%,seed=7");
    assert!(!spec.is_harmless() && "seed=1,loss=0%".parse::<FaultSpec>().unwrap().is_harmless());
}

#[test]
fn mistakes_are_named() {
    for (text, told) in [
        ("", "\"\" is not a fault; expected NAME=VALUE"),
        ("loss", "\"loss\" is not a fault"),
        ("loss=1%,", "\"\" is not a fault"),
        ("los=1%", "unknown fault \"los\"; the faults are loss,"),
        ("loss=1%,loss=2%", "loss is given twice"),
        ("loss=1", "loss=1: expected a share of the packets from 0% to 100%"),
        ("loss=101%", "expected a share"),
        ("loss=100.1%", "expected a share"),
        ("loss=0.00001%", "expected a share"),
        ("loss=-1%", "expected a share"),
        ("loss=.5%", "expected a share"),
        ("loss=99999999999%", "expected a share"),
        ("delay=50", "delay=50: expected a time of at most 60 s with its unit"),
        ("delay=61s", "expected a time"),
        ("delay=99999999999999999999s", "expected a time"),
        ("jitter=1.5ms", "expected a time"),
        ("loss=1%,burst=0", "expected a number of packets"),
        ("burst=3", "burst requires loss: add loss=1%"),
        ("late=3us", "late requires reorder"),
        ("rate=0M", "expected bits a second"),
        ("rate=99999999999G", "expected bits a second"),
        ("seed=x", "expected a whole number"),
    ] {
        let error: FaultError = text.parse::<FaultSpec>().unwrap_err();
        assert!(error.to_string().contains(told), "{text:?}: {error}");
    }
}

/// The ICRC of each packet fits its port.
#[test]
fn a_new_source_port_comes_with_the_icrc_for_it() {
    let seed = |port| IcrcSeed::new(HERE, port, HERE, ROCE_PORT).unwrap();
    let mut bytes = packets();
    for (nr, packet) in bytes.chunks_mut(SIZE).enumerate() {
        let end = packet.len() - ICRC_LEN;
        seed(1).append(nr as u16, packet, end).unwrap();
    }
    let mut link = impairment("rebind=30%", 5);
    let (mut ports, mut count) = (Vec::new(), 0);
    link.apply(Time::ZERO, HERE, &datagrams(&bytes), |datagrams| {
        for packet in datagrams.segments() {
            let verdict = seed(datagrams.from_port).verify(&mut IcrcSolver::new(), packet, count);
            assert_eq!(verdict, IcrcVerdict::Exact { identification: count }, "packet {count}");
            count += 1;
        }
        ports.push(datagrams.from_port);
    });
    ports.dedup();
    assert_eq!(count, 10);
    assert_eq!(link.counters.rebound as usize, ports.len() - 1, "{ports:?}");
    assert!(ports.len() > 2 && ports[0] == 1, "{ports:?}");
}
