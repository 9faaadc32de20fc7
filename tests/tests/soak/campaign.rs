//! The two lasting processes, their checks and the report of each minute.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use urxe_stack::rng::Rng;

use crate::INTERFACES;
use crate::soaker::{Figures, Files, Lane, Result, Soaker};
use crate::trend::{Sample, judge};

/// The code of a timeout of 2.1 s, which gives 17 s with the retries: longer than any pause.
pub const PATIENT: u8 = 19;
/// The longest time without a message on a lasting lane. It is longer than the time after which a
/// lost message of an unreliable lane is replaced.
const MAX_IDLE: Duration = Duration::from_secs(45);
/// The longest minute.
const MINUTE: Duration = Duration::from_secs(60);
/// The longest warm-up, in minutes.
const WARM_UP: f64 = 5.0;
/// The share of a processor of a lasting process, in thousandths.
const SHARE: u64 = 25;
/// The address and port where b listens for connections by `rdma_cm`.
pub const LISTENER: &str = "10.99.2.1:7471";
/// The lasting lanes: two connections, of which each end starts one, and one lane of each other
/// service.
const LASTING: [&str; 5] = ["rc", "rc", "uc", "ud", "xrc"];
/// The objects of each kind that a lasting process creates and destroys at first. An entry of the
/// table of queue pairs rests until 4096 others were freed (`stack/types/src/qpn.rs`). Afterwards
/// the tables do not grow.
const ROTATED: u32 = 5000;
/// Counters of ordinary traffic, which the report leaves out.
const TRAFFIC: [&str; 5] = ["sent_pkts", "rcvd_pkts", "rdma_sends", "rdma_recvs", "ack_deferred"];

/// A running campaign.
pub struct Campaign {
    pub rng: Rng,
    pub files: Files,
    /// The processes a and b.
    pub lasting: [Soaker; 2],
    /// The name of the next lane.
    next_lane: u64,
    start: Instant,
    run: Duration,
    /// The duration of a minute, which is shorter in a short run.
    minute: Duration,
    samples: [Vec<Sample>; 2],
    counters: [BTreeMap<String, u64>; 2],
    before: [Figures; 2],
    /// The differences between the clocks of the processes and of this one, in seconds.
    clock_jumps: BTreeSet<i64>,
}

/// Connects two processes by a lane of a service. The first starts.
pub fn connect(
    lane: u64,
    first: &mut Soaker,
    second: &mut Soaker,
    service: &str,
    timeout: u8,
) -> Result<()> {
    let here = first.request(&format!("lane {lane} {service}"), "endpoint")?;
    let there = second.request(&format!("lane {lane} {service}"), "endpoint")?;
    second.request(&format!("connect {lane} {timeout} false {here}"), "ok")?;
    first.request(&format!("connect {lane} {timeout} true {there}"), "ok")?;
    Ok(())
}

impl Campaign {
    /// Starts the lasting processes and lanes.
    pub fn new(seed: u64, files: Files, run: Duration) -> Result<Self> {
        let start = |name, at: usize| Soaker::start(name, &files, INTERFACES[at].0, SHARE, false);
        let [mut a, mut b] = [start("a", 0)?, start("b", 1)?];
        for soaker in [&mut a, &mut b] {
            soaker.request(&format!("rotate {ROTATED}"), "ok")?;
        }
        b.request(&format!("listen {LISTENER}"), "ok")?;
        for (lane, service) in LASTING.into_iter().enumerate() {
            let ends = if lane % 2 == 0 { (&mut a, &mut b) } else { (&mut b, &mut a) };
            connect(lane as u64, ends.0, ends.1, service, PATIENT)?;
        }
        Ok(Self {
            rng: Rng::new(seed),
            files,
            lasting: [a, b],
            next_lane: LASTING.len() as u64,
            start: Instant::now(),
            run,
            minute: MINUTE.min(run / 2),
            samples: [Vec::new(), Vec::new()],
            counters: [BTreeMap::new(), BTreeMap::new()],
            before: [Figures::default(), Figures::default()],
            clock_jumps: BTreeSet::new(),
        })
    }

    /// Runs all minutes, and checks the trends.
    pub fn run(&mut self) -> Result<()> {
        for minute in 1.. {
            let end = self.minute * minute;
            self.faults(minute)?;
            // Faults may have taken longer than a minute.
            let left = end.saturating_sub(self.start.elapsed());
            self.wait(left.max(self.minute / 30))?;
            self.report(minute)?;
            if minute > 1 && self.start.elapsed() >= self.run {
                break;
            }
        }
        self.finish()
    }

    /// Returns the name of a new lane.
    pub fn lane(&mut self) -> u64 {
        self.next_lane += 1;
        self.next_lane
    }

    /// Returns a time between two numbers of seconds, shorter in a short run.
    pub fn seconds(&mut self, low: u64, high: u64) -> Duration {
        let ms = self.rng.between(1000 * low, 1000 * high);
        Duration::from_millis(ms).mul_f64(self.minute.as_secs_f64() / MINUTE.as_secs_f64())
    }

    /// Waits, and checks the lasting lanes every second.
    pub fn wait(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(Duration::from_secs(1)));
        }
    }

    /// Waits until each lane of a process has moved four more messages.
    pub fn wait_for_progress(&mut self, soaker: &mut Soaker) -> Result<()> {
        let before = soaker.figures()?.lanes;
        let started = Instant::now();
        loop {
            let now = soaker.figures()?.lanes;
            let moved = |(name, lane): (&u64, &Lane)| lane.messages >= before[name].messages + 4;
            if now.iter().all(moved) {
                return Ok(());
            }
            if started.elapsed() > MAX_IDLE {
                return Err(format!("{}: a lane does not progress: {now:?}", soaker.name));
            }
            self.wait(Duration::from_millis(50))?;
        }
    }

    /// Checks that the lasting lanes are up and move messages.
    fn check(&mut self) -> Result<[Figures; 2]> {
        let mut both = [Figures::default(), Figures::default()];
        for (soaker, figures) in self.lasting.iter_mut().zip(&mut both) {
            *figures = soaker.figures()?;
            for (name, service) in LASTING.into_iter().enumerate() {
                let lane = &figures.lanes[&(name as u64)];
                if let Some(reason) = &lane.failed {
                    return Err(format!("{}: lane {name} ({service}) ends: {reason}", soaker.name));
                }
                if u128::from(lane.idle_ms) > MAX_IDLE.as_millis() {
                    let idle = format!("has been idle for {} ms", lane.idle_ms);
                    return Err(format!("{}: lane {name} ({service}) {idle}", soaker.name));
                }
            }
            let own = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
            self.clock_jumps.insert(figures.wall.cast_signed() - own.cast_signed());
        }
        Ok(both)
    }

    /// Takes a sample, and prints the figures of the minute.
    fn report(&mut self, minute: u32) -> Result<()> {
        let both = self.check()?;
        let elapsed = self.start.elapsed().as_secs_f64() / 60.0;
        for (at, now) in both.into_iter().enumerate() {
            let soaker = &mut self.lasting[at];
            let lanes = now.lanes.len();
            if lanes != LASTING.len() {
                return Err(format!("{} has {lanes} lanes at the end of a minute", soaker.name));
            }
            self.samples[at].push(Sample {
                minutes: elapsed,
                rss_kib: now.rss_kib,
                descriptors: now.descriptors,
                threads: now.threads,
            });
            let counters = soaker.counters()?;
            let old = std::mem::replace(&mut self.counters[at], counters);
            let risen = self.counters[at].iter().filter_map(|(name, value)| {
                let more = value - old.get(name).unwrap_or(&0);
                (more > 0 && !TRAFFIC.contains(&name.as_str())).then(|| format!(" {name}={more}"))
            });
            let risen: String = risen.collect();
            let total = |figures: &Figures, field: fn(&Lane) -> u64| -> u64 {
                figures.lanes.values().map(field).sum()
            };
            let before = std::mem::replace(&mut self.before[at], now.clone());
            let more = |field| total(&now, field) - total(&before, field);
            println!(
                "minute {minute} {}: rss {} KiB, heap {} KiB, {} descriptors, {} threads, \
                 {} messages, {} KiB, {} lost, {} served, cpu {} ms;{risen}",
                self.lasting[at].name,
                now.rss_kib,
                now.heap_kib,
                now.descriptors,
                now.threads,
                more(|lane| lane.messages),
                more(|lane| lane.bytes) / 1024,
                more(|lane| lane.lost),
                now.served - before.served,
                now.cpu_ms - before.cpu_ms,
            );
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let minutes = self.start.elapsed().as_secs_f64() / 60.0;
        let warm_up = WARM_UP.min(minutes * 0.6);
        let mut faults = Vec::new();
        for (samples, soaker) in self.samples.iter().zip(&self.lasting) {
            let trend = judge(samples, warm_up);
            println!("{}: resident memory {trend}", soaker.name);
            faults.extend(trend.faults.iter().map(|fault| format!("{}: {fault}", soaker.name)));
        }
        let jumps = self.clock_jumps.iter().filter(|seconds| seconds.abs() > 10).count();
        println!("{jumps} differences of the wall clock of more than 10 s");
        if jumps == 0 {
            faults.push("the wall clock of the processes does not jump".to_owned());
        }
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
    }
}
