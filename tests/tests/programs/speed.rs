//! The cost of the C ABI: perftest over `liburxe.so` compared with `urxe perf`, which does the same
//! work by the Rust API, alternately in one run.
//!
//! Options make the work of both equal: one completion for several requests (`-Q`), the same number
//! outstanding, the same memory, no clock read at each post (`-N`). `ib_write_lat` polls memory
//! while it waits, as `urxe perf --spin-memory` does.

use serde_json::Value;
use urxe_tests::programs::{perftest::Perftest, perftest::figures};

use crate::install::{install, ok};
use crate::pair::{ONE, run};

/// Rounds of each comparison.
const ROUNDS: usize = 9;
/// The minimum ratio of perftest to `urxe perf`.
const LEAST: f64 = 0.9;

/// One comparison.
struct Comparison {
    program: Perftest,
    /// The column of the program's figure.
    column: usize,
    /// The options of `urxe perf`.
    perf: String,
    /// Whether the figure is a latency, of which less is better.
    is_latency: bool,
}

fn comparisons() -> Vec<Comparison> {
    let mut comparisons = Vec::new();
    for (program, operation, own) in [
        ("ib_write_bw", "write", ""),
        ("ib_send_bw", "send", "-r 256 --recv_post_list=16"),
        ("ib_read_bw", "read", "-o 16"),
    ] {
        // A round is long enough that a single wake-up does not decide it.
        for (size, messages) in [(64, 1_000_000), (65_536, 16_000), (1 << 20, 1_600)] {
            let options = format!("-N -t 128 -Q 16 --report_gbits {own}");
            comparisons.push(Comparison {
                program: Perftest::new(program, "RC").size(size).messages(messages).with(&options),
                column: 3,
                perf: format!(
                    "{operation} --bandwidth -s {size} -n {messages} --working-set {size}"
                ),
                is_latency: false,
            });
        }
    }
    for (program, operation) in [("ib_write_lat", "write --spin-memory"), ("ib_send_lat", "send")] {
        comparisons.push(Comparison {
            program: Perftest::new(program, "RC").size(64).messages(20_000),
            // The median, which perftest calls typical.
            column: 4,
            perf: format!("{operation} --latency -s 64 -n 20000 --working-set 64"),
            is_latency: true,
        });
    }
    comparisons
}

impl Comparison {
    /// Runs one round of the program.
    fn of_program(&self) -> f64 {
        let client = run(ONE, &self.program.clone().pair().to_string()).unwrap().client;
        figures(&client).unwrap_or_else(|| panic!("no row in\n{client}"))[self.column]
    }

    /// Runs one round of `urxe perf`.
    fn of_perf(&self) -> f64 {
        let mut perf = install().user(install().path("bin/urxe"));
        let words = format!("perf {} --rounds 1 --addresses one --json", self.perf);
        let report: Value = serde_json::from_str(&ok(perf.args(words.split_whitespace()))).unwrap();
        let [metric, figure] =
            if self.is_latency { ["latency", "/usec/p50"] } else { ["bandwidth", "/gbps"] };
        report[metric][0]
            .pointer(figure)
            .and_then(Value::as_f64)
            .unwrap_or_else(|| panic!("{report}"))
    }

    /// Returns the medians of the program's figures, of those of `urxe perf`, and of their ratios.
    /// A ratio compares rounds that ran one after the other, because the speed of a shared machine
    /// varies.
    fn run(&self) -> [f64; 3] {
        let rounds: Vec<[f64; 3]> = (0..ROUNDS)
            .map(|_| {
                let (program, perf) = (self.of_program(), self.of_perf());
                [program, perf, if self.is_latency { perf / program } else { program / perf }]
            })
            .collect();
        [0, 1, 2].map(|which| {
            let mut figures: Vec<f64> = rounds.iter().map(|round| round[which]).collect();
            figures.sort_by(f64::total_cmp);
            figures[ROUNDS / 2]
        })
    }
}

#[test]
#[ignore = "a quiet machine, and a release build: cargo xtask programs speed"]
fn programs_are_about_as_fast_as_the_rust_api() {
    let mut missed = Vec::new();
    for comparison in comparisons() {
        let [program, perf, ratio] = comparison.run();
        let unit = if comparison.is_latency { "µs" } else { "Gb/s" };
        let verdict = if ratio >= LEAST { "yes" } else { "NO" };
        let pair = comparison.program.clone().pair();
        let line = format!(
            "{verdict:<3} {ratio:.3}  {program:>8.3} {unit:<4} {pair}\n\
             {perf:>19.3} {unit:<4} urxe perf {}",
            comparison.perf
        );
        println!("{line}");
        if ratio < LEAST {
            missed.push(line);
        }
    }
    assert!(missed.is_empty(), "less than {LEAST}:\n{}", missed.join("\n"));
}
