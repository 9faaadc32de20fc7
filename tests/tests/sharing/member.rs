//! A process that runs `urxe-member`, and its commands.

use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use urxe_tests::process::KillOnDrop;

pub const TIMEOUT: Duration = Duration::from_secs(60);

/// A process that runs `urxe-member`.
pub struct Member {
    pub child: KillOnDrop,
    commands: ChildStdin,
    answers: Receiver<String>,
    pub slot: u8,
}

impl Member {
    pub fn start(address: IpAddr) -> Self {
        Self::opened(Command::new(env!("CARGO_BIN_EXE_urxe-member")), address)
    }

    /// As [`start`](Self::start), with rings to other members that have them.
    pub fn start_in_memory(address: IpAddr) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_urxe-member"));
        command.env("URXE_SHM", "on");
        Self::opened(command, address)
    }

    /// Runs a command that ends with the program, and waits until it has the address.
    pub fn opened(command: Command, address: IpAddr) -> Self {
        let mut member = Self::run(command, address);
        member.slot = member.read_reply("slot").parse().unwrap();
        member
    }

    pub fn spawn(address: IpAddr) -> Self {
        Self::run(Command::new(env!("CARGO_BIN_EXE_urxe-member")), address)
    }

    pub fn run(mut command: Command, address: IpAddr) -> Self {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut child = KillOnDrop(child);
        let (commands, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut member = Self { child, commands, answers, slot: u8::MAX };
        member.send(&format!("open {address}"));
        member
    }

    pub fn send(&mut self, line: &str) {
        writeln!(self.commands, "{line}").unwrap();
    }

    /// Reads the next reply, which must begin with `word`. Returns the rest.
    pub fn read_reply(&self, word: &str) -> String {
        let line = self.answers.recv_timeout(TIMEOUT).expect("the member does not answer");
        let rest = line.strip_prefix(word).unwrap_or_else(|| panic!("{line:?} instead of {word}"));
        rest.trim_start().to_owned()
    }

    pub fn request(&mut self, line: &str, word: &str) -> String {
        self.send(line);
        self.read_reply(word)
    }

    /// Returns the message counts of these pairs from a reply to `status`. Other pairs may have
    /// failed.
    pub fn message_counts(&self, names: &[u64]) -> Vec<(u64, u64)> {
        let status = self.read_reply("status");
        let pairs = status.split_ascii_whitespace().filter_map(|word| word.split_once(':'));
        let pairs = pairs.map(|(name, messages)| (name.parse().unwrap(), messages));
        let message_counts = pairs.filter(|(name, _)| names.contains(name));
        let count = |text: &str| text.parse().unwrap_or_else(|_| panic!("a pair failed: {status}"));
        message_counts.map(|(name, messages)| (name, count(messages))).collect()
    }

    pub fn counter(&mut self, name: &str) -> u64 {
        let counters = self.request("counters", "counters");
        let of = |word: &str| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok();
        counters.split_ascii_whitespace().find_map(of).unwrap_or(0)
    }
}
