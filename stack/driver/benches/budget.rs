//! Instructions a message, counted by valgrind and held against the figures that are kept in
//! `budget.txt`: fails when one has grown by more than a twentieth. `cargo xtask budget`, and
//! `cargo xtask budget keep` to keep what was counted.
//!
//! Unlike a time a count is the same on a busy machine, so it tells of a loss before a measurement
//! would. It moves with the compiler and the C library (the copies), which is a reason to keep new
//! figures and to say so.
//!
//! Each kind of work is done so many times and twice as many times, in a process of its own under
//! `cachegrind`; what the second run has more is what the messages cost, both ends together,
//! whatever was made before.

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
/// Of all messages together fits the buffers.
const PLACE: u64 = 4096;

const FIGURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/budget.txt");
/// What a figure may grow by without a word.
const TOLERANCE: f64 = 0.05;

/// What is counted: its name, how it is explained, and what does one batch of it.
struct Work {
    name: &'static str,
    says: &'static str,
    batch: fn(&mut Pair, &[QpHandle], usize),
    qps: usize,
}

const WORKS: [Work; 5] = [
    Work {
        name: "write-64",
        says: "a WRITE of 64 B among others, one queue pair",
        batch: |pair, qps, _| writes(pair, |_| qps[0], 64),
        qps: 1,
    },
    Work {
        name: "write-4096",
        says: "a packet of 4 KiB, WRITEs of one queue pair",
        batch: |pair, qps, _| writes(pair, |_| qps[0], 4096),
        qps: 1,
    },
    Work {
        name: "send-64",
        says: "a SEND of 64 B that goes alone, its acknowledgement and its receive",
        batch: |pair, _, _| (0..BATCH).for_each(|_| pair.send(64)),
        qps: 0,
    },
    Work {
        name: "read-4096",
        says: "a READ of 4 KiB that goes alone",
        batch: |pair, _, _| (0..BATCH).for_each(|_| pair.read(4096)),
        qps: 0,
    },
    Work {
        name: "write-64-many",
        says: "a WRITE of 64 B, each of another of 1000 queue pairs",
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

/// Instructions of a run of so many rounds. `Err`: what valgrind said instead.
fn count(work: &Work, rounds: usize) -> Result<u64, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(this)
        .args([work.name, &rounds.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error}; install the package valgrind"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let refs =
        said.lines().find_map(|line| line.split_once("I refs:").or(line.split_once("I   refs:")));
    let count = refs.and_then(|(_, number)| number.trim().replace(',', "").parse().ok());
    count.filter(|_| output.status.success()).ok_or(said)
}

/// Instructions a message.
fn cost(work: &Work) -> Result<f64, String> {
    let (fewer, more) = (count(work, ROUNDS)?, count(work, 2 * ROUNDS)?);
    Ok((more - fewer) as f64 / (ROUNDS * BATCH) as f64)
}

/// The figure that is kept for `name`.
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
            work.says
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
