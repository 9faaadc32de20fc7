//! Pairs of Debian's programs: a server, and a client that connects to the server's address.

use std::process::Output;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use urxe_tests::programs::{Pair, wait_listening};

use crate::connections::piped;
use crate::install::{install, text_of};

/// Options of server and client: both use the default device, without any configuration.
pub const ONE: [&str; 2] = ["", ""];
/// Options of server and client, each with an address of its own.
pub const TWO: [&str; 2] = ["--link rxe0=127.78.0.1", "--link rxe0=127.78.0.2"];

/// The outputs of both ends.
pub struct Outputs {
    pub server: String,
    pub client: String,
    /// The server's standard error.
    pub server_log: String,
    pub client_log: String,
}

/// Waits until no other pair runs, because programs that poll occupy a processor each.
pub fn exclusive() -> MutexGuard<'static, ()> {
    static EXCLUSIVE: Mutex<()> = Mutex::new(());
    EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The time limit of a pair, in seconds: far more than needed, to end pairs that hang.
const TIMEOUT: &str = "120";

/// Runs a pair. Both ends must succeed and print the expected output.
pub fn run_pair(pair: &Pair, links: [&str; 2]) -> Result<(), String> {
    // Programs that were compiled here are in the installation; Debian's programs are in PATH.
    let own = install().path("bin").join(pair.program);
    let program = if own.exists() { own.display().to_string() } else { pair.program.to_owned() };
    let both = run(links, &format!("{program} {}", pair.options))?;
    pair.check(&both.server, &both.client)
}

/// Runs the ping-pong `words` as server and as client, each on an address of its own, both with
/// these options of `urxe run`. Both must succeed.
///
/// With packet loss, the last acknowledgement may get lost: its sender has finished and ended, so
/// no process repeats it, over urxe or a kernel. If one end was done, the pair runs again. About
/// one of fifty pairs needs that.
#[track_caller]
pub fn run_on_two_addresses(options: &str, words: &str) -> Outputs {
    const TRIES: usize = 4;
    let is_lossy = options.contains("--fault");
    let options = TWO.map(|link| format!("{link} {options}"));
    let is_last_lost = |error: &str| {
        is_lossy
            && error.contains("transport retry counter exceeded")
            && error.contains(" iters in ")
    };
    let mut tries = 1..=TRIES;
    loop {
        match run(options.each_ref().map(String::as_str), words) {
            Ok(both) => return both,
            Err(error) if is_last_lost(&error) && tries.next().is_some_and(|nr| nr < TRIES) => {
                eprintln!("played again: {error}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Runs `words` as server and, with the server's name, as client, each with its options of `urxe
/// run`. Returns the outputs if both exit with status 0. `-p` is every program's option for the TCP
/// port.
pub fn run(options: [&str; 2], words: &str) -> Result<Outputs, String> {
    static PORT: AtomicU16 = AtomicU16::new(20_000);
    let _exclusive = exclusive();
    let port = PORT.fetch_add(1, Ordering::Relaxed);
    let command = |options: &str, server: &str| {
        piped(install().run(&format!("{options} -- timeout {TIMEOUT} {words} -p {port} {server}")))
    };
    let mut server = command(options[0], "").spawn().unwrap();
    if let Err(error) = wait_listening(port, || server.try_wait().unwrap().is_some()) {
        server.kill().unwrap();
        return Err(format!("{words}\n{error}: {}", text_of(&server.wait_with_output().unwrap())));
    }
    let client = command(options[1], "127.0.0.1").output().unwrap();
    let server = server.wait_with_output().unwrap();
    let fine = |output: &Output| output.status.success();
    if !fine(&server) || !fine(&client) {
        return Err(format!("{words}\nserver: {}\nclient: {}", text_of(&server), text_of(&client)));
    }
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Outputs {
        server: text(server.stdout),
        client: text(client.stdout),
        server_log: text(server.stderr),
        client_log: text(client.stderr),
    })
}
