//! The programs of `rdmacm-utils`, which connect by addresses and ports: two processes on the one device that there is without any
//! configuration. And perftest with `-R`.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::install::{install, said};
use crate::pair::turn;

/// How long a program may take. Far more than it needs: it is there to end what hangs.
const PATIENCE: &str = "60";
/// How often a sender tries whether a receiver has joined.
const TRIES: u32 = 20;

/// One address that both processes share.
const ADDRESS: &str = "127.79.0.1";

fn command(words: &str) -> Command {
    let mut command = install().run(&format!("--link rxe0={ADDRESS} -- timeout {PATIENCE} {words}"));
    command.env("URXE_LOG", "warn").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Milliseconds that a server has before its client comes: more with each try, since nothing outside tells when it listens. perftest
/// makes two connections, and its client comes to the second when it likes.
const HEAD_STARTS: [u64; 4] = [300, 600, 1_200, 3_000];

/// Both programs; both must succeed. Their outputs.
#[track_caller]
fn play(server: &str, client: &str) -> [String; 2] {
    let _turn = turn();
    let mut last = String::new();
    for head_start in HEAD_STARTS {
        let running = command(server).spawn().unwrap();
        thread::sleep(Duration::from_millis(head_start));
        let client_output = command(client).output().unwrap();
        let client_said = said(&client_output);
        if is_early(&client_said) {
            last = format!("{client}\n{client_said}\n{server}\n{}", end(running));
            continue;
        }
        let output = running.wait_with_output().unwrap();
        let server_said = said(&output);
        assert!(
            output.status.success() && client_output.status.success(),
            "{server}\n{server_said}\n{client}\n{client_said}"
        );
        return [server_said, client_said];
    }
    panic!("nobody listens\n{last}");
}

/// Whether a client says that nobody listens yet.
fn is_early(client: &str) -> bool {
    let words = ["error 8", "error: 8", "blka 8", "Connection refused", "UNREACHABLE, error: 1"];
    words.iter().any(|early| client.contains(early))
}

/// Runs a client until a server that goes on for ever listens.
#[track_caller]
fn client(words: &str) -> String {
    for head_start in HEAD_STARTS {
        let output = command(words).output().unwrap();
        let text = said(&output);
        if !is_early(&text) {
            assert!(output.status.success(), "{words}\n{text}");
            return text;
        }
        thread::sleep(Duration::from_millis(head_start));
    }
    panic!("{words}: nobody listens");
}

/// Ends a server; its output.
fn end(server: Child) -> String {
    // `timeout` hands the signal on to its program.
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    said(&server.wait_with_output().unwrap())
}

/// A program that is server without `-s` and client with it.
#[track_caller]
fn play_same(program: &str, options: &str) -> [String; 2] {
    play(&format!("{program} {options}"), &format!("{program} {options} -s {ADDRESS}"))
}

#[track_caller]
fn rping(options: &str, server: &str, client: &str) -> [String; 2] {
    play(
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
    // Queue pairs of the program's own, moved by rdma_init_qp_attr and rdma_establish.
    rping("-V -C 3 -q", "", "");
    let [_, debug] = rping("-C 1", "", "-d");
    assert!(debug.contains("RDMA_CM_EVENT_ESTABLISHED") || debug.contains("ESTABLISHED"), "{debug}");
}

/// One after the other: rping itself loses one of two requests that come at once.
#[test]
fn rping_with_a_server_for_many() {
    let _turn = turn();
    let server = command(&format!("rping -s -P -a {ADDRESS}")).spawn().unwrap();
    for _ in 0..4 {
        client(&format!("rping -c -V -a {ADDRESS} -C 5"));
    }
    end(server);
}

#[test]
fn ucmatose_with_many_connections_and_its_own_events() {
    for end in play_same("ucmatose", "-c 20 -C 5 -S 3000") {
        assert!(end.contains("test complete") && end.contains("return status 0"), "{end}");
    }
}

#[test]
fn udaddy_finds_queue_pairs_for_datagrams() {
    for end in play_same("udaddy", "-c 5 -C 5") {
        assert!(end.contains("data transfers complete") && end.contains("return status 0"), "{end}");
    }
}

#[test]
fn synchronous_identifiers_and_endpoints() {
    play("rdma_server", &format!("rdma_client -s {ADDRESS}"));
    for kind in ["r", "x"] {
        play(&format!("rdma_xserver -c {kind}"), &format!("rdma_xclient -c {kind} -s {ADDRESS}"));
    }
}

#[test]
fn cmtime_connects_and_disconnects_a_hundred_at_once() {
    let _turn = turn();
    let server = command("cmtime").spawn().unwrap();
    let table = client(&format!("cmtime -s {ADDRESS} -c 100"));
    assert!(table.contains("disconnect") && !table.contains("event:"), "{table}");
    end(server);
}

#[test]
fn mckey_joins_a_group() {
    let _turn = turn();
    let words = format!("mckey -m 239.79.0.1 -b {ADDRESS} -C 4");
    let mut receiver = command(&words).spawn().unwrap();
    // Who sends too early is heard by nobody: the receiver waits on, and the sender tries again.
    for _ in 0..TRIES {
        let output = command(&format!("{words} -s")).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        if receiver.try_wait().unwrap().is_some() {
            break;
        }
    }
    let output = receiver.wait_with_output().unwrap();
    let text = said(&output);
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
        let [_, client] = play(&words, &format!("{words} {ADDRESS}"));
        assert!(client.contains("#iterations"), "{client}");
    }
}
