//! Events of programs when the interface of their device goes down and up and its addresses change,
//! and the port and GID table at that time. The programs are Debian's `ibv_asyncwatch` and
//! `tests/programs/port_events.c`, which queries both at each event.
//!
//! A kernel raises the same events (`kernels::events` of the kernel peers) with two differences. It
//! raises no client reregistration when the GID table changes, and it reports addresses that
//! disappear with their interface before the port.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use urxe_tests::process::KillOnDrop;

use crate::install::compile;
use crate::veth::{GID_BY_MAC, Veth};

const TIMEOUT: Duration = Duration::from_secs(30);

/// A program that prints a line for each event.
struct Watch {
    program: KillOnDrop,
    lines: Receiver<String>,
}

impl Watch {
    fn start(mut command: Command) -> Self {
        let program = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut program = KillOnDrop(program);
        let (out, (sender, lines)) = (program.stdout.take().unwrap(), channel());
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                // The test may have ended.
                let _ = sender.send(line);
            }
        });
        Self { program, lines }
    }

    #[track_caller]
    fn line(&mut self) -> String {
        match self.lines.recv_timeout(TIMEOUT) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("nothing was lines within {TIMEOUT:?}"),
            Err(RecvTimeoutError::Disconnected) => {
                let mut text = String::new();
                self.program.stderr.take().unwrap().read_to_string(&mut text).unwrap();
                panic!("the program ended: {text}");
            }
        }
    }

    #[track_caller]
    fn expect_lines(&mut self, lines: &[String]) {
        for line in lines {
            assert_eq!(self.line(), *line);
        }
    }

    /// Checks that no further event is printed, so each event is printed once.
    #[track_caller]
    fn expect_no_more(&self) {
        let more = self.lines.recv_timeout(Duration::from_millis(500));
        assert_eq!(more, Err(RecvTimeoutError::Timeout));
    }
}

#[test]
fn ibv_asyncwatch_reports_events_of_port_and_gid_table() {
    let veth = Veth::with(&["10.99.0.1/24"]);
    let mut watch = Watch::start(veth.run("--link rxe0=here -- ibv_asyncwatch"));
    let first = watch.line();
    assert!(first.starts_with("rxe0: async event FD "), "{first}");
    let line = |event: &str| format!("  event_type IBV_EVENT_{event}, port 1");
    let (down, up) = ([line("PORT_ERR (10)")], [line("PORT_ACTIVE (9)")]);
    let gids = [line("GID_CHANGE (18)"), line("CLIENT_REREGISTER (17)")];
    let down_and_gids = [&down[..], &gids].concat();
    let changes: [(&str, &[String]); 10] = [
        ("link set there down", &down),
        ("link set there up", &up),
        ("link set here down", &down),
        ("link set here up", &up),
        ("address add 10.99.0.2/24 dev here", &gids),
        ("address del 10.99.0.2/24 dev here", &gids),
        ("address add fd99::1/64 dev here nodad", &gids),
        ("address del fd99::1/64 dev here", &gids),
        ("address add fd99::1/64 dev here nodad", &gids),
        // An interface that goes down loses its IPv6 addresses, but not its IPv4 addresses.
        ("link set here down", &down_and_gids),
    ];
    for (change, expected) in changes {
        veth.ip(change);
        println!("{change}");
        watch.expect_lines(expected);
    }
    watch.expect_no_more();
}

#[test]
fn port_and_gids_are_updated_before_their_event() {
    let veth = Veth::with(&["10.99.0.1/24"]);
    let mut watch = Watch::start(
        veth.run(&format!("--link rxe0=here -- {}", compile("port_events").display())),
    );
    // Physical states: 5 link up, 2 polling, 3 disabled (IBTA vol. 1, 14.2.5.6).
    let (up, polling, disabled) =
        ("active, physical state 5", "down, physical state 2", "down, physical state 3");
    let always = format!("0={GID_BY_MAC} 1=::ffff:10.99.0.1");
    let line =
        |event: &str, port: &str, gids: &str| format!("{event}: {port}, GIDs {always}{gids}");
    let changed =
        |gids| ["GID table change", "client reregistration"].map(|event| line(event, up, gids));
    watch.expect_lines(&[line("opened", up, "")]);
    let port = |event, state| vec![line(event, state, "")];
    let changes = [
        ("link set there down", port("port error", polling)),
        ("link set there up", port("port active", up)),
        ("link set here down", port("port error", disabled)),
        ("link set here up", port("port active", up)),
        ("address add 10.99.0.2/24 dev here", changed(" 2=::ffff:10.99.0.2").into()),
        ("address add fd99::1/64 dev here nodad", changed(" 2=::ffff:10.99.0.2 3=fd99::1").into()),
        // The other entries keep their indices, and an address that returns gets its former index.
        ("address del 10.99.0.2/24 dev here", changed(" 3=fd99::1").into()),
        ("address add 10.99.0.2/24 dev here", changed(" 2=::ffff:10.99.0.2 3=fd99::1").into()),
        ("address del fd99::1/64 dev here", changed(" 2=::ffff:10.99.0.2").into()),
    ];
    for (change, expected) in changes {
        veth.ip(change);
        println!("{change}");
        watch.expect_lines(&expected);
    }
    watch.expect_no_more();
}
