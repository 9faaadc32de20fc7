//! `urxe perf`: a short run of every operation and option, two hosts, plots, and refused options.
//! These tests do not check the speed.
//!
//! Each test uses its own 127.65.x network.

use std::time::Instant;

use serde_json::{Map, Value};

use crate::common::{LIMIT, Listening, Run};

#[track_caller]
fn run(arguments: &str) -> Run {
    crate::common::run(&format!("perf {arguments}"))
}

fn rows<'a>(report: &'a Value, metric: &str) -> Vec<(&'a str, u64)> {
    let of = |row: &'a Value| (row["operation"].as_str().unwrap(), row["size"].as_u64().unwrap());
    report[metric].as_array().unwrap().iter().map(of).collect()
}

/// Checks that every figure is positive, and that data was verified wherever bytes arrive.
#[track_caller]
fn assert_measured(report: &Value) {
    for row in report["bandwidth"].as_array().unwrap() {
        assert!(row["gbps"].as_f64() > Some(0.0) && row["mmps"].as_f64() > Some(0.0), "{row}");
        assert!(row["messages"].as_u64() > Some(0), "{row}");
        assert!(
            row["of_udp_gso"].as_f64() > Some(0.0) && row["of_tcp"].as_f64() > Some(0.0),
            "{row}"
        );
        // CMP_SWAP leaves the counter unchanged, so there is nothing to count.
        assert!(row["operation"] == "CMP_SWAP" || row["verified"].as_u64() > Some(0), "{row}");
    }
    for row in report["latency"].as_array().unwrap() {
        let [p50, p99] = ["p50", "p99"].map(|key| row["usec"][key].as_f64().unwrap());
        assert!(p50 > 0.0 && p99 >= p50 && row["of_spinning"].as_f64() > Some(0.0), "{row}");
        assert!(row["operation"] == "CMP_SWAP" || row["verified"].as_u64() > Some(0), "{row}");
    }
}

/// Returns the shape of a value: names and types, of an array its first element.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name.clone(), shape(value)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.first().map(shape).into_iter().collect()),
        Value::Number(_) => "number".into(),
        Value::String(_) => "string".into(),
        Value::Bool(_) => "bool".into(),
        Value::Null => "null".into(),
    }
}

#[test]
fn every_operation_is_measured_and_its_data_checked() {
    let report = run("-n 40 --rounds 2 -s 1,4097 --json -d 127.65.1.1").json();
    let expected: Vec<_> = [1, 4097]
        .into_iter()
        .flat_map(|size| ["SEND", "WRITE", "WRITE_IMM", "READ"].map(|name| (name, size)))
        .chain([("FETCH_ADD", 8), ("CMP_SWAP", 8)])
        .collect();
    assert_eq!(rows(&report, "bandwidth"), expected);
    assert_eq!(rows(&report, "latency"), expected);
    assert_measured(&report);
    for row in report["bandwidth"].as_array().unwrap() {
        assert_eq!(row["messages"], 80, "forty in each of two rounds: {row}");
    }
    let mut shape = shape(&report);
    shape.sort_all_objects();
    insta::assert_json_snapshot!(shape);
}

#[test]
fn options_of_perftest() {
    for (arguments, net) in [
        ("-s 64 -l 32 -t 64", 1),
        ("-s 64 -q 5 -t 7", 2),
        ("-s 64 -I 64", 3),
        ("-s 3000 -m 256 --bidirectional --bandwidth", 4),
        ("send write-imm read fetch-add -s 64 --events", 5),
        ("write -s 64 --latency --spin-memory", 6),
        ("-s 64K --target-polls --working-set 1M --receive-buffer 64K", 7),
        ("write -s 2M --bandwidth", 8),
        ("-s 64 -t 1", 9),
    ] {
        let report =
            run(&format!("{arguments} -n 50 --rounds 1 --json -d 127.65.2.{}", 2 * net)).json();
        assert_measured(&report);
        let both = if arguments.contains("bidirectional") { 2 } else { 1 };
        let qps = if arguments.contains("-q 5") { 5 } else { 1 };
        for row in report["bandwidth"].as_array().unwrap() {
            assert_eq!(row["messages"], 50 * both * qps, "{arguments}: {row}");
        }
    }
}

#[test]
fn rounds_by_time_and_the_tables() {
    let text = run("write read -s 64 -D 0.01 --rounds 1 -d 127.65.3.1").ok();
    for part in ["\nWRITE ", "\nREAD ", "vs UDP", "spin", "TCP stream", "one 96 B datagram a call"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(text.contains("verified after the rounds, every byte"), "{text}");
}

#[test]
fn all_sizes_are_plotted() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("plot.svg");
    let arguments = format!(
        "write --bandwidth --all -D 0.001 --rounds 1 -d 127.65.4.1 --svg {}",
        svg.display()
    );
    let text = run(&arguments).ok();
    assert!(text.contains("WRITE, Gb/s by size") && text.contains("8 MiB"), "{text}");
    assert!(text.contains("plot.svg"), "{text}");
    assert!(std::fs::read_to_string(&svg).unwrap().starts_with("<svg"));
}

#[test]
fn a_plot_that_cannot_be_written_fails_before_the_measurement() {
    let folder = tempfile::tempdir().unwrap();
    let run = |svg: &str, words: &str| {
        let svg = folder.path().join(svg);
        run(&format!("--all {words} -d 127.65.8.1 --svg {}", svg.display())).fails(1)
    };
    let said = run("no/such/folder.svg", "");
    assert!(said.contains("there is no plot: cannot write"), "{said}");
    assert!(!said.contains("this takes about"), "{said}");
    // A measurement that fails keeps an older plot and leaves no new one.
    std::fs::write(folder.path().join("old.svg"), "older").unwrap();
    for svg in ["old.svg", "new.svg"] {
        let said = run(svg, "--connect 127.65.8.2");
        assert!(said.contains("start `urxe perf --listen` there"), "{said}");
    }
    assert_eq!(std::fs::read_to_string(folder.path().join("old.svg")).unwrap(), "older");
    assert!(!folder.path().join("new.svg").exists());
}

#[test]
fn two_hosts_measure_as_two_processes_do() {
    let server = Listening::start("perf --listen -d 127.65.5.1 -p 0");
    let (_, port) = server.said.trim().rsplit_once(':').unwrap();
    let arguments =
        format!("--connect 127.65.5.1 -p {port} -d 127.65.5.2 -s 64 -n 20 --rounds 1 --json");
    let report = run(&arguments).json();
    assert_eq!(
        (&report["device"], &report["peer"]),
        (&"rxe0=127.65.5.2".into(), &"rxe0=127.65.5.1".into())
    );
    assert_measured(&report);
    server.finish().ok();
}

#[test]
fn every_target_has_a_row() {
    let run = run("--targets --json --rounds 1 -D 0.005");
    assert!(matches!(run.code, Some(0 | 1)), "{run:?}");
    let verdict: Value = serde_json::from_str(&run.stdout).expect("JSON");
    let rows = verdict["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 21);
    for row in rows {
        let checks = row["checks"].as_array().unwrap();
        assert!(row["trouble"].is_null() && !checks.is_empty(), "{row}");
        assert!(checks.iter().all(|check| check["is"].as_f64() > Some(0.0)), "{row}");
    }
}

#[test]
fn impossible_cases_are_usage_errors() {
    for (arguments, stderr) in [
        ("write --latency --qps 2", "one outstanding message"),
        ("send --bandwidth -l 200", "the posting list is 200; the allowed range is 1 to 128"),
        ("write --latency --events", "creates no event"),
        ("--all --size 64", "cannot be used with"),
        ("--targets write", "cannot be used with"),
        ("nothing", "possible values"),
    ] {
        let said = run(arguments).fails(2);
        assert!(said.contains(stderr), "{arguments}: {said}");
    }
}

#[test]
fn failures_are_named() {
    assert!(
        run("-d 192.0.2.1 -n 1").fails(1).contains("192.0.2.1 is not an address of this machine")
    );
    assert!(run("-m 4096 -n 1 -d nosuch").fails(1).contains("no link nosuch"));
    let start = Instant::now();
    let said = run("--connect 127.65.6.3 -d 127.65.6.2 -n 1").fails(1);
    assert!(said.contains("start `urxe perf --listen` there"), "{said}");
    assert!(start.elapsed() < LIMIT, "it does not wait for ever");
}
