//! Fabrics within another simulation: tokio's paused time, and a loop of the program's own.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};
use urxe::cm::{self, ConnectError, ConnectionEvent, Listener, Options};
use urxe::sim::{Fabric, LinkFaults, PausedPackets, Probability};
use urxe::{Device, SendRequest};

use crate::common::{LONG, simulated_pair};

const TO: &str = "10.0.0.1:7471";
/// The resolution of tokio's timers.
const TICK: Duration = Duration::from_millis(1);

/// A server, a client, and their network, which a task drives by tokio's time.
struct Driven {
    start: Instant,
    fabric: Fabric,
    server: Device,
    client: Device,
}

impl Driven {
    fn new(seed: u64) -> Self {
        let start = Instant::now();
        let fabric = Fabric::with_clock(seed, move || start.elapsed());
        let network = fabric.clone();
        tokio::spawn(async move { network.drive(|at| sleep_until(start + at)).await });
        let [server, client] = [1, 2].map(|host| fabric.device([10, 0, 0, host]).unwrap());
        Self { start, fabric, server, client }
    }

    fn listener(&self) -> Listener {
        Listener::builder().device(&self.server).bind(TO).unwrap()
    }

    fn options(&self) -> Options {
        Options::new().device(&self.client)
    }
}

/// Runs `test` in a runtime of one thread with paused time. Its time ends after an hour.
fn paused<F: Future>(test: F) -> F::Output {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async { timeout(Duration::from_secs(3600), test).await.unwrap() })
}

async fn serve(listener: Listener) {
    loop {
        let pending = listener.next().await.unwrap().prepare(&Options::new()).unwrap();
        let connection = pending.await.unwrap();
        assert_eq!(connection.events().next().await, Ok(ConnectionEvent::Disconnected));
    }
}

#[test]
fn a_connection_and_a_sleep_of_tokio_have_one_time() {
    let run = |seed| {
        paused(async {
            let driven = Driven::new(seed);
            let loss = Probability::from_percent(10);
            driven.fabric.set_faults(LinkFaults { loss, ..LinkFaults::default() });
            let server = tokio::spawn(serve(driven.listener()));
            for round in 1..=3 {
                let connection = cm::prepare(TO, &driven.options()).unwrap().await.unwrap();
                // The driver sleeps longer than this task, whose work then has the right time.
                sleep(Duration::from_secs(200)).await;
                let before = driven.start.elapsed();
                assert_eq!(driven.fabric.now().as_ns() as u128, before.as_nanos());
                connection.close().await.unwrap();
                assert!(driven.start.elapsed() >= Duration::from_secs(200) * round);
            }
            server.abort();
            (driven.start.elapsed(), driven.fabric.trace_hash())
        })
    };
    for seed in 1..=3 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}

#[test]
fn timeouts_of_connections_pass_in_the_time_of_tokio() {
    paused(async {
        let driven = Driven::new(1);
        sleep(Duration::from_secs(10)).await;
        driven.fabric.pause(&driven.server, PausedPackets::Drop, 8 * LONG.unwrap()).unwrap();
        let before = driven.start.elapsed();
        let error = cm::prepare(TO, &driven.options()).unwrap().await.unwrap_err();
        assert!(matches!(error, ConnectError::Unreachable { .. }), "{error:?}");
        let passed = driven.start.elapsed() - before;
        // Sixteen requests.
        let all = Duration::from_nanos(77_309_411_328);
        assert!((all..all + 2 * TICK).contains(&passed), "{passed:?}");
        // The time limit of tokio ends a wait earlier.
        let pending = cm::prepare(TO, &driven.options()).unwrap();
        let limit = Duration::from_millis(1500);
        let before = driven.start.elapsed();
        assert!(timeout(limit, pending.into_future()).await.is_err());
        assert_eq!(driven.start.elapsed() - before, limit);
    });
}

#[test]
fn a_post_wakes_the_driver_and_is_sent_at_once() {
    paused(async {
        let start = Instant::now();
        let fabric = Fabric::with_clock(2, move || start.elapsed());
        let network = fabric.clone();
        tokio::spawn(async move { network.drive(|at| sleep_until(start + at)).await });
        let (a, b) = simulated_pair(&fabric);
        for _ in 0..3 {
            // No event is pending, so the driver sleeps without a limit.
            sleep(Duration::from_secs(60)).await;
            let before = start.elapsed();
            a.post(SendRequest::write(a.slice(..8), b.region.remote()));
            let _written = a.cq.next().await.unwrap();
            let passed = start.elapsed() - before;
            assert!(passed <= 2 * TICK, "{passed:?}");
        }
    });
}

#[test]
fn a_loop_of_the_program_runs_to_each_deadline() {
    let fabric = Fabric::manual(3);
    let (a, b) = simulated_pair(&fabric);
    assert_eq!(fabric.next_deadline(), None);
    a.post(SendRequest::write(a.slice(..8), b.region.remote()));
    let mut times = Vec::new();
    while a.cq.is_empty() {
        let next = fabric.next_deadline().unwrap();
        fabric.run_until(next).unwrap();
        assert_eq!(fabric.now(), next);
        times.push(next.as_ns());
    }
    assert_eq!(times.first(), Some(&10_000), "the packet arrives after 10 µs");
    assert_eq!(times.last(), Some(&20_000), "so does its acknowledgement");
}
