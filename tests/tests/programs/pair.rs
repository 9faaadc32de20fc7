//! Two programs of Debian that talk to each other: a server, and a client that is told where it is.

use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::install::{install, said};

/// Both ends' outputs.
pub struct Pair {
    pub server: String,
    pub client: String,
    /// What was said on standard error.
    pub server_log: String,
    pub client_log: String,
}

/// One pair at a time: programs that poll take a processor each.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a pair may take. Far more than it needs: it is there to end what hangs.
const PATIENCE: &str = "120";

/// Runs `words` as server and, with the server's name, as client, each on an address of its own. Both must succeed. `port_flag` names the
/// option for the TCP port.
#[track_caller]
pub fn play(words: &str, port_flag: &str) -> Pair {
    play_with("", words, port_flag)
}

/// As [`play`], both ends with these options of `urxe run`.
#[track_caller]
pub fn play_with(options: &str, words: &str, port_flag: &str) -> Pair {
    static PORT: AtomicU16 = AtomicU16::new(20_000);
    let _turn = turn();
    let port = PORT.fetch_add(1, Ordering::Relaxed);
    let command = |address: &str, server: &str| {
        let link = format!("--link rxe0={address}");
        let mut command = install()
            .run(&format!("{link} {options} -- timeout {PATIENCE} {words} {port_flag} {port} {server}"));
        command.env("URXE_LOG", "warn").stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let server = command("127.78.0.1", "").spawn().unwrap();
    wait_for(port);
    let client = command("127.78.0.2", "127.0.0.1").output().unwrap();
    let server = server.wait_with_output().unwrap();
    let fine = |output: &Output| output.status.success();
    assert!(fine(&server) && fine(&client), "{words}\nserver: {}\nclient: {}", said(&server), said(&client));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Pair {
        server: text(server.stdout),
        client: text(client.stdout),
        server_log: text(server.stderr),
        client_log: text(client.stderr),
    }
}

/// Waits until somebody listens, without connecting: a connection would be taken for the client.
fn wait_for(port: u16) {
    let wanted = format!(":{port:04X}");
    for _ in 0..2_000 {
        let listening = |table: &str| {
            let text = std::fs::read_to_string(table).unwrap_or_default();
            // Fields: number, local address, remote address, state; 0A is LISTEN.
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|fields| {
                fields.get(1).is_some_and(|local| local.ends_with(&wanted)) && fields.get(3) == Some(&"0A")
            })
        };
        if listening("/proc/net/tcp") || listening("/proc/net/tcp6") {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("nobody listens on TCP port {port}");
}
