//! Counts the instructions of a message with valgrind, and compares them with the stored counts of
//! `budget.txt`. The bench fails if a count grew by more than a twentieth.
//!
//! - `cargo xtask budget` compares.
//! - `cargo xtask budget keep` stores the new counts.
//!
//! A count is the same on a busy machine, where a time is not. It depends on the compiler and on
//! the C library, which copies the payload. A commit that stores other counts gives the reason.
//!
//! Each kind of work runs in two processes under `cachegrind`, the second time with twice as many
//! batches. The difference is the cost of the messages. It contains both ends and the wire between
//! them, and not the setup.

mod pair;

use std::process::{Command, ExitCode};

use urxe_stack::device::QpHandle;

use self::pair::Pair;

/// Messages that are posted before the packets move.
const BATCH: usize = 50;
/// Batches of the shorter run.
const ROUNDS: usize = 60;
/// Queue pairs that take turns.
const MANY: usize = 1000;
/// Bytes from one message of a batch to the next. The buffers have room for a whole batch.
const PLACE: u64 = 4096;

/// The file with the stored counts.
const FIGURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/budget.txt");
/// The part by which a count may grow.
const TOLERANCE: f64 = 0.05;

/// A kind of work.
struct Work {
    name: &'static str,
    description: &'static str,
    /// Runs one batch. The arguments are the pair, its additional queue pairs, and the number of
    /// the batch.
    batch: fn(&mut Pair, &[QpHandle], usize),
    /// The number of additional queue pairs.
    qps: usize,
}

const WORKS: [Work; 5] = [
    Work {
        name: "write-64",
        description: "a WRITE of 64 B among others, one queue pair",
        batch: |pair, qps, _| writes(pair, |_| qps[0], 64),
        qps: 1,
    },
    Work {
        name: "write-4096",
        description: "a packet of 4 KiB, WRITEs of one queue pair",
        batch: |pair, qps, _| writes(pair, |_| qps[0], 4096),
        qps: 1,
    },
    Work {
        name: "send-64",
        description: "a SEND of 64 B that goes alone, its acknowledgement and its receive",
        batch: |pair, _, _| (0..BATCH).for_each(|_| pair.send(64)),
        qps: 0,
    },
    Work {
        name: "read-4096",
        description: "a READ of 4 KiB that goes alone",
        batch: |pair, _, _| (0..BATCH).for_each(|_| pair.read(4096)),
        qps: 0,
    },
    Work {
        name: "write-64-many",
        description: "a WRITE of 64 B, each of another of 1000 queue pairs",
        batch: |pair, qps, round| writes(pair, |message| qps[(round * BATCH + message) % MANY], 64),
        qps: MANY,
    },
];

fn writes(pair: &mut Pair, qp_of: impl Fn(usize) -> QpHandle, length: u32) {
    for message in 0..BATCH {
        pair.post_write(qp_of(message), message as u64 * PLACE, length);
    }
    pair.finish(BATCH, 0);
}

fn do_work(work: &Work, rounds: usize) {
    let mut pair = Pair::new();
    let qps: Vec<QpHandle> = (0..work.qps).map(|_| pair.connect_another(64)[0]).collect();
    (0..rounds).for_each(|round| (work.batch)(&mut pair, &qps, round));
}

/// Returns the instructions of a process that runs `rounds` batches.
///
/// # Errors
/// The output of valgrind, if it has no count.
fn count(work: &Work, rounds: usize) -> Result<u64, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(this)
        .args([work.name, &rounds.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error}; install the package valgrind"))?;
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    let refs =
        report.lines().find_map(|line| line.split_once("I refs:").or(line.split_once("I   refs:")));
    let count = refs.and_then(|(_, number)| number.trim().replace(',', "").parse().ok());
    count.filter(|_| output.status.success()).ok_or(report)
}

/// Returns the instructions for each message.
fn cost(work: &Work) -> Result<f64, String> {
    let (fewer, more) = (count(work, ROUNDS)?, count(work, 2 * ROUNDS)?);
    Ok((more - fewer) as f64 / (ROUNDS * BATCH) as f64)
}

/// Returns the stored count of `name`.
fn kept(figures: &str, name: &str) -> Option<f64> {
    let mut fields = figures.lines().filter_map(|line| line.split_once(' '));
    fields.find(|(of, _)| *of == name).and_then(|(_, figure)| figure.trim().parse().ok())
}

fn compare(keep: bool) -> Result<bool, String> {
    let figures =
        std::fs::read_to_string(FIGURES).map_err(|error| format!("{FIGURES}: {error}"))?;
    let (mut holds, mut counted) = (true, String::new());
    for work in &WORKS {
        let cost = cost(work)?;
        counted.push_str(&format!("{} {cost:.0}\n", work.name));
        let kept =
            kept(&figures, work.name).ok_or_else(|| format!("{FIGURES} has no {}", work.name));
        let kept = if keep { kept.unwrap_or(cost) } else { kept? };
        let growth = cost / kept - 1.0;
        let verdict = if growth > TOLERANCE { "TOO MUCH" } else { "holds" };
        println!(
            "{:<14} {cost:>7.0} instructions, kept {kept:>7.0} ({:+.1} %) {verdict}: {}",
            work.name,
            growth * 100.0,
            work.description
        );
        holds &= growth <= TOLERANCE;
    }
    if keep {
        std::fs::write(FIGURES, counted).map_err(|error| format!("{FIGURES}: {error}"))?;
    }
    Ok(holds || keep)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [name, rounds] = &arguments[..]
        && let (Some(work), Ok(rounds)) =
            (WORKS.iter().find(|work| work.name == name), rounds.parse())
    {
        do_work(work, rounds);
        return ExitCode::SUCCESS;
    }
    if !cfg!(target_arch = "x86_64") {
        println!("skipped: the figures are those of x86-64");
        return ExitCode::SUCCESS;
    }
    match compare(arguments.iter().any(|argument| argument == "keep")) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!(
                "a message needs more instructions than the stored count; reduce them, or give \
                 the reason and run cargo xtask budget keep"
            );
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("cannot count: {error}");
            ExitCode::FAILURE
        }
    }
}
