//! Tests of each fault of a link alone, with its probability.

use super::*;

const COUNT: u32 = 20_000;

/// Sends `COUNT` numbered packets over one link, 1 µs apart.
fn numbered_over(seed: u64, faults: LinkFaults) -> Net {
    let mut net = Net::with_faults(seed, faults);
    for number in 0..COUNT {
        net.run_until(Time::from_ns(u64::from(number) * MICROSECOND));
        net.send(0, 1, &numbered(number), 64);
    }
    net.run();
    net
}

/// Asserts that the number of hits in `COUNT` trials is within five standard deviations of the
/// expected number.
fn assert_near(hits: u64, chance: Probability) {
    let probability = f64::from(chance.as_ppm()) / 1e6;
    let expected = f64::from(COUNT) * probability;
    let margin = 5.0 * (expected * (1.0 - probability)).sqrt();
    assert!(
        (hits as f64 - expected).abs() <= margin,
        "{hits} hits, expected {expected} ± {margin}"
    );
}

fn is_sorted_and_unique(numbers: &[u32]) -> bool {
    numbers.is_sorted_by(|a, b| a < b)
}

#[test]
fn loss() {
    for (seed, percent) in [(1, 1), (2, 5), (3, 10), (4, 50), (5, 100)] {
        let loss = Probability::from_percent(percent);
        let net = numbered_over(seed, LinkFaults { loss, ..LinkFaults::default() });
        let numbers = net.numbers(1);
        assert!(is_sorted_and_unique(&numbers));
        let lost = u64::from(COUNT) - numbers.len() as u64;
        assert_eq!(lost, net.network.counters().lost);
        assert_near(lost, loss);
    }
}

#[test]
fn loss_in_bursts() {
    let faults = LinkFaults {
        loss: Probability::from_percent(2),
        loss_burst_max: 5,
        ..LinkFaults::default()
    };
    let numbers = numbered_over(6, faults).numbers(1);
    let gaps: Vec<u32> =
        numbers.windows(2).map(|pair| pair[1] - pair[0] - 1).filter(|&gap| gap > 0).collect();
    let mean = f64::from(gaps.iter().sum::<u32>()) / gaps.len() as f64;
    // Bursts have 1 to 5 packets, and some are adjacent.
    assert!((2.8..3.4).contains(&mean), "mean burst {mean}");
    assert!((1..=5).all(|length| gaps.contains(&length)));
}

#[test]
fn duplication() {
    let duplicate = Probability::from_percent(10);
    let net = numbered_over(7, LinkFaults { duplicate, ..LinkFaults::default() });
    let mut numbers = net.numbers(1);
    let second_copies = numbers.len() as u64 - u64::from(COUNT);
    assert_eq!(second_copies, net.network.counters().duplicated);
    assert_near(second_copies, duplicate);
    assert!(numbers.is_sorted());
    numbers.dedup();
    assert_eq!(numbers.len(), COUNT as usize);
}

#[test]
fn reordering() {
    let (reorder, reorder_delay_ns) = (Probability::from_percent(5), 50 * MICROSECOND);
    let net = numbered_over(8, LinkFaults { reorder, reorder_delay_ns, ..LinkFaults::default() });
    assert_near(net.network.counters().reordered, reorder);
    let mut late = 0;
    for read in &net.reads {
        let sent = u64::from(number_of(&read.bytes)) * MICROSECOND;
        let delay_ns = read.at.as_ns() - sent;
        assert!((10 * MICROSECOND..=60 * MICROSECOND).contains(&delay_ns));
        late += u64::from(delay_ns > 10 * MICROSECOND);
    }
    assert_eq!(late, net.network.counters().reordered);
    let mut numbers = net.numbers(1);
    assert!(!numbers.is_sorted());
    numbers.sort_unstable();
    assert_eq!(numbers, (0..COUNT).collect::<Vec<_>>());
}

#[test]
fn corruption_flips_one_to_three_bits() {
    let corrupt = Probability::from_percent(10);
    let net = numbered_over(9, LinkFaults { corrupt, ..LinkFaults::default() });
    let mut by_flips = [0_u64; 4];
    for (number, read) in (0..).zip(&net.reads) {
        let pairs = read.bytes.iter().zip(numbered(number));
        let flips: u32 = pairs.map(|(got, sent)| (got ^ sent).count_ones()).sum();
        by_flips[flips as usize] += 1;
    }
    assert_near(by_flips[1..].iter().sum(), corrupt);
    assert_eq!(net.network.counters().corrupted, by_flips[1..].iter().sum());
    assert!(by_flips.iter().all(|&count| count > 500), "{by_flips:?}");
}

#[test]
fn jitter_delays_without_reordering() {
    let (delay_ns, jitter_ns) = (7 * MICROSECOND, 20 * MICROSECOND);
    let net = numbered_over(10, LinkFaults { delay_ns, jitter_ns, ..LinkFaults::default() });
    let numbers = net.numbers(1);
    assert!(numbers.len() == COUNT as usize && is_sorted_and_unique(&numbers));
    let delays: Vec<u64> = net
        .reads
        .iter()
        .map(|read| read.at.as_ns() - u64::from(number_of(&read.bytes)) * MICROSECOND)
        .collect();
    assert!(delays.iter().all(|delay| (delay_ns..=delay_ns + jitter_ns).contains(delay)));
    assert!(delays.iter().max() > delays.iter().min());
}

#[test]
fn mtu_counts_the_headers() {
    let mut net = Net::with_faults(11, LinkFaults { mtu: 1_500, ..LinkFaults::default() });
    assert_eq!(net.send(0, 1, &[0; 1_472], 4_096), SendOutcome::Sent);
    assert_eq!(net.send(0, 1, &[0; 1_473], 4_096), SendOutcome::Dropped);
    assert_eq!(
        net.send(0, 1, &[0; 3_000], 1_473),
        SendOutcome::Dropped,
        "all of the run or nothing"
    );
    let (a, b): (IpAddr, IpAddr) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
    let port = net.network.add_node(&[a]).unwrap();
    net.network.add_node(&[b]).unwrap();
    for (len, outcome) in [(1_452, SendOutcome::Sent), (1_453, SendOutcome::Dropped)] {
        let bytes = vec![0; len];
        let run = run(a, b, &bytes, len);
        assert_eq!(port.transmit(&run), outcome);
    }
    net.run();
    assert_eq!(net.network.counters().too_big, 5);
    assert_eq!(net.network.counters().delivered, 2);
}

#[test]
fn a_limited_rate_spaces_packets_and_bounds_the_queue() {
    // 1,000 bytes with UDP, IP and Ethernet are 1,066 bytes on the wire, or 8,528 ns at 1 Gb/s.
    let faults = LinkFaults {
        bandwidth_bps: Some(1_000_000_000),
        queue_bytes: 100_000,
        delay_ns: 0,
        ..LinkFaults::default()
    };
    let mut net = Net::with_faults(12, faults.clone());
    for _ in 0..20 {
        net.send(0, 1, &[0; 1_000], 1_000);
    }
    net.run();
    let arrivals: Vec<u64> = net.reads.iter().map(|read| read.at.as_ns()).collect();
    assert_eq!(arrivals, (1..=20).map(|nth| nth * 8_528).collect::<Vec<_>>());

    let mut net = Net::with_faults(12, faults);
    for _ in 0..200 {
        net.send(0, 1, &[0; 1_000], 1_000);
    }
    net.run();
    // Each accepted packet occupies 1,066 bytes. The 94th packet finds 99,138 bytes in the queue
    // and no room for its 1,028 bytes.
    assert_eq!(net.reads.len(), 93);
    assert_eq!(net.network.counters().queue_overflow, 107);
}

#[test]
fn own_settings_of_a_link_come_before_the_default() {
    let mut net =
        Net::with_faults(13, LinkFaults { loss: Probability::ALWAYS, ..LinkFaults::default() });
    net.network.set_faults(net.node(0), net.node(1), LinkFaults::default());
    net.send_numbered(0, 1, 5);
    net.send_numbered(1, 0, 5);
    net.run();
    assert_eq!((net.numbers(1).len(), net.numbers(0).len()), (5, 0));
}

#[test]
fn healing_ends_faults_and_keeps_the_shape() {
    let all = Probability::ALWAYS;
    let bad = LinkFaults { loss: all, delay_ns: 5, mtu: 576, ..LinkFaults::default() };
    let mut net = Net::with_faults(14, bad.clone());
    let own = LinkFaults { duplicate: all, reorder: all, corrupt: all, jitter_ns: 3, ..bad };
    net.network.set_faults(net.node(1), net.node(0), own);
    net.network.heal();
    net.send_numbered(0, 1, 100);
    net.send_numbered(1, 0, 100);
    assert_eq!(net.send(0, 1, &[0; 1_000], 1_000), SendOutcome::Dropped, "the MTU stays");
    net.run();
    let all_numbers: Vec<u32> = (0..100).collect();
    assert_eq!((net.numbers(1), net.numbers(0)), (all_numbers.clone(), all_numbers));
    assert!(net.reads.iter().all(|read| (5..=8).contains(&read.at.as_ns())));
}
