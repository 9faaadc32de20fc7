//! A process that runs `urxe-soaker`, its commands and its figures.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use urxe_tests::process::KillOnDrop;

/// A fault, as text.
pub type Result<T> = std::result::Result<T, String>;

/// The time limit for a reply.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The files that the processes use.
pub struct Files {
    /// A copy of `urxe-soaker`, so that a build during the campaign does not change it.
    pub program: PathBuf,
    /// The library whose wall clock jumps.
    pub clock: PathBuf,
    /// A folder for the mount of a small file system.
    pub disk: PathBuf,
}

impl Files {
    /// Copies the program, compiles the library and creates the folder.
    pub fn new(place: &Path) -> Result<Self> {
        let [program, clock, disk] =
            ["urxe-soaker", "clock_jumps.so", "disk"].map(|name| place.join(name));
        let failed = |error: std::io::Error| format!("cannot prepare {}: {error}", place.display());
        fs::copy(env!("CARGO_BIN_EXE_urxe-soaker"), &program).map_err(failed)?;
        fs::create_dir(&disk).map_err(failed)?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/clock_jumps.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-o"]);
        let status = compiler.arg(&clock).arg(source).status().map_err(failed)?;
        if status.success() { Ok(Self { program, clock, disk }) } else { Err(status.to_string()) }
    }
}

/// A process that runs `urxe-soaker`. It is killed when this value is dropped.
pub struct Soaker {
    pub name: &'static str,
    child: KillOnDrop,
    commands: ChildStdin,
    replies: Receiver<String>,
}

/// The figures of a process.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub rss_kib: u64,
    /// The part of the resident memory that belongs to no file.
    pub heap_kib: u64,
    pub descriptors: u64,
    pub threads: u64,
    pub cpu_ms: u64,
    /// The wall clock of the process, in seconds since 1970.
    pub wall: u64,
    /// Messages over connections by `rdma_cm`.
    pub served: u64,
    pub lanes: BTreeMap<u64, Lane>,
}

/// The figures of a lane's end.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    pub messages: u64,
    pub bytes: u64,
    pub lost: u64,
    /// Milliseconds since the last message of either end.
    pub idle_ms: u64,
    /// The reason why the lane ended.
    pub failed: Option<String>,
}

impl Soaker {
    /// Starts a process on an interface. `share` is its share of a processor, in thousandths. If
    /// `is_full`, a file system of 128 KiB is mounted for this process alone, and a capture is
    /// written to it.
    pub fn start(
        name: &'static str,
        files: &Files,
        interface: &str,
        share: u64,
        is_full: bool,
    ) -> Result<Self> {
        let Files { program, clock, disk: folder } = files;
        let (mut command, mut open) = (Command::new(program), format!("open {interface} {share}"));
        if is_full {
            let mount = "mount -t tmpfs -o size=128k none \"$0\" && exec \"$1\"";
            command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", mount]).arg(folder).arg(program);
            open += &format!(" {}", folder.join("capture.pcapng").display());
        }
        command.env("LD_PRELOAD", clock).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().map_err(|error| format!("cannot start {name}: {error}"))?;
        let mut child = KillOnDrop(child);
        let pipes = (child.stdin.take(), child.stdout.take());
        let (Some(commands), Some(output)) = pipes else { return Err("no pipes".into()) };
        let (sender, replies) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::io::Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut soaker = Self { name, child, commands, replies };
        soaker.request(&open, "ok")?;
        Ok(soaker)
    }

    /// Sends a command, and returns the reply without its first word.
    pub fn request(&mut self, line: &str, word: &str) -> Result<String> {
        let name = self.name;
        // A process that found wrong data has written its reason before it ended.
        let sent = writeln!(self.commands, "{line}");
        let reply = self.replies.recv_timeout(TIMEOUT).map_err(|error| {
            let status = self.child.try_wait();
            format!("{name} does not reply to {line:?}: {error}, {sent:?}, {status:?}")
        })?;
        match reply.strip_prefix(word) {
            Some(rest) => Ok(rest.trim_start().to_owned()),
            None => Err(format!("{name} replies {reply:?} to {line:?}")),
        }
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).map_err(|error| format!("cannot signal {}: {error}", self.name))
    }

    pub fn figures(&mut self) -> Result<Figures> {
        Figures::parse(&self.request("status", "status")?)
            .ok_or_else(|| format!("{} replies no figures", self.name))
    }

    /// Returns the counters that are not zero.
    pub fn counters(&mut self) -> Result<BTreeMap<String, u64>> {
        let reply = self.request("counters", "counters")?;
        let counter = |word: &str| {
            let (name, value) = word.split_once('=')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        Ok(reply.split(' ').filter_map(counter).collect())
    }
}

impl Figures {
    fn parse(reply: &str) -> Option<Self> {
        let mut figures = Self::default();
        for word in reply.split(' ') {
            if let Some((key, value)) = word.split_once('=') {
                let place = match key {
                    "rss" => &mut figures.rss_kib,
                    "heap" => &mut figures.heap_kib,
                    "descriptors" => &mut figures.descriptors,
                    "threads" => &mut figures.threads,
                    "cpu_ms" => &mut figures.cpu_ms,
                    "wall" => &mut figures.wall,
                    "served" => &mut figures.served,
                    _ => return None,
                };
                *place = value.parse().ok()?;
                continue;
            }
            let fields: Vec<&str> = word.split(':').collect();
            let [name, messages, bytes, lost, idle_ms, state] = fields[..] else { return None };
            let lane = Lane {
                messages: messages.parse().ok()?,
                bytes: bytes.parse().ok()?,
                lost: lost.parse().ok()?,
                idle_ms: idle_ms.parse().ok()?,
                failed: (state != "up").then(|| state.to_owned()),
            };
            figures.lanes.insert(name.parse().ok()?, lane);
        }
        Some(figures)
    }
}
