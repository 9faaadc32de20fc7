//! Random programs in a bad network. Every byte must be right, every work request must complete
//! once and in order, nothing may be written outside, and everything must finish soon after the
//! faults end.
//!
//! | variable | effect |
//! |---|---|
//! | `URXE_SIM_SEEDS` | the number of seeds |
//! | `URXE_SIM_FIRST` | the first seed, 0 by default |
//! | `URXE_SEED` | a single seed with full output |
//! | `URXE_SIM_CAPTURE` | a directory for pcapng files of each failed seed and of `URXE_SEED` |
//! | `RUST_LOG` | `urxe_device=debug` enables the log of the stack |

use std::path::PathBuf;

use urxe_stack::device::counters::Counter;
use urxe_stack::port::sim::LinkFaults;
use urxe_stack::rng::{Probability, Rng};
use urxe_tests::sim::checker::Difference;
use urxe_tests::sim::generate::{Profile, generate};
use urxe_tests::sim::host::InjectedBug;
use urxe_tests::sim::run::{Options, Outcome, Silence, run};

/// The number of seeds in an ordinary `cargo test`.
const SEEDS: u64 = 60;
/// The maximum number of reported failures.
const MAX_FAILURES: usize = 5;

fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is {value:?}, not a number")))
}

fn capture(seed: u64) -> Option<PathBuf> {
    let directory = PathBuf::from(std::env::var_os("URXE_SIM_CAPTURE")?);
    std::fs::create_dir_all(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    Some(directory.join(format!("seed-{seed}.pcapng")))
}

fn run_seed(seed: u64, profile: &Profile, options: &Options) -> Outcome {
    run(&generate(seed, profile), options)
}

#[test]
fn every_seed_comes_out_right() {
    let profile = Profile::default();
    if let Some(seed) = variable("URXE_SEED") {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        tracing_subscriber::fmt().with_env_filter(filter).without_time().init();
        let outcome =
            run_seed(seed, &profile, &Options { capture: capture(seed), ..Options::default() });
        println!("{}\nseed {seed}:\n{outcome}", generate(seed, &profile));
        assert!(outcome.is_right());
        return;
    }
    let first = variable("URXE_SIM_FIRST").unwrap_or(0);
    let count = variable("URXE_SIM_SEEDS").unwrap_or(SEEDS);
    let mut failures = 0;
    for seed in first..first + count {
        let outcome = run_seed(seed, &profile, &Options::default());
        if outcome.is_right() {
            continue;
        }
        println!("seed {seed}:\n{outcome}");
        println!(
            "  replay: URXE_SEED={seed} cargo test -p urxe-tests --test sim_faults -- \
             --nocapture every_seed\n"
        );
        if let Some(path) = capture(seed) {
            let _ =
                run_seed(seed, &profile, &Options { capture: Some(path), ..Options::default() });
        }
        failures += 1;
        assert!(failures < MAX_FAILURES, "{failures} seeds failed up to {seed}");
    }
    assert_eq!(failures, 0, "seeds failed");
}

/// Without faults, nothing is retransmitted and nothing is dropped.
#[test]
fn a_good_network_needs_no_retry() {
    let profile = Profile { faults: false, ..Profile::default() };
    for seed in 0..SEEDS / 3 {
        let outcome = run_seed(seed, &profile, &Options::default());
        assert!(outcome.is_right(), "seed {seed}:\n{outcome}");
        for counter in [
            Counter::CompleterRetryErr,
            Counter::RcvdSeqErr,
            Counter::DuplicateRequest,
            Counter::DropMalformed,
            Counter::DropIcrc,
            Counter::DropGhostAck,
            Counter::DropImpliedNak,
        ] {
            assert_eq!(outcome.counter(counter), 0, "seed {seed}: {}\n{outcome}", counter.name());
        }
    }
}

/// At 10 Gbit/s, at most seven packets arrive within the reordering delay. So few packets may
/// overtake another without a NAK.
#[test]
fn packets_that_are_overtaken_by_few_others_need_no_retry() {
    let profile = Profile { faults: false, ..Profile::default() };
    let mut executed = 0;
    for seed in 0..SEEDS {
        let mut plan = generate(seed, &profile);
        let link = LinkFaults {
            reorder: Probability::from_percent(20),
            reorder_delay_ns: 500,
            bandwidth_bps: Some(10_000_000_000),
            ..LinkFaults::default()
        };
        let nodes = 0..plan.devices.len();
        let pairs = nodes.clone().flat_map(|from| nodes.clone().map(move |to| (from, to)));
        plan.faults.links = pairs.map(|(from, to)| (from, to, link.clone())).collect();
        plan.faults.end_ns = 1_000_000_000;
        plan.faults.toggles_ns = vec![plan.faults.end_ns];
        // A request is retransmitted after an RNR NAK, so all receives are posted at the start.
        for end in plan.connections.iter_mut().flat_map(|connection| &mut connection.ends) {
            end.recvs_at_start = end.recvs.len();
            end.recv_depth = end.recv_depth.max(end.recvs.len() as u32);
        }
        let outcome = run(&plan, &Options::default());
        assert!(outcome.is_right(), "seed {seed}:\n{outcome}");
        for counter in [
            Counter::CompleterRetryErr,
            Counter::RcvdSeqErr,
            Counter::SendSeqErr,
            Counter::DuplicateRequest,
            Counter::DropImpliedNak,
        ] {
            assert_eq!(outcome.counter(counter), 0, "seed {seed}: {}\n{outcome}", counter.name());
        }
        executed += outcome.counter(Counter::ReorderDelivered);
    }
    assert!(executed > 10 * SEEDS, "only {executed} packets were overtaken");
}

#[test]
fn a_seed_replays_to_the_last_packet() {
    for seed in 0..5 {
        let [first, second] =
            [(); 2].map(|()| run_seed(seed, &Profile::default(), &Options::default()));
        assert_eq!(first.trace_hash, second.trace_hash, "seed {seed}");
        assert_eq!(
            (first.finished, first.packets),
            (second.finished, second.packets),
            "seed {seed}"
        );
    }
}

#[test]
fn the_faults_occur() {
    let outcomes: Vec<Outcome> =
        (0..40).map(|seed| run_seed(seed, &Profile::default(), &Options::default())).collect();
    let packets = |count: fn(&Outcome) -> u64| outcomes.iter().map(count).sum::<u64>();
    let rebound: usize = outcomes.iter().map(|outcome| outcome.rebound).sum();
    assert!(outcomes.iter().map(|outcome| outcome.replaced).sum::<usize>() > 20 + rebound);
    assert!(rebound > 10, "only {rebound} windows were bound anew");
    assert!(packets(|outcome| outcome.packets.lost) > 100);
    assert!(packets(|outcome| outcome.packets.duplicated) > 50);
    assert!(packets(|outcome| outcome.packets.reordered) > 50);
    assert!(packets(|outcome| outcome.packets.corrupted) > 20);
    assert!(packets(|outcome| outcome.packets.merged) > 100);
    for counter in [
        Counter::DuplicateRequest,
        Counter::OutOfSeqRequest,
        Counter::ReorderDelivered,
        Counter::RcvdRnrErr,
        Counter::RcvdSeqErr,
        Counter::CompleterRetryErr,
        Counter::DropIcrc,
    ] {
        let count: u64 = outcomes.iter().map(|outcome| outcome.counter(counter)).sum();
        assert!(count > 0, "{} stayed 0", counter.name());
    }
}

/// Its peers give up after all retries, never before, and flush. Other connections are unaffected.
#[test]
fn a_node_that_falls_silent_breaks_its_connections_and_no_others() {
    let profile = Profile { faults: false, ..Profile::default() };
    let mut broken = 0;
    for seed in 0..SEEDS {
        let mut rng = Rng::stream(seed, 3);
        let devices = generate(seed, &profile).devices.len();
        let silence = Silence { device: rng.index(devices), from_ns: rng.below(1_500_000) };
        let options = Options { silence: Some(silence), ..Options::default() };
        let outcome = run_seed(seed, &profile, &options);
        assert!(outcome.is_right(), "seed {seed}, {silence:?}:\n{outcome}");
        broken += outcome.broken;
    }
    assert!(broken > SEEDS as usize, "only {broken} ends broke");
}

/// Returns whether a run with this bug shows a difference of this kind for one of some seeds.
fn is_found(bug: InjectedBug, kind: fn(&Difference) -> bool) -> bool {
    let profile = Profile { faults: false, ..Profile::default() };
    let options = Options { bug: Some(bug), ..Options::default() };
    (0..10).any(|seed| run_seed(seed, &profile, &options).differences.iter().any(kind))
}

fn is_byte(difference: &Difference) -> bool {
    matches!(difference, Difference::Byte { .. })
}

#[test]
fn a_payload_that_changes_unseen_is_found() {
    assert!(is_found(InjectedBug::FlipPayload(Probability::from_percent(1)), is_byte));
}

#[test]
fn a_write_beside_its_place_is_found() {
    assert!(is_found(InjectedBug::MoveAddress(Probability::from_percent(5)), is_byte));
}

#[test]
fn a_write_outside_all_regions_is_found() {
    assert!(is_found(InjectedBug::StrayWrite(Probability::from_percent(5)), is_byte));
}

#[test]
fn a_window_that_keeps_its_key_is_found() {
    let options = Options { bug: Some(InjectedBug::KeepKeys), ..Options::default() };
    let profile = Profile::default();
    assert!((0..10).any(|seed| {
        run_seed(seed, &profile, &options)
            .faults
            .iter()
            .any(|fault| fault.contains("was invalidated and grants"))
    }));
}

#[test]
fn a_request_that_is_carried_out_twice_is_found() {
    assert!(is_found(InjectedBug::RepeatAsNew(Probability::from_percent(2)), |_| true));
}
