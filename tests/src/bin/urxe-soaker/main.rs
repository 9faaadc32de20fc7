//! One of the processes of the soak campaign (`tests/tests/soak`). Each line on standard input is a
//! command; the reply is one line on standard output.
//!
//! ```text
//! open <interface> <share> [<file>]    ok        with a capture to the file
//! lane <name> rc|uc|ud|xrc             endpoint <words>
//! connect <name> <timeout> <starts> <words of the peer's endpoint>   ok
//! drop <name>                          ok
//! rush <milliseconds>                  ok        the share is all for so long
//! listen <address:port>                ok
//! visit <own address> <address:port>   ok        connects by rdma_cm and disconnects
//! device <address>                     ok        opens and closes a second device
//! rotate <number>                      ok        creates and destroys objects of each kind
//! fill <file>                          full <errno>     writes until the disk is full
//! status                               status <key>=<value> ... <lane>:<messages>:<bytes>:...
//! counters                             counters <name>=<value> ...
//! spoil                                ok        the next message has a wrong byte
//! end                                  ok
//! ```
//! A lane moves verified messages from `connect` to `drop`. The process keeps the time of its
//! processor below its share, in thousandths. Wrong data ends the process with an error text. The
//! kernel kills the process if its parent dies.

mod content;
mod guests;
mod lane;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::time::{ClockId, clock_gettime};
use urxe::{Access, Completion, CompletionQueue, Device, ProtectionDomain, WaitError};
use urxe_stack::rng::Rng;

use content::WORD;
use guests::{Guests, open_and_close, visit};
use lane::{Lane, Scratch, lane_of};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The longest sleep, after which commands are read.
const SLEEP: Duration = Duration::from_millis(10);
/// The interval over which the time of the processor is compared with the share.
const INTERVAL: Duration = Duration::from_secs(1);

/// The limit of this process's use of the processor.
struct Budget {
    thousandths: u64,
    rush_until: Instant,
    start: Instant,
    used_ns: u64,
}

impl Budget {
    fn new(thousandths: u64) -> Self {
        let now = Instant::now();
        Self { thousandths, rush_until: now, start: now, used_ns: cpu_ns() }
    }

    /// Returns whether the process may use the processor now.
    fn has_left(&mut self, now: Instant) -> bool {
        let used_ns = cpu_ns();
        if now.duration_since(self.start) > INTERVAL {
            (self.start, self.used_ns) = (now, used_ns);
        }
        let allowed_ns = INTERVAL.as_nanos() as u64 / 1000 * self.thousandths;
        now < self.rush_until || used_ns - self.used_ns < allowed_ns
    }
}

/// Returns the time that this process has used the processor, in nanoseconds.
fn cpu_ns() -> u64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}

struct Soaker {
    device: Device,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    lanes: BTreeMap<u64, Lane>,
    guests: Option<Guests>,
    rng: Rng,
    scratch: Scratch,
    budget: Budget,
}

impl Soaker {
    /// Opens the device that the words of the first command name.
    fn open(words: &[&str]) -> Result<Self> {
        let (interface, share, builder) = match words {
            ["open", interface, share] => (interface, share, Device::builder()),
            ["open", interface, share, file] => (interface, share, Device::builder().capture(file)),
            _ => return Err("the first command is open".into()),
        };
        let device = builder.open_interface(interface)?;
        let (pd, cq) = (device.alloc_pd()?, device.create_cq(4096)?);
        let (rng, scratch) = (Rng::new(u64::from(std::process::id())), Scratch::new());
        let (lanes, budget) = (BTreeMap::new(), Budget::new(share.parse()?));
        Ok(Self { device, pd, cq, lanes, guests: None, rng, scratch, budget })
    }

    fn lane(&mut self, name: &str) -> Result<&mut Lane> {
        self.lanes.get_mut(&name.parse()?).ok_or_else(|| format!("no lane {name}").into())
    }

    /// Executes a command, and returns the reply.
    fn command(&mut self, line: &str) -> Result<String> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["lane", name, service] => {
                let name = name.parse()?;
                let lane = Lane::new(name, service, &self.pd, &self.cq, &mut self.scratch)?;
                let reply = format!("endpoint {}", lane.endpoint());
                self.lanes.insert(name, lane);
                return Ok(reply);
            }
            ["connect", name, timeout, starts, ..] => {
                self.lane(name)?.connect(&words[4..], starts.parse()?, timeout.parse()?)?;
            }
            ["drop", name] => drop(self.lanes.remove(&name.parse()?)),
            ["rush", ms] => {
                self.budget.rush_until = Instant::now() + Duration::from_millis(ms.parse()?);
            }
            ["listen", at] => self.guests = Some(Guests::listen(&self.device, &self.pd, at)?),
            ["visit", from, to] => {
                visit(&self.pd, from.parse()?, to.parse()?, self.rng.next_u64())?;
            }
            ["device", at] => open_and_close(at.parse()?, self.rng.next_u64())?,
            ["rotate", number] => self.rotate(number.parse()?)?,
            ["fill", file] => return Ok(format!("full {}", fill_disk(file)?)),
            ["spoil"] => self.scratch.spoils = true,
            ["status"] => return self.status(),
            ["counters"] => {
                let all = self.device.counters().filter(|(_, value)| *value != 0);
                let all: String =
                    all.map(|(counter, value)| format!(" {}={value}", counter.name())).collect();
                return Ok(format!("counters{all}"));
            }
            _ => return Err(format!("not a command: {line}").into()),
        }
        Ok("ok".to_owned())
    }

    /// Creates and destroys queue pairs, regions, completion queues and shared receive queues.
    fn rotate(&self, number: u32) -> Result<()> {
        for _ in 0..number {
            let cq = self.device.create_cq(1)?;
            let srq = self.pd.shared_receive_queue(1).create()?;
            self.pd.queue_pair(&cq).shared_receive_queue(&srq).create()?;
            self.pd.allocate(WORD, Access::LOCAL_WRITE)?;
        }
        Ok(())
    }

    fn status(&self) -> Result<String> {
        let text = fs::read_to_string("/proc/self/status")?;
        let number = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.split_whitespace().next()).unwrap_or("0")
        };
        // Without the descriptor that reads the list.
        let descriptors = fs::read_dir("/proc/self/fd")?.count() - 1;
        let wall = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let served = self.guests.as_ref().map_or(0, |guests| guests.served);
        let mut reply = format!(
            "status rss={} heap={} descriptors={descriptors} threads={} cpu_ms={} wall={wall} \
             served={served}",
            number("VmRSS:"),
            number("RssAnon:"),
            number("Threads:"),
            cpu_ns() / 1_000_000
        );
        for (name, lane) in &self.lanes {
            let Lane { messages, bytes, lost, last, .. } = lane;
            let state = lane.failed.as_deref().unwrap_or("up");
            let idle_ms = last.elapsed().as_millis();
            reply += &format!(" {name}:{messages}:{bytes}:{lost}:{idle_ms}:{state}");
        }
        Ok(reply)
    }

    /// Handles completions, sends what is due, and serves connections. Sleeps for at most
    /// [`SLEEP`].
    fn step(&mut self) -> Result<()> {
        let Self { lanes, rng, scratch, budget, .. } = self;
        let now = Instant::now();
        let may_send = budget.has_left(now);
        let mut wait = SLEEP;
        for lane in lanes.values_mut() {
            match lane.due(now) {
                Some(due) if due > now => wait = wait.min(due - now),
                Some(_) if may_send => lane.send(rng, scratch)?,
                _ => {}
            }
        }
        if let Some(guests) = &mut self.guests {
            guests.serve()?;
        }
        let mut done = [Completion::default(); 64];
        let count = match self.cq.wait(&mut done, Some(wait)) {
            Ok(count) => count,
            Err(WaitError::TimedOut) => 0,
            Err(error) => return Err(error.into()),
        };
        for completion in &done[..count] {
            // A completion may belong to a lane that was dropped.
            if let Some(lane) = self.lanes.get_mut(&lane_of(completion.wr_id)) {
                lane.complete(completion, &mut self.rng, &mut self.scratch)?;
            }
        }
        Ok(())
    }
}

/// Writes to a file until the disk is full. Returns the error number.
fn fill_disk(file: &str) -> Result<i32> {
    let mut file = fs::File::create(file)?;
    for _ in 0..1 << 20 {
        if let Err(error) = file.write_all(&[0; 4096]) {
            return Ok(error.raw_os_error().unwrap_or(0));
        }
    }
    Err("the disk has more than 4 GiB".into())
}

fn run() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let (sender, commands) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(std::io::Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let first = commands.recv()?;
    let mut soaker = Soaker::open(&first.split(' ').collect::<Vec<_>>())?;
    print_line("ok")?;
    serve(&mut soaker, &commands)
}

fn serve(soaker: &mut Soaker, commands: &Receiver<String>) -> Result<()> {
    loop {
        match commands.try_recv() {
            Ok(line) if line == "end" => return print_line("ok"),
            Ok(line) => {
                let reply = soaker.command(&line)?;
                print_line(&reply)?;
            }
            Err(TryRecvError::Empty) => soaker.step()?,
            // The parent process has ended.
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
    }
}

fn print_line(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The parent process waits for a reply.
            let _ = print_line(&format!("error {error}"));
            ExitCode::FAILURE
        }
    }
}
