//! `urxe pingpong`: on one host, between two processes, against a substitute for `ibv_rc_pingpong`,
//! and failures.
//!
//! Each test uses its own 127.64.x network.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

use crate::common::{Finish as _, LIMIT, Listening, Run};

fn address(net: u8, host: u8) -> String {
    Ipv4Addr::new(127, 64, net, host).to_string()
}

fn urxe(arguments: &str) -> Command {
    crate::common::urxe(&format!("pingpong {arguments}"))
}

#[track_caller]
fn run(arguments: &str) -> Run {
    crate::common::run(&format!("pingpong {arguments}"))
}

#[track_caller]
fn listen(arguments: &str) -> Listening {
    Listening::start(&format!("pingpong --listen {arguments}"))
}

/// Checks that all messages of each row are verified. Returns operations and sizes.
#[track_caller]
fn verified_rows(report: &Value) -> Vec<(String, u64)> {
    let rows = report["rows"].as_array().expect("rows");
    let checked = |row: &Value| {
        let messages = row["messages"].as_u64().unwrap();
        assert!(messages > 0 && row["verified"] == messages, "{row}");
        assert!(
            row["usec"].as_f64().unwrap() > 0.0 && row["gbps"].as_f64().unwrap() > 0.0,
            "{row}"
        );
        assert!(row["usec_p99"].as_f64() >= row["usec"].as_f64(), "{row}");
        (row["operation"].as_str().unwrap().to_owned(), row["size"].as_u64().unwrap())
    };
    rows.iter().map(checked).collect()
}

#[test]
fn alone_every_operation_is_verified() {
    let report = run(&format!("--quick --json -d {}", address(1, 1))).json();
    let rows: Vec<_> =
        verified_rows(&report).into_iter().map(|(name, size)| format!("{name} {size}")).collect();
    assert_eq!(
        rows,
        [
            "SEND 64",
            "SEND 65536",
            "WRITE 64",
            "WRITE 65536",
            "READ 64",
            "READ 65536",
            "FETCH_ADD 8",
            "CMP_SWAP 8"
        ]
    );
    assert_eq!(report["device"], "rxe0=127.64.1.1");
    assert_eq!(report["peer"], "rxe0=127.64.1.2");
    assert_eq!(report["mtu"], 4096);
}

#[test]
fn alone_over_services_that_send_nothing_again() {
    let uc = run(&format!("--quick --json -t uc -d {}", address(5, 1))).json();
    let uc_rows = ["SEND 64", "SEND 65536", "WRITE_IMM 64", "WRITE_IMM 65536"];
    let ud = run(&format!("--json --transport ud -e -n 40 -d {}", address(6, 1))).json();
    let ud_rows = ["SEND 64", "SEND 1024", "SEND 4096"];
    for (report, transport, expected) in [(uc, "uc", &uc_rows[..]), (ud, "ud", &ud_rows[..])] {
        let rows = verified_rows(&report).into_iter().map(|(name, size)| format!("{name} {size}"));
        assert_eq!(rows.collect::<Vec<_>>(), expected);
        assert_eq!(report["transport"], transport);
    }
    let text = run(&format!("-t uc --sizes 1,1000,60000 -n 20 -m 256 -d {}", address(7, 1))).ok();
    assert!(
        text.contains("UC over UDP port 4791") && text.contains("All 240 messages verified"),
        "{text}"
    );
    let stderr = run(&format!("-t ud --sizes 1025 -m 1024 -d {}", address(8, 1))).fails(1);
    assert!(stderr.contains("a datagram of 1025 bytes does not fit the path MTU"), "{stderr}");
}

#[test]
fn alone_with_events_other_sizes_and_a_small_mtu() {
    let arguments = "--json --events --sizes 1,4097,1M --mtu 256 --iterations 20";
    let report = run(&format!("{arguments} -d {}", address(2, 1))).json();
    let sends = verified_rows(&report)
        .iter()
        .filter(|(name, _)| name == "SEND")
        .map(|(_, size)| *size)
        .collect::<Vec<_>>();
    assert_eq!(sends, [1, 4097, 1 << 20]);
    assert_eq!(report["mtu"], 256);
    for row in report["rows"].as_array().unwrap() {
        assert_eq!(row["messages"], 40, "twenty alone and twenty together: {row}");
    }
}

#[test]
fn the_table_has_the_rows_of_the_object() {
    let text = run(&format!("--quick -n 10 -d {}", address(3, 1))).ok();
    for operation in ["SEND", "WRITE", "READ", "FETCH_ADD", "CMP_SWAP"] {
        assert!(text.contains(&format!("\n{operation} ")), "{operation} in {text}");
    }
    assert!(text.contains("All 160 messages verified, every byte"), "{text}");
}

#[test]
fn a_capture_has_the_packets_and_their_icrcs_hold() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.pcapng");
    run(&format!("--quick -n 5 -d {} --capture {}", address(4, 1), file.display())).ok();
    let decoded = crate::common::run(&format!("decode {}", file.display()));
    let (lines, note) = (decoded.stdout, decoded.stderr);
    for name in ["SEND", "WRITE", "READ", "FETCH_ADD", "COMPARE_SWAP"] {
        let short = name.replace('_', "").to_lowercase();
        let has =
            lines.lines().any(|line| line.replace(['_', ' '], "").to_lowercase().contains(&short));
        assert!(has, "{name} in {lines}");
    }
    assert!(note.contains(" 0 malformed, 0 other") && note.contains(" 0 wrong"), "{note}");
}

#[test]
fn between_two_processes() {
    let cases = [
        "",
        "-s 1 -n 20",
        "-s 1M -n 5 -m 4096",
        "-s 10000 -n 50 -m 256 -r 2 -c",
        "-n 100 -e",
        "-t uc -n 200",
        "-t uc -s 50000 -n 50 -m 256 -r 2 -e -c",
        "-t ud",
        "-t ud -s 1 -n 50 -r 2 -e -c",
    ];
    for (case, net) in cases.iter().zip(10..) {
        let (here, there) = (address(net, 1), address(net, 2));
        let server = listen(&format!("-d {here} {case}"));
        assert!(server.said.contains(&format!("{here}:18515")), "{}", server.said);
        // The server's -c requires the bytes of ibv_rc_pingpong -c, which the patterns of urxe
        // contain as well.
        let client =
            run(&format!("--connect {here} -d {there} {}", case.trim_end_matches("-c"))).ok();
        let server = server.finish().ok();
        for said in [&client, &server] {
            assert!(
                said.contains(" usec/iter\n") && said.contains("messages received and verified"),
                "{case}: {said}"
            );
        }
        let of = |said: &str, whose: &str| {
            let line = said
                .lines()
                .find(|line| line.contains(whose))
                .unwrap_or_else(|| panic!("{whose}: {said}"));
            line.split_once("LID").unwrap().1.to_owned()
        };
        assert_eq!(of(&client, "remote address:"), of(&server, "local address:"));
        assert_eq!(of(&client, "local address:"), of(&server, "remote address:"));
    }
}

#[test]
fn many_queue_pairs_on_one_shared_receive_queue() {
    for (case, qps, net) in
        [("-n 500", 16, 40), ("-s 100K -n 200 -m 4096 -e", 3, 41), ("-s 1 -n 300 -r 256", 256, 42)]
    {
        let (here, there) = (address(net, 1), address(net, 2));
        let server = listen(&format!("-d {here} {case} --srq {qps}"));
        let client = run(&format!("--connect {here} -d {there} {case} --srq {qps}")).ok();
        let server = server.finish().ok();
        for said in [&client, &server] {
            assert!(said.contains("messages received and verified"), "{case}: {said}");
            let addresses = |whose| said.lines().filter(|line| line.contains(whose)).count();
            assert_eq!(
                (addresses("local address:"), addresses("remote address:")),
                (qps, qps),
                "{said}"
            );
        }
    }
    let stderr = run("--listen --srq 16 -r 15 -d 127.64.43.1").fails(1);
    assert!(stderr.contains("each needs at least one receive"), "{stderr}");
}

#[test]
fn both_ends_must_have_the_same_number_of_queue_pairs() {
    let (here, there) = (address(44, 1), address(44, 2));
    let server = listen(&format!("-d {here} --srq 4"));
    let stderr = run(&format!("--connect {here} -d {there} --srq 5")).fails(1);
    assert!(stderr.contains("the peer has 4 queue pairs, this end 5"), "{stderr}");
    server.finish().fails(1);
}

#[test]
fn between_two_processes_for_machines() {
    let mut command = urxe(&format!("--listen --json -n 10 -s 100 -d {}", address(20, 1)));
    let mut server = command.spawn().unwrap();
    let mut said = String::new();
    BufReader::new(server.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.starts_with("listening"), "{said}");
    let client =
        run(&format!("--connect {} --json -n 10 -s 100 -d {}", address(20, 1), address(20, 2)))
            .json();
    for summary in [client, server.finish().json()] {
        assert_eq!(
            (&summary["verified"], &summary["size"]),
            (&10.into(), &100.into()),
            "{summary}"
        );
        assert!(summary["counters"]["sent_pkts"].as_u64() >= Some(10), "{summary}");
        assert_eq!(summary["counters"]["drop_icrc"], 0, "{summary}");
    }
}

/// The peer completes the exchange and then sends nothing, as if a message of either end had been
/// lost.
#[test]
fn a_lost_message_ends_the_run() {
    let mine = format!("0000:{:06x}:000001:{:020x}ffff{:08x}\0", 0x77, 0, 0x7f40_3502);
    std::thread::scope(|scope| {
        let server = listen(&format!("-t uc -d {}", address(52, 1)));
        let mut stream = TcpStream::connect((address(52, 1), 18515)).unwrap();
        stream.write_all(mine.as_bytes()).unwrap();
        stream.read_exact(&mut [0; 52]).unwrap();
        stream.write_all(b"done\0").unwrap();
        let listener = std::net::TcpListener::bind((address(53, 2), 18515)).unwrap();
        let mine = mine.clone();
        scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; 52]).unwrap();
            stream.write_all(mine.as_bytes()).unwrap();
            stream.read_exact(&mut [0; 5]).unwrap();
        });
        let client = run(&format!("--connect {} -t ud -d {}", address(53, 2), address(53, 1)));
        for (run, transport) in [(client, "UD"), (server.finish(), "UC")] {
            let stderr = run.fails(1);
            let expected = format!("a message was lost, which {transport} does not retransmit");
            assert!(stderr.contains(&expected), "{stderr}");
        }
    });
}

#[test]
fn bad_command_lines_are_refused() {
    for arguments in [
        "--sizes 0",
        "--sizes 64,big",
        "--mtu 1500",
        "--iterations 0",
        "--listen --connect there",
        "--listen --quick",
        "--listen --sizes 64",
        "--port 5",
        "-s 64",
        "--chk",
        "--quick --sizes 64",
        "--listen -r 1",
        "--srq 4",
        "--listen --srq 0",
        "--listen --srq 257",
        "--listen --srq 4 -c",
        "--listen -i 2",
        "--listen --srq 4 -t uc",
        "-t xrc",
        "-d 10.0.0",
        "more",
    ] {
        let stderr = run(arguments).fails(2);
        assert!(stderr.contains("Usage") || stderr.contains("--help"), "{arguments}: {stderr}");
    }
    assert!(run("--mtu 1500").fails(2).contains("256, 512, 1024, 2048 or 4096"));
    assert!(run("--sizes 1G").fails(2).contains("as in 64, 4K or 1M"));
}

#[test]
fn devices_that_do_not_work_are_named() {
    let held = UdpSocket::bind((address(30, 1), 4791)).unwrap();
    let stderr = run(&format!("--quick -d {}", address(30, 1))).fails(1);
    let owner = format!("127.64.30.1 is taken by process {} (", std::process::id());
    assert!(stderr.contains(&owner) && stderr.contains(" is free"), "{stderr}");
    drop(held);
    assert!(run("-d 192.0.2.1").fails(1).contains("192.0.2.1 is not an address of this machine"));
    assert!(
        run("-d nosuch")
            .fails(1)
            .contains("no link nosuch in the built-in default; there are: rxe0")
    );
    let stderr = run(&format!("--listen -g 9 -d {} -p 0", address(30, 2))).fails(1);
    assert!(stderr.contains("no GID with index 9"), "{stderr}");
}

#[test]
fn the_peer_process_takes_the_next_free_address() {
    let _held = UdpSocket::bind((address(31, 2), 4791)).unwrap();
    let report = run(&format!("--quick -n 5 --json -d {}", address(31, 1))).json();
    assert_eq!(report["peer"], "rxe0=127.64.31.3");
}

#[test]
fn a_tcp_port_in_use_is_named() {
    let taken = std::net::TcpListener::bind((address(32, 1), 18515)).unwrap();
    let stderr = run(&format!("--listen -d {}", address(32, 1))).fails(1);
    assert!(stderr.contains("cannot listen on TCP 127.64.32.1:18515: "), "{stderr}");
    drop(taken);
    let stderr = run(&format!("--connect {} -d {}", address(32, 3), address(32, 2))).fails(1);
    assert!(stderr.contains("cannot connect to 127.64.32.3:18515"), "{stderr}");
}

#[test]
fn another_program_at_the_port_is_noticed() {
    let server = listen(&format!("-d {}", address(33, 1)));
    TcpStream::connect((address(33, 1), 18515)).unwrap().write_all(&[b'?'; 60]).unwrap();
    let stderr = server.finish().fails(1);
    assert!(stderr.contains("another program may use this port"), "{stderr}");
}

#[test]
fn a_peer_that_disappears_ends_the_run() {
    let server = listen(&format!("-n 100000000 -d {}", address(34, 1)));
    let mut client =
        urxe(&format!("--connect {} -n 100000000 -d {}", address(34, 1), address(34, 2)))
            .spawn()
            .unwrap();
    std::thread::sleep(Duration::from_millis(300));
    client.kill().unwrap();
    client.wait().unwrap();
    let start = Instant::now();
    let stderr = server.finish().fails(1);
    assert!(
        stderr.contains("transport retry counter exceeded")
            || stderr.contains("check that the peer is still running"),
        "{stderr}"
    );
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

/// Waits until `parent` has started a process, and returns its id.
fn child_of(parent: &Child) -> Pid {
    let children = format!("/proc/{0}/task/{0}/children", parent.id());
    let start = Instant::now();
    loop {
        let text = std::fs::read_to_string(Path::new(&children)).unwrap_or_default();
        if let Some(pid) =
            text.split_whitespace().next().and_then(|pid| Pid::from_raw(pid.parse().unwrap()))
        {
            return pid;
        }
        assert!(start.elapsed() < LIMIT, "no child");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn long_run(net: u8) -> (Child, Pid) {
    let parent = urxe(&format!("--sizes 64 -n 100000000 -d {}", address(net, 1))).spawn().unwrap();
    let child = child_of(&parent);
    (parent, child)
}

/// Returns whether the process has ended; a zombie counts as ended.
fn is_gone(pid: Pid) -> bool {
    let stat =
        std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    test_kill_process(pid).is_err() || stat.contains(") Z ")
}

#[test]
fn the_peer_process_that_is_killed_ends_the_run() {
    let (parent, child) = long_run(35);
    std::thread::sleep(Duration::from_millis(200));
    kill_process(child, Signal::KILL).unwrap();
    let stderr = parent.finish().fails(1);
    assert!(stderr.contains("the peer process ended early (signal: 9"), "{stderr}");
}

#[test]
fn the_peer_process_ends_with_its_parent() {
    for (signal, net) in [(Signal::INT, 36), (Signal::TERM, 37), (Signal::KILL, 38)] {
        let (parent, child) = long_run(net);
        std::thread::sleep(Duration::from_millis(200));
        kill_process(Pid::from_child(&parent), signal).unwrap();
        assert_ne!(parent.finish().code, Some(0));
        let start = Instant::now();
        while !is_gone(child) {
            assert!(
                start.elapsed() < Duration::from_secs(5),
                "{signal:?}: {child:?} is left behind"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn a_peer_process_without_a_parent_ends() {
    assert_eq!(run("--as-peer-process").ok(), "");
}

#[test]
fn captures_and_faults_of_the_environment_are_used() {
    let folder = tempfile::tempdir().unwrap();
    let words = |host| format!("--quick -d {}", address(40, host));
    let mut command = urxe(&words(1));
    command.env("URXE_CAPTURE", folder.path().join("%p.pcapng")).env("URXE_CAPTURE_HEADERS", "on");
    command.env("URXE_FAULTS", "duplicate=100%").env("URXE_LOG", "warn");
    let run = (&mut command).finish();
    assert!(run.stderr.contains("received packets are impaired: duplicate=100%"), "{run:?}");
    run.ok();
    let captures: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().collect();
    assert_eq!(captures.len(), 2, "one of each end");
    for capture in captures {
        let bytes = std::fs::read(capture.path()).unwrap();
        assert!(bytes.len() > 1000 && bytes.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]));
    }
    for (variable, value, expected) in [
        ("URXE_FAULTS", "los=1%", "URXE_FAULTS: "),
        ("URXE_CAPTURE_HEADERS", "yes", "URXE_CAPTURE_HEADERS: the allowed values are on and off"),
        ("URXE_SPIN", "101", "URXE_SPIN: \"101\" is no share: give a whole number of percent"),
    ] {
        let text = urxe(&words(2)).env(variable, value).finish().fails(1);
        assert!(text.contains(expected), "{text}");
    }
}
