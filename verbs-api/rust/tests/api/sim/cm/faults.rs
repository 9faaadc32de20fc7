//! Bad links: lost, repeated, damaged and late MADs, and the same result on every run.

use std::time::Duration;

use urxe::cm::{self, ConnectError, ConnectionEvent, Options, RejReason};
use urxe::sim::{LinkFaults, Probability, Rng};
use urxe::{Access, Data, RecvRequest, SendRequest};

use super::{ALL_REQUESTS, Hosts, transfer};
use crate::common::LONG;

#[test]
fn a_lost_message_of_the_handshake_is_repeated() {
    let broken = LinkFaults { loss: Probability::ALWAYS, ..LinkFaults::default() };
    for lost in ["REQ", "REP", "RTU"] {
        let hosts = Hosts::new(1);
        let listener = hosts.listener();
        let break_link = |from, to| {
            hosts.fabric.set_faults_between(from, to, broken.clone()).unwrap();
        };
        let client = hosts.ask(&hosts.options());
        if lost == "REQ" {
            break_link(&hosts.client, &hosts.server);
            hosts.fabric.run_for(Duration::from_secs(1)).unwrap();
            hosts.fabric.heal();
        }
        let pending = listener.wait(None).unwrap().prepare(&Options::new()).unwrap();
        let accepting = pending.start().unwrap();
        match lost {
            "REQ" => {}
            "REP" => break_link(&hosts.server, &hosts.client),
            _ => break_link(&hosts.client, &hosts.server),
        }
        hosts.fabric.run_for(Duration::from_millis(1)).unwrap();
        hosts.fabric.heal();
        let accepted = pollster::block_on(accepting).unwrap();
        let connected = pollster::block_on(client).unwrap();
        assert_eq!(hosts.fabric.counters().lost, 1, "{lost}");
        // 4.096 µs · 2^20, and for a REQ two packet lifetimes in addition.
        let range = Duration::from_millis(4290)..ALL_REQUESTS / 16 + Duration::from_millis(2);
        assert!(range.contains(&hosts.now()), "{lost}: {:?}", hosts.now());
        transfer(&connected, &accepted, lost.as_bytes());
    }
}

#[test]
fn data_of_the_client_replaces_a_lost_confirmation() {
    let broken = LinkFaults { loss: Probability::ALWAYS, ..LinkFaults::default() };
    let hosts = Hosts::new(1);
    let listener = hosts.listener();
    let client = hosts.ask(&hosts.options());
    let pending = listener.wait(None).unwrap().prepare(&Options::new()).unwrap();
    let inbox = pending.pd().allocate(64, Access::LOCAL_WRITE).unwrap();
    pending.qp().post_recv(&RecvRequest::new(inbox.slice(..).unwrap())).unwrap();
    let accepting = pending.start().unwrap();
    // The RTU is lost, and so is each repeated REP.
    let set_faults = |from, to| hosts.fabric.set_faults_between(from, to, broken.clone()).unwrap();
    set_faults(&hosts.client, &hosts.server);
    let connected = pollster::block_on(client).unwrap();
    hosts.fabric.run_for(Duration::from_millis(1)).unwrap();
    hosts.fabric.heal();
    assert_eq!(hosts.fabric.counters().lost, 1, "the RTU");
    set_faults(&hosts.server, &hosts.client);
    connected.qp().post_send(&SendRequest::send(Data::inline(b"early")).signaled()).unwrap();
    let accepted = pollster::block_on(accepting).unwrap();
    assert!(hosts.now() < Duration::from_secs(1), "{:?}", hosts.now());
    hosts.fabric.heal();
    let received = accepted.recv_cq().wait_one(LONG).unwrap();
    assert_eq!(inbox.read_vec(0, received.byte_len as usize).unwrap(), b"early");
    let _sent = connected.send_cq().wait_one(LONG).unwrap();
    transfer(&accepted, &connected, b"an answer");
    connected.disconnect();
    assert_eq!(accepted.events().wait(LONG).unwrap(), ConnectionEvent::Disconnected);
}

#[test]
fn hosts_connect_when_three_of_ten_packets_are_lost() {
    let (mut lost, mut attempts) = (0, 0);
    for seed in 1..=20 {
        eprintln!("seed {seed}");
        let hosts = Hosts::new(seed);
        hosts.lose(30);
        let listener = hosts.listener();
        let (accepted, connected) = loop {
            attempts += 1;
            let client = hosts.ask(&hosts.options());
            let accepted = listener.wait(None).unwrap().accept();
            match (accepted, pollster::block_on(client)) {
                (Ok(accepted), Ok(connected)) => break (accepted, connected),
                // The accepting end repeats its answer once by itself, and then only if the request
                // is repeated. Both confirmations were lost.
                (Err(ConnectError::Unreachable { .. }), Ok(_)) => {}
                other => panic!("seed {seed}: {other:?}"),
            }
        };
        lost += hosts.fabric.counters().lost;
        hosts.fabric.heal();
        transfer(&connected, &accepted, b"established");
    }
    eprintln!("{lost} lost MADs, {attempts} attempts");
    assert!(lost > 10, "{lost} lost MADs");
    assert!(attempts < 30, "{attempts} attempts of 20 connections");
}

#[test]
fn without_an_answer_all_repetitions_pass_in_the_time_of_the_options() {
    let hosts = Hosts::new(1);
    hosts.lose(100);
    let error = pollster::block_on(hosts.ask(&hosts.options())).unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { peer, .. } if peer == hosts.to()));
    assert_eq!(hosts.now(), ALL_REQUESTS);
    // Sixteen REQs, and a REJ that says that this end gives up.
    assert_eq!(hosts.fabric.counters().lost, 17);
    // With a time limit, a thread returns at this time, and not a nanosecond later.
    let limit = Duration::from_millis(1234);
    let options = hosts.options().timeout(limit);
    let before = hosts.now();
    let error = cm::prepare(hosts.to(), &options).unwrap().establish().unwrap_err();
    assert!(matches!(error, ConnectError::TimedOut { after, .. } if after == limit));
    assert_eq!(hosts.now() - before, limit);
    // An address without a host loses all packets as well.
    let before = hosts.now();
    let pending = cm::prepare("10.0.0.77:1", &hosts.options()).unwrap();
    let error = pending.establish().unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error:?}");
    assert_eq!(hosts.now() - before, ALL_REQUESTS);
}

#[test]
fn an_accepting_end_gives_up_when_its_answers_are_lost() {
    let hosts = Hosts::new(2);
    let listener = hosts.listener();
    let _client = hosts.ask(&hosts.options());
    let request = listener.wait(None).unwrap();
    hosts.lose(100);
    let before = hosts.now();
    let error = request.accept().unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error:?}");
    assert!(hosts.now() - before > Duration::from_secs(60), "{:?}", hosts.now());
}

/// Connects and ends connections over a bad link. Each connection is accepted or rejected, carries
/// messages, and ends at both ends. Returns the virtual time and the trace of the network.
fn run(seed: u64) -> (Duration, u64) {
    eprintln!("seed {seed}");
    let mut rng = Rng::new(seed);
    let hosts = Hosts::new(seed);
    let mut percent = |most| Probability::from_percent(rng.below(most) as u32);
    let faults = LinkFaults {
        loss: percent(30),
        duplicate: percent(20),
        reorder: percent(20),
        corrupt: percent(10),
        reorder_delay_ns: 3_000_000,
        jitter_ns: 500_000,
        ..LinkFaults::default()
    };
    let listener = hosts.listener();
    for round in 0..6_u8 {
        hosts.fabric.set_faults(faults.clone());
        let client = hosts.ask(&hosts.options().private_data(&[round; 8]));
        if rng.below(4) == 0 {
            // A REJ may be lost. Then the request is repeated, and is a new one for the listener.
            let reject = async {
                loop {
                    listener.next().await.unwrap().reject(&[round; 4]).unwrap();
                }
            };
            match smol::future::block_on(smol::future::or(client, reject)).unwrap_err() {
                ConnectError::Rejected { reason, peer_private_data, .. } => {
                    assert_eq!(reason, RejReason::CONSUMER_DEFINED, "seed {seed}");
                    assert!(peer_private_data.starts_with(&[round; 4]), "seed {seed}");
                }
                other => panic!("seed {seed}: {other:?}"),
            }
            continue;
        }
        // A REQ of a round before may have been late.
        let request = std::iter::repeat_with(|| listener.wait(None).unwrap())
            .find(|request| request.peer_private_data().starts_with(&[round; 8]))
            .unwrap();
        let accepted = request.accept();
        let connected = pollster::block_on(client).unwrap();
        let accepted = match accepted {
            Ok(accepted) => accepted,
            // Both confirmations were lost.
            Err(ConnectError::Unreachable { .. }) => continue,
            Err(error) => panic!("seed {seed}: {error:?}"),
        };
        hosts.fabric.heal();
        transfer(&connected, &accepted, &[round; 16]);
        transfer(&accepted, &connected, &[round; 24]);
        hosts.fabric.set_faults(faults.clone());
        let (ends, waits) = match rng.below(2) {
            0 => (connected, accepted),
            _ => (accepted, connected),
        };
        ends.disconnect();
        assert_eq!(ends.events().wait(None).unwrap(), ConnectionEvent::Disconnected);
        assert_eq!(waits.events().wait(LONG).unwrap(), ConnectionEvent::Disconnected);
    }
    (hosts.now(), hosts.fabric.trace_hash())
}

#[test]
fn connections_over_a_bad_link_replay_from_the_seed() {
    for seed in 1..=12 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
    assert_ne!(run(1).1, run(2).1, "another seed is another run");
}
