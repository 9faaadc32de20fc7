//! The end that executes commands: a process that another one has started, or a listening host.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Write};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use rustix::process::{Signal, set_parent_process_death_signal};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::peer::{Reply, bounded_lines, write_line};
use crate::output;

/// The most bytes of a command. The longest has the numbers of all queue pairs.
const MAX_COMMAND: u64 = 16 << 20;

/// The action at the end of the commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtEnd {
    /// Exit this process, even if another thread is waiting.
    Exit,
    /// The end of the run.
    Return,
}

/// An error that may report wrong data.
pub trait Refusal: Error {
    /// Returns a description of the wrong data, if the error reports any.
    fn wrong_data(&self) -> Option<String>;
}

/// Returns the commands of the parent process, until the parent closes standard input.
pub fn commands_of_parent() -> impl BufRead + Send + 'static {
    // The kernel ends this process if the parent is killed. If the kernel refuses that, the end of
    // standard input has the same effect.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    BufReader::new(io::stdin())
}

/// Reads commands in a thread. The thread calls `on_read` with each command as soon as the command
/// is read, and with `None` at the end.
pub fn read_commands<O: DeserializeOwned + Send + 'static>(
    from: impl BufRead + Send + 'static,
    at_end: AtEnd,
    on_read: impl Fn(Option<&O>) + Send + 'static,
) -> Receiver<O> {
    let (sender, commands) = mpsc::channel();
    thread::spawn(move || {
        for line in bounded_lines(from, MAX_COMMAND) {
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

/// Sends the reply to a command.
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
