//! The programs of `rdmacm-utils`, which connect by addresses and ports, and perftest with `-R`:
//! two processes on one device.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use urxe_tests::programs::{connected_per_second, is_early, whole_per_second};

use crate::install::{EXPECTED, compile, install, ok, text_of};
use crate::pair::exclusive;

/// The time limit of a program, in seconds: far more than needed, to end programs that hang.
const TIMEOUT: &str = "60";
/// How often a sender repeats its messages until a receiver has joined.
const TRIES: u32 = 20;

/// The address that both processes share.
pub const ADDRESS: &str = "127.79.0.1";

pub fn command(words: &str) -> Command {
    piped(install().run(&format!("--link rxe0={ADDRESS} -- timeout {TIMEOUT} {words}")))
}

/// Makes a command log warnings and pipe its outputs.
pub fn piped(mut command: Command) -> Command {
    command.env("URXE_LOG", "warn").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits before the client starts, in milliseconds, longer with each attempt, because a server does
/// not report when it listens. perftest makes two connections, and the time of the second varies.
const START_DELAYS: [u64; 4] = [300, 600, 1_200, 3_000];

/// Runs both programs, which must succeed. Returns their outputs.
#[track_caller]
pub fn run_pair(server: &str, client: &str) -> [String; 2] {
    run_commands(|| command(server), || command(client))
}

#[track_caller]
fn run_commands(server: impl Fn() -> Command, client: impl Fn() -> Command) -> [String; 2] {
    let _exclusive = exclusive();
    let mut last = String::new();
    for start_delay in START_DELAYS {
        let running = server().spawn().unwrap();
        thread::sleep(Duration::from_millis(start_delay));
        let client_output = client().output().unwrap();
        let client_said = text_of(&client_output);
        if is_early(&client_said) {
            last = format!("{:?}\n{client_said}\n{:?}\n{}", client(), server(), end(running));
            continue;
        }
        let output = running.wait_with_output().unwrap();
        let server_said = text_of(&output);
        assert!(
            output.status.success() && client_output.status.success(),
            "{:?}\n{server_said}\n{:?}\n{client_said}",
            server(),
            client()
        );
        return [server_said, client_said];
    }
    panic!("no server listens\n{last}");
}

/// Runs a client until a server that does not end listens.
#[track_caller]
pub fn client(words: &str) -> String {
    for start_delay in START_DELAYS {
        let output = command(words).output().unwrap();
        let text = text_of(&output);
        if !is_early(&text) {
            assert!(output.status.success(), "{words}\n{text}");
            return text;
        }
        thread::sleep(Duration::from_millis(start_delay));
    }
    panic!("{words}: no server listens");
}

/// Ends a server. Returns the output.
pub fn end(server: Child) -> String {
    // `timeout` forwards the signal to its program.
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    text_of(&server.wait_with_output().unwrap())
}

/// Runs a program that is server without `-s` and client with `-s`.
#[track_caller]
fn run_same(program: &str, options: &str) -> [String; 2] {
    run_pair(&format!("{program} {options}"), &format!("{program} {options} -s {ADDRESS}"))
}

#[track_caller]
fn rping(options: &str, server: &str, client: &str) -> [String; 2] {
    run_pair(
        &format!("rping -s -a 0.0.0.0 {options} {server}"),
        &format!("rping -c -a {ADDRESS} {options} {client}"),
    )
}

#[test]
fn rping_with_every_option() {
    for end in rping("-v -C 3", "", "") {
        assert!(end.contains("rdma-ping-2:"), "{end}");
    }
    rping("-V -C 20 -S 65535", "", &format!("-I {ADDRESS}"));
    // The program moves its own queue pairs by rdma_init_qp_attr and rdma_establish.
    rping("-V -C 3 -q", "", "");
    let [_, debug] = rping("-C 1", "", "-d");
    assert!(
        debug.contains("RDMA_CM_EVENT_ESTABLISHED") || debug.contains("ESTABLISHED"),
        "{debug}"
    );
}

/// Returns a command of `urxe rping` on the device of [`ADDRESS`].
fn rust(words: &str) -> Command {
    let mut command = install().user(install().path("bin/urxe"));
    command.args(words.split_whitespace()).env("URXE_DEVICES", format!("rxe0={ADDRESS}"));
    piped(command)
}

#[test]
fn the_rping_of_rust_and_that_of_rdma_core_ping_each_other() {
    let options = "-v -V -C 5 -S 3000";
    let client = format!("rping -c -a {ADDRESS} {options}");
    let programs = format!("rping -s -a 0.0.0.0 {options}");
    for [server, client] in [
        run_commands(|| rust(&format!("rping -s {options}")), || command(&client)),
        run_commands(|| command(&programs), || rust(&client)),
    ] {
        assert!(
            server.contains("server ping data: rdma-ping-4: ")
                && client.contains("ping data: rdma-ping-4: ")
        );
    }
}

/// The clients run one after the other, because rping loses one of two simultaneous requests.
#[test]
fn rping_with_a_server_for_many() {
    let _exclusive = exclusive();
    let server = command(&format!("rping -s -P -a {ADDRESS}")).spawn().unwrap();
    for _ in 0..4 {
        client(&format!("rping -c -V -a {ADDRESS} -C 5"));
    }
    end(server);
}

#[test]
fn ucmatose_with_many_connections_and_its_own_events() {
    for end in run_same("ucmatose", "-c 20 -C 5 -S 3000") {
        assert!(end.contains("test complete") && end.contains("return status 0"), "{end}");
    }
}

/// Checks all packets that both ends send and receive. A REQ may arrive in the client's process,
/// which forwards it when the server's process is slow. Such a REQ is in the client's capture only,
/// as sent and as received.
#[test]
fn the_type_of_service_is_every_packets_and_the_timeout_the_reqs() {
    let captures =
        ["server", "client"].map(|end| install().path("home").join(format!("tos-{end}.pcapng")));
    let recorded = |capture: &Path, words: &str| {
        let options = format!("--link rxe0={ADDRESS} --capture {}", capture.display());
        piped(install().run(&format!("{options} -- timeout {TIMEOUT} {words}")))
    };
    let client = format!("ucmatose -C 5 -t 104 -a 19 -s {ADDRESS}");
    run_commands(|| recorded(&captures[0], "ucmatose -C 5"), || recorded(&captures[1], &client));
    let decoded = captures.map(|capture| {
        let mut decode = install().user(install().path("bin/urxe"));
        ok(decode.args(["decode", "--json"]).arg(&capture))
    });
    let packets: Vec<Value> = decoded
        .iter()
        .flat_map(|text| text.lines())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(packets.len() > 30, "{decoded:?}");
    for packet in &packets {
        // Packets of the connection are ECN-capable (ECT(0)).
        let class = if packet["mad"].is_null() { 104 | 2 } else { 104 };
        assert_eq!(packet["traffic_class"], class, "{packet}");
    }
    let reqs: Vec<_> =
        packets.iter().filter(|packet| packet["mad"]["attribute"] == "REQ").collect();
    assert!(reqs.len() >= 2, "one is sent and received: {decoded:?}");
    for req in reqs {
        let fields = &req["mad"]["fields"];
        assert_eq!(
            (&fields["primary_traffic_class"], &fields["primary_ack_timeout"]),
            (&104.into(), &19.into())
        );
    }
    for message in ["REP", "RTU", "DREQ", "DREP"] {
        assert!(
            packets.iter().any(|packet| packet["mad"]["attribute"] == message),
            "{message}: {decoded:?}"
        );
    }
}

#[test]
fn udaddy_finds_queue_pairs_for_datagrams() {
    for end in run_same("udaddy", "-c 5 -C 5") {
        assert!(
            end.contains("data transfers complete") && end.contains("return status 0"),
            "{end}"
        );
    }
}

/// Runs a program of `tests/programs` that is server with `-s` and client with `-c`.
#[track_caller]
fn run_compiled(name: &str) {
    let program = compile(name).display().to_string();
    for end in run_pair(&format!("{program} -s 0.0.0.0"), &format!("{program} -c {ADDRESS}")) {
        assert!(end.contains(EXPECTED), "{end}");
    }
}

#[test]
fn private_data_of_every_kind_goes_both_ways() {
    run_compiled("private_data");
}

#[test]
fn connections_of_a_server_share_a_receive_queue_that_it_made_itself() {
    run_compiled("cm_shared");
}

#[test]
fn synchronous_identifiers_and_endpoints() {
    run_pair("rdma_server", &format!("rdma_client -s {ADDRESS}"));
    for kind in ["r", "x"] {
        run_pair(
            &format!("rdma_xserver -c {kind}"),
            &format!("rdma_xclient -c {kind} -s {ADDRESS}"),
        );
    }
}

#[test]
fn cmtime_connects_and_disconnects_a_hundred_at_once() {
    let _exclusive = exclusive();
    let server = command("cmtime").spawn().unwrap();
    let table = client(&format!("cmtime -s {ADDRESS} -c 100"));
    assert!(table.contains("disconnect") && !table.contains("event:"), "{table}");
    end(server);
}

/// Returns a program's memory in KiB (proc(5)) and its number of descriptors.
fn holds(pid: u32) -> (u64, usize) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib = line.split_whitespace().next().unwrap().parse().unwrap();
    (kib, fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count())
}

/// Runs one server and `rounds` clients, one after the other, each of which makes and ends
/// `connections` connections at once.
fn cmtime_rounds(rounds: usize, connections: usize) {
    /// Memory that tables and allocators may keep for reuse, in KiB.
    const SLACK_KIB: u64 = 4 << 10;
    let _exclusive = exclusive();
    let words = format!("--link rxe0={ADDRESS} -- cmtime");
    let server =
        install().run(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut settled = (0, 0);
    for round in 0..rounds {
        let table = client(&format!("cmtime -s {ADDRESS} -c {connections}"));
        assert!(table.contains("disconnect") && !table.contains("event:"), "{table}");
        let held = holds(server.id());
        let per_second = connected_per_second(&table, connections).unwrap();
        println!(
            "round {round}: {per_second:.0} connections/s made and ended; \
             the server has {held:?} (KiB, descriptors)"
        );
        // From the middle on, the numbers of connections in TIMEWAIT and of unused identifiers no
        // longer grow.
        if round <= rounds / 2 {
            settled = held;
        }
        let (kib, descriptors) = settled;
        assert!(
            held.0 <= kib + SLACK_KIB && held.1 <= descriptors,
            "{held:?} after {:?}",
            (kib, descriptors)
        );
    }
    end(server);
}

/// The target is 5,000 connections per second, made and ended, between two processes.
#[test]
#[ignore = "a quiet machine, and a release build: cargo xtask programs speed"]
fn connections_are_made_fast() {
    const ROUNDS: usize = 5;
    const CONNECTIONS: usize = 2_000;
    let _exclusive = exclusive();
    let server = command("cmtime").spawn().unwrap();
    thread::sleep(Duration::from_millis(500));
    let mut rounds: Vec<[f64; 2]> = (0..ROUNDS)
        .map(|_| {
            let table = client(&format!("cmtime -s {ADDRESS} -c {CONNECTIONS}"));
            [connected_per_second, whole_per_second].map(|of| of(&table, CONNECTIONS).unwrap())
        })
        .collect();
    end(server);
    rounds.sort_by(|a, b| a[0].total_cmp(&b[0]));
    let [connected, whole] = rounds[ROUNDS / 2];
    let verdict = if connected >= 5_000.0 { "yes" } else { "NO" };
    println!(
        "{verdict:<3} {connected:.0} connections/s made and ended; \
         {whole:.0} with identifiers and queue pairs"
    );
}

#[test]
fn thousands_of_connections_leave_nothing() {
    cmtime_rounds(3, 3_000);
}

#[test]
#[ignore = "minutes: cargo xtask programs all"]
fn every_hundred_thousand_connections_leave_nothing() {
    cmtime_rounds(100, 1_000);
}

#[test]
#[ignore = "a minute: cargo xtask programs all"]
fn every_one_of_ten_thousand_connections_is_open_at_once() {
    cmtime_rounds(3, 10_000);
}

#[test]
fn mckey_joins_a_group() {
    let _exclusive = exclusive();
    let words = format!("mckey -m 239.79.0.1 -b {ADDRESS} -C 4");
    let mut receiver = command(&words).spawn().unwrap();
    // Early messages are lost, so the sender repeats them until the receiver ends.
    for _ in 0..TRIES {
        let output = command(&format!("{words} -s")).output().unwrap();
        assert!(output.status.success(), "{}", text_of(&output));
        if receiver.try_wait().unwrap().is_some() {
            break;
        }
    }
    let output = receiver.wait_with_output().unwrap();
    let text = text_of(&output);
    assert!(output.status.success() && text.contains("joined dgid: ::ffff:239.79.0.1"), "{text}");
}

#[test]
fn perftest_connects_by_rdma_cm() {
    for (program, options) in [
        ("ib_send_bw", "-n 100"),
        ("ib_write_bw", "-n 100 -q 2"),
        ("ib_read_lat", "-n 100"),
        ("ib_send_lat", "-c UD -n 100 -s 64"),
    ] {
        let words = format!("{program} -R -F {options}");
        let [_, client] = run_pair(&words, &format!("{words} {ADDRESS}"));
        assert!(client.contains("#iterations"), "{client}");
    }
}
