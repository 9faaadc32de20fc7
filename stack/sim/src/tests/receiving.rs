//! Tests of the receiving socket: buffer, delayed reads and merging.

use super::*;

fn receiving(seed: u64, nodes: u8, config: NodeConfig) -> Net {
    let net = Net::new(seed, nodes);
    net.network.set_node_config(net.node(1), config);
    net
}

#[test]
fn a_buffer_holds_as_many_packets_as_was_measured_on_linux() {
    for (receive_buffer_bytes, single_4k_packets) in [(208 << 10, 25), (8 << 20, 992)] {
        let config = NodeConfig {
            receive_buffer_bytes,
            read_delay_ns: MICROSECOND,
            ..NodeConfig::default()
        };
        let mut net = receiving(1, 2, config);
        for _ in 0..2_000 {
            net.send(0, 1, &[0; 4_096], 4_096);
        }
        net.run();
        assert_eq!(net.reads.len(), single_4k_packets);
        assert_eq!(net.network.counters().buffer_overflow as usize, 2_000 - single_4k_packets);
        net.send(0, 1, &[0; 4_096], 4_096);
        net.run();
        assert_eq!(net.reads.len(), single_4k_packets + 1, "reading makes room");
    }
}

#[test]
fn a_read_waits_for_its_delay_and_takes_all_there_is() {
    let mut net =
        receiving(1, 2, NodeConfig { read_delay_ns: 50 * MICROSECOND, ..NodeConfig::default() });
    for number in 0..100 {
        net.run_until(Time::from_ns(u64::from(number) * MICROSECOND));
        net.send(0, 1, &numbered(number), 64);
    }
    net.run();
    let times: Vec<u64> = net.reads.iter().map(|read| read.at.as_ns() / MICROSECOND).collect();
    // The first packet arrives at 10 µs, and 51 packets have arrived at 60 µs. The next read is 50
    // µs after the 52nd packet.
    assert_eq!(times, [vec![60; 51], vec![111; 49]].concat());
    assert_eq!(net.numbers(1), (0..100).collect::<Vec<_>>());
}

/// With a probability of 1, all packets that Linux may merge are merged.
#[test]
fn merging_always_takes_equal_packets_and_a_shorter_last() {
    let config = NodeConfig {
        read_delay_ns: MICROSECOND,
        merge: Probability::ALWAYS,
        ..NodeConfig::default()
    };
    let mut net = receiving(1, 3, config);
    let sizes = [100, 100, 100, 40, 100, 100, 200, 200, 30, 30, 31];
    for size in sizes {
        net.send(0, 1, &vec![size; usize::from(size)], 1_000);
    }
    net.send(2, 1, &[1; 31], 31);
    net.send(0, 1, &[1; 31], 31);
    net.run();
    let reads: Vec<(usize, usize)> =
        net.reads.iter().map(|read| (read.segment_size, read.bytes.len())).collect();
    let expected = [(100, 340), (100, 200), (200, 430), (30, 30), (31, 31), (31, 31), (31, 31)];
    assert_eq!(reads, expected);
    assert_eq!(net.network.counters().merged, 6);
}

#[test]
fn merging_stops_at_the_limits_of_linux() {
    let config = NodeConfig {
        read_delay_ns: MICROSECOND,
        merge: Probability::ALWAYS,
        ..NodeConfig::default()
    };
    let mut net = receiving(1, 2, config);
    net.send_numbered(0, 1, 130);
    for _ in 0..20 {
        net.send(0, 1, &[7; 4_000], 4_000);
    }
    net.run();
    let reads: Vec<(usize, usize)> = net
        .reads
        .iter()
        .map(|read| (read.segment_size, read.bytes.len() / read.segment_size))
        .collect();
    assert_eq!(reads, [(64, 64), (64, 64), (64, 2), (4_000, 16), (4_000, 4)]);
    assert!(net.reads.iter().all(|read| read.bytes.len() <= MAX_RUN_BYTES));
}

/// Random sizes and senders, sometimes merged: splitting the reads returns the packets of each
/// sender in order.
#[test]
fn merging_loses_and_mixes_nothing() {
    for seed in 0..20 {
        let merge = Probability::from_percent(60);
        let config = NodeConfig { read_delay_ns: 20 * MICROSECOND, merge, ..NodeConfig::default() };
        let mut net = receiving(seed, 4, config);
        let mut rng = Rng::new(seed);
        let mut sent = vec![Vec::new(); 4];
        for step in 0..500 {
            net.run_until(Time::from_ns(step * MICROSECOND));
            let from = rng.pick(&[0, 2, 3]);
            let segment_size = rng.pick(&[1, 17, 64, 64, 1_000]);
            let mut bytes =
                vec![0; rng.between(1, 4) as usize * segment_size - rng.index(segment_size)];
            rng.fill(&mut bytes);
            assert_eq!(net.send(from, 1, &bytes, segment_size), SendOutcome::Sent);
            sent[from].extend(bytes.chunks(segment_size).map(<[u8]>::to_vec));
        }
        net.run();
        assert!(net.network.counters().merged > 50);
        for (from, sent) in sent.iter().enumerate() {
            let reads = net.reads.iter().filter(|read| read.from == address(from as u8));
            let got: Vec<Vec<u8>> = reads.flat_map(Arrival::packets).collect();
            assert!(got == *sent, "seed {seed}, sender {from}");
        }
    }
}
