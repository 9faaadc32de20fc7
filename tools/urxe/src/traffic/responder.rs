//! The end that obeys: a process that another one has started, or the host that another one has
//! connected to.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Write};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use rustix::process::{Signal, set_parent_process_death_signal};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::peer::{Reply, write_line};
use crate::output;

/// What the end of the orders means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtEnd {
    /// The end of this process, whatever it is waiting for.
    Exit,
    /// The end of the run.
    Return,
}

/// An error that may say that data was wrong.
pub trait Refusal: Error {
    /// What was wrong with the data.
    fn wrong_data(&self) -> Option<String>;
}

/// Returns the orders of the parent process, until it closes standard input.
pub fn commands_of_parent() -> impl BufRead + Send + 'static {
    // Not even a parent that is killed leaves this process behind. Where the system refuses it,
    // standard input tells.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    BufReader::new(io::stdin())
}

/// Reads orders in a thread of its own. `on_read` is called with each as soon as it is there, and
/// without one at their end.
pub fn read_commands<O: DeserializeOwned + Send + 'static>(
    from: impl BufRead + Send + 'static,
    at_end: AtEnd,
    on_read: impl Fn(Option<&O>) + Send + 'static,
) -> Receiver<O> {
    let (sender, commands) = mpsc::channel();
    thread::spawn(move || {
        for line in from.lines().map_while(Result::ok) {
            let Ok(command) = serde_json::from_str(&line) else { break };
            on_read(Some(&command));
            if sender.send(command).is_err() {
                return;
            }
        }
        if at_end == AtEnd::Exit {
            std::process::exit(0);
        }
        on_read(None);
    });
    commands
}

/// Answers an order.
///
/// # Errors
/// The other end does not read.
pub fn reply<E: Refusal>(to: &mut dyn Write, result: Result<impl Serialize, E>) -> io::Result<()> {
    let reply = result.map_or_else(
        |error| match error.wrong_data() {
            Some(wrong) => Reply::Wrong(wrong),
            None => Reply::Failed(output::describe(&error)),
        },
        Reply::Done,
    );
    write_line(to, &reply)
}
