//! `urxe rping`, `urxe listen` and `urxe connect`: two processes on one device.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Finish as _, Run, Running};

/// Returns the command, on one address a test.
fn urxe(net: u8, words: &str) -> Command {
    let mut command = crate::common::urxe(words);
    command.env("URXE_DEVICES", format!("rxe0=127.83.{net}.1"));
    command
}

/// A server, and the port that it reported.
struct Server {
    child: Running,
    stderr: BufReader<ChildStderr>,
    port: String,
}

impl Server {
    fn start(command: &mut Command) -> Self {
        let mut child = Running::start(command);
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let port = line.trim().rsplit_once("listens on 0.0.0.0:").map(|(_, port)| port.to_owned());
        Self { child, stderr, port: port.unwrap_or_else(|| panic!("it says: {line}")) }
    }

    /// Returns the output of the server, which must end by itself with success.
    #[track_caller]
    fn end(mut self) -> String {
        let run = self.child.finish();
        let mut stderr = String::new();
        self.stderr.read_to_string(&mut stderr).unwrap();
        Run { stderr, ..run }.ok()
    }
}

#[test]
fn rping_pings() {
    let server = Server::start(&mut urxe(1, "rping -s -p 0 -d -v"));
    let words = format!("rping -c -a 127.83.1.1 -p {} -C 3 -S 40 -v -V", server.port);
    let said = urxe(1, &words).finish().ok();
    let expected = "ping data: rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ\n\
                    ping data: rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\n\
                    ping data: rdma-ping-2: CDEFGHIJKLMNOPQRSTUVWXYZ[\\\n";
    assert_eq!(said, expected);
    assert_eq!(server.end(), expected.replace("ping data", "server ping data"));
}

#[test]
fn a_server_for_many_serves_many_at_once() {
    let server = Server::start(&mut urxe(2, "rping -s -P -p 0 -d"));
    let words = format!("rping -c -a 127.83.2.1 -p {} -C 20 -S 65535 -V", server.port);
    let clients: Vec<Child> = (0..4).map(|_| urxe(2, &words).spawn().unwrap()).collect();
    for client in clients {
        client.finish().ok();
    }
}

#[test]
fn lines_of_one_end_are_printed_by_the_other() {
    let mut server = Server::start(urxe(3, "listen 0").stdin(Stdio::piped()));
    server.child.stdin.take().unwrap().write_all(b"from the listener\n").unwrap();
    let mut client = urxe(3, &format!("connect 127.83.3.1 {}", server.port))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    // More than one message, and more than the limit of outstanding messages.
    let text: String = (0..300_000).map(|line| format!("line {line}\n")).collect();
    let mut input = client.stdin.take().unwrap();
    let all = text.clone();
    let writing = std::thread::spawn(move || input.write_all(all.as_bytes()).unwrap());
    let reading = std::thread::spawn(move || server.end());
    assert_eq!(client.finish().ok(), "from the listener\n");
    writing.join().unwrap();
    assert!(reading.join().unwrap() == text, "other lines came than were sent");
}

#[test]
fn a_listener_for_many_serves_the_next_client_after_one_was_killed() {
    let mut server = Server::start(urxe(7, "listen -k 0").stdin(Stdio::null()));
    for text in ["from the first\n", "from the second\n"] {
        let mut client = urxe(7, &format!("connect 127.83.7.1 {}", server.port))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        client.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
        let mut received = vec![0; text.len()];
        server.child.stdout.as_mut().unwrap().read_exact(&mut received).unwrap();
        assert_eq!(String::from_utf8_lossy(&received), text);
        client.kill().unwrap();
        client.wait().unwrap();
    }
}

#[test]
fn a_transfer_is_compared_and_measured() {
    let server = Server::start(&mut urxe(4, "listen 0"));
    let words = format!("connect 127.83.4.1 {} --verify 5000001", server.port);
    let said = urxe(4, &words).finish().ok();
    assert!(
        said.starts_with("sent 5000001 bytes in ") && said.ends_with("all as sent\n"),
        "{said}"
    );
    let said = server.end();
    assert!(
        said.contains(": received 5000001 bytes in ") && said.ends_with("all as sent\n"),
        "{said}"
    );
}

#[test]
fn errors_have_a_remedy() {
    for words in ["connect 127.83.5.1 9", "rping -c -a 127.83.5.1 -p 9"] {
        assert_eq!(
            urxe(5, words).finish().fails(1),
            "urxe: 127.83.5.1:9 refused the connection: invalid service id; \
             no program listens on port 9 there\n"
        );
    }
    for words in
        ["rping", "rping -s -c -a 127.83.5.1", "rping -c", "rping -s -S 25", "connect 127.83.5.1"]
    {
        urxe(5, words).finish().fails(2);
    }
    let server = Server::start(&mut urxe(5, "listen 0"));
    let said = urxe(5, &format!("listen {}", server.port)).finish().fails(1);
    assert!(said.contains("is in use") && said.contains("choose another, or 0 for any"), "{said}");
    urxe(5, &format!("connect 127.83.5.1 {}", server.port)).finish().ok();
    server.end();
}

#[test]
fn an_icmp_error_is_named_at_once_and_the_wait_goes_on() {
    let reason = "no process listens on UDP port 4791 of 127.83.7.9 (ICMP: port unreachable)\n";
    let start = Instant::now();
    let said = urxe(7, "connect 127.83.7.9 7471 -t 1").finish().fails(1);
    assert!(start.elapsed() >= Duration::from_secs(1), "an ICMP message ended the wait");
    let note = format!("urxe: note: 127.83.7.9:7471 has not answered yet: {reason}");
    let error = "urxe: 127.83.7.9:7471 has not answered within 1s; the likely reason: ";
    assert!(said.contains(&note) && said.ends_with(&format!("{error}{reason}")), "{said}");

    let mut command = urxe(8, "connect 127.83.7.9 7471 -t 0");
    let said = command.env("URXE_ICMP_ERRORS", "off").finish().fails(1);
    assert_eq!(said, "urxe: 127.83.7.9:7471 has not answered within 0ns\n");
}

/// Returns the processes of the only device in `urxe link show --connections --json`, by slot.
fn shown(net: u8) -> Vec<serde_json::Value> {
    let links = urxe(net, "link show --connections --json").finish().json();
    links[0]["processes"].as_array().unwrap().clone()
}

/// Waits until `is_so` holds for the processes, and returns them.
#[track_caller]
fn shown_once(net: u8, is_so: impl Fn(&[serde_json::Value]) -> bool) -> Vec<serde_json::Value> {
    for _ in 0..500 {
        let processes = shown(net);
        if is_so(&processes) {
            return processes;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("it never came to that: {:#?}", shown(net))
}

#[test]
fn connections_of_all_processes_are_shown() {
    let server = Server::start(urxe(6, "listen 0").stdin(Stdio::piped()));
    let mut client = urxe(6, &format!("connect 127.83.6.1 {}", server.port))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let is_up = |process: &serde_json::Value, place: usize| {
        process["connections"]["ids"][place]["cm-state"] == "ESTABLISHED"
    };
    let processes = shown_once(6, |all| all.len() == 2 && is_up(&all[0], 1) && is_up(&all[1], 0));
    let [listening, accepted] = [0, 1].map(|place| &processes[0]["connections"]["ids"][place]);
    let connected = &processes[1]["connections"]["ids"][0];
    assert_eq!(
        (&processes[0]["pid"], &processes[0]["name"]),
        (&server.child.id().into(), &"urxe".into())
    );
    assert_eq!(processes[1]["pid"], client.id());
    assert_eq!(
        (&listening["state"], &listening["cm-state"]),
        (&"LISTEN".into(), &serde_json::Value::Null)
    );
    assert_eq!(listening["src-addr"], format!("0.0.0.0:{}", server.port));
    for id in [accepted, connected] {
        assert_eq!(
            (&id["state"], &id["ps"], &id["qp-type"]),
            (&"CONNECT".into(), &"TCP".into(), &"RC".into())
        );
    }
    assert_eq!(accepted["src-addr"], format!("127.83.6.1:{}", server.port));
    assert_eq!(accepted["src-addr"], connected["dst-addr"]);
    assert_eq!(accepted["dst-addr"], connected["src-addr"]);
    assert_eq!((&accepted["lqpn"], &accepted["rqpn"]), (&connected["rqpn"], &connected["lqpn"]));
    assert_eq!(processes[0]["connections"]["counters"]["cm_rx_msgs/req"], 1);
    assert_eq!(processes[1]["connections"]["counters"]["cm_tx_msgs/rtu"], 1);

    let text = urxe(6, "link show --connections").finish().ok();
    let lqpn = &connected["lqpn"];
    let ends = format!("src-addr {} dst-addr 127.83.6.1:{}", connected["src-addr"], server.port);
    let ends = ends.replace('"', "");
    let line = text
        .lines()
        .find(|line| line.contains(&format!(" lqpn {lqpn} ")))
        .unwrap_or_else(|| panic!("{text}"));
    assert!(line.starts_with("        cm-idn ") && line.ends_with(&ends), "{text}");
    assert!(line.contains(" qp-type RC state CONNECT cm-state ESTABLISHED ps TCP "), "{text}");
    assert!(
        text.contains("\n        communications ESTABLISHED 1\n        counters cm_rx_msgs/"),
        "{text}"
    );

    // A stopped process cannot reply.
    let client_pid = rustix::process::Pid::from_child(&client);
    rustix::process::kill_process(client_pid, rustix::process::Signal::STOP).unwrap();
    let text = urxe(6, "link show --connections").finish().ok();
    assert!(text.ends_with("\n        error: it does not answer; is it stopped?\n"), "{text}");
    rustix::process::kill_process(client_pid, rustix::process::Signal::CONT).unwrap();

    // A killed process disappears from the list, and its peer gets a DREQ.
    client.kill().unwrap();
    client.wait().unwrap();
    assert_eq!(server.child.finish().code, Some(1));
    shown_once(6, |all| all.is_empty());
}
