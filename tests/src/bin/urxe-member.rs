//! One of several processes on one address. Each line on standard input is a command; the reply is
//! one line on standard output.
//!
//! ```text
//! open <address>              slot <number>
//! qp <name>                   endpoint <endpoint>
//! connect <name> <endpoint>   ok
//! start <name>                ok                  sends the pair's first message
//! drop <name>                 ok
//! status                      status <name>:<messages> ...
//! counters                    counters <name>=<value> ...
//! xrcd <file> <oflags>        xrcd open, or xrcd <errno>      opens the XRC domain of a file
//! target                      target <qpn>        creates a target in that domain
//! open_target <qpn>           target open, or target <errno>
//! gaps                        gaps <number> <p50> <p99.9> <longest>
//! end                         ok
//! ```
//! Gaps are the times between messages since the last `gaps`, in microseconds.
//!
//! Between commands, the connected pairs exchange messages: one end sends a message, the other end
//! verifies every byte and sends the next. A wrong message ends the process with an error text. A
//! failed completion marks the pair as failed, because the peer may have been killed.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use urxe::{
    Access, AckTimeout, CompletionQueue, ConnectOptions, Device, MemoryRegion, ProtectionDomain,
    Qpn, QueuePair, RecvRequest, SendRequest, XrcDomain, XrcTarget, XrcdFlags,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The maximum length of a message: three packets and 100 bytes.
const LEN: usize = 3 * 4096 + 100;
const SENT: u64 = 1 << 32;
/// The maximum number of stored gaps, enough for some minutes.
const MAX_GAPS: usize = 1 << 22;

/// One end of a pair. The first half of the region is for sending, the second for receiving.
struct End {
    qp: QueuePair,
    region: MemoryRegion,
    /// The number of the next message of either end.
    next: u64,
    /// The kind and status of the completion that ended the pair.
    failed: Option<String>,
}

struct Member {
    device: Device,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    ends: HashMap<u64, End>,
    domain: Option<XrcDomain>,
    targets: Vec<XrcTarget>,
    last_message: Instant,
    /// Times between messages, in microseconds.
    gaps: Vec<u64>,
}

/// Returns connection options with a timeout of 17 s in all. On a busy machine, a process may get
/// no processor for longer than the default half second.
fn patient() -> ConnectOptions {
    ConnectOptions::new().timeout(AckTimeout::new(19).unwrap())
}

/// Returns the content of message `round` of a pair, from the pair's name.
fn content(name: u64, round: u64) -> Vec<u8> {
    let mut state = name << 20 ^ round.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let len = 1 + next() as usize % LEN;
    (0..len).map(|_| next() as u8).collect()
}

impl Member {
    fn open(address: &str) -> Result<Self> {
        let builder = Device::builder().shared_memory(std::env::var("URXE_SHM").is_ok());
        let device = builder.open_address(address.parse::<std::net::IpAddr>()?)?;
        let pd = device.alloc_pd()?;
        let cq = device.create_cq(4096)?;
        let (domain, targets, last_message, gaps) = (None, Vec::new(), Instant::now(), Vec::new());
        Ok(Self { device, pd, cq, ends: HashMap::new(), domain, targets, last_message, gaps })
    }

    fn open_xrcd(&mut self, file: &str, flags: u32) -> Result<String> {
        let flags = XrcdFlags::from_bits_truncate(flags);
        Ok(match self.device.open_xrc_domain(File::open(file)?, flags) {
            Ok(domain) => {
                self.domain = Some(domain);
                "xrcd open".to_owned()
            }
            Err(error) => format!("xrcd {}", error.errno()),
        })
    }

    fn domain(&self) -> Result<&XrcDomain> {
        self.domain.as_ref().ok_or_else(|| "no XRC domain is open".into())
    }

    fn make(&mut self, name: u64) -> Result<String> {
        let qp =
            self.pd.queue_pair(&self.cq).max_send_wr(4).max_recv_wr(4).signal_all(true).create()?;
        let region = self.pd.allocate(2 * LEN, Access::LOCAL_WRITE)?;
        qp.init(&ConnectOptions::default())?;
        let end = End { qp, region, next: 0, failed: None };
        end.make_room(name)?;
        let endpoint = end.qp.endpoint().to_string();
        self.ends.insert(name, end);
        Ok(endpoint)
    }

    fn end(&mut self, name: u64) -> Result<&mut End> {
        self.ends.get_mut(&name).ok_or_else(|| format!("no pair {name}").into())
    }

    /// Executes a command, and returns the reply.
    fn command(&mut self, line: &str) -> Result<String> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["qp", name] => Ok(format!("endpoint {}", self.make(name.parse()?)?)),
            ["connect", name, ..] => {
                let endpoint = line.splitn(3, ' ').nth(2).ok_or("no endpoint")?.parse()?;
                self.end(name.parse()?)?.qp.connect(&endpoint, &patient())?;
                Ok("ok".to_owned())
            }
            ["start", name] => {
                let name = name.parse()?;
                self.end(name)?.send(name)?;
                Ok("ok".to_owned())
            }
            ["drop", name] => {
                self.ends.remove(&name.parse()?);
                Ok("ok".to_owned())
            }
            ["xrcd", file, flags] => self.open_xrcd(file, flags.parse()?),
            ["target"] => {
                let target = self.domain()?.target()?;
                let answer = format!("target {}", target.qpn().value());
                self.targets.push(target);
                Ok(answer)
            }
            ["open_target", qpn] => {
                Ok(match self.domain()?.open_target(Qpn::masked(qpn.parse()?)) {
                    Ok(target) => {
                        self.targets.push(target);
                        "target open".to_owned()
                    }
                    Err(error) => format!("target {}", error.errno()),
                })
            }
            ["status"] => {
                let mut all: Vec<_> = self.ends.iter().collect();
                all.sort_by_key(|(name, _)| **name);
                let state = |(name, end): &(&u64, &End)| match &end.failed {
                    Some(why) => format!(" {name}:{why}"),
                    None => format!(" {name}:{}", end.next),
                };
                Ok(format!("status{}", all.iter().map(state).collect::<String>()))
            }
            ["counters"] => {
                let all = self.device.counters().filter(|(_, value)| *value != 0);
                let all: String =
                    all.map(|(counter, value)| format!(" {}={value}", counter.name())).collect();
                Ok(format!("counters{all}"))
            }
            ["gaps"] => {
                let mut gaps = std::mem::take(&mut self.gaps);
                gaps.sort_unstable();
                let at = |thousandth: usize| {
                    gaps.get((gaps.len() * thousandth / 1000).min(gaps.len().saturating_sub(1)))
                        .unwrap_or(&0)
                };
                Ok(format!("gaps {} {} {} {}", gaps.len(), at(500), at(999), at(1000)))
            }
            _ => Err(format!("not a command: {line}").into()),
        }
    }

    /// Exchanges messages until a millisecond passes without a completion.
    fn exchange_messages(&mut self) -> Result<()> {
        let mut out = [urxe::Completion::default(); 64];
        for _ in 0..16 {
            let count = match self.cq.wait(&mut out, Some(Duration::from_millis(1))) {
                Ok(count) => count,
                Err(urxe::WaitError::TimedOut) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            for completion in &out[..count] {
                let name = completion.wr_id & !SENT;
                // The pair was dropped before.
                let Some(end) = self.ends.get_mut(&name) else { continue };
                if !completion.status.is_success() {
                    let what = if completion.wr_id & SENT == 0 { "receive" } else { "send" };
                    let why = format!("{what}_{}_{:?}", end.next, completion.status);
                    end.failed.get_or_insert(why);
                } else if completion.wr_id & SENT == 0 {
                    end.answer(name, completion.byte_len as usize)?;
                    let now = Instant::now();
                    let gap = now.duration_since(std::mem::replace(&mut self.last_message, now));
                    if self.gaps.len() < MAX_GAPS {
                        self.gaps.push(gap.as_micros() as u64);
                    }
                }
            }
        }
        Ok(())
    }
}

impl End {
    fn make_room(&self, name: u64) -> Result<()> {
        Ok(self.qp.post_recv(&RecvRequest::new(self.region.slice(LEN..)?).wr_id(name))?)
    }

    fn send(&mut self, name: u64) -> Result<()> {
        let bytes = content(name, self.next);
        self.next += 1;
        self.region.write(0, &bytes)?;
        let request = SendRequest::send(self.region.slice(..bytes.len())?).wr_id(name | SENT);
        Ok(self.qp.post_send(&request)?)
    }

    /// Verifies a message and sends the next.
    fn answer(&mut self, name: u64, len: usize) -> Result<()> {
        if self.region.read_vec(LEN, len)? != content(name, self.next) {
            return Err(
                format!("pair {name}: message {} of {len} bytes is wrong", self.next).into()
            );
        }
        self.next += 1;
        self.make_room(name)?;
        self.send(name)
    }
}

fn run() -> Result<()> {
    let (sender, commands) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(std::io::Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let first = commands.recv()?;
    let address = first.strip_prefix("open ").ok_or("the first command is open")?;
    let mut member = Member::open(address)?;
    // The slot is part of every queue pair number.
    let probe = member.pd.queue_pair(&member.cq).create()?;
    print_line(&format!("slot {}", probe.qpn().value() >> 18))?;
    drop(probe);
    serve(&mut member, &commands)
}

fn serve(member: &mut Member, commands: &Receiver<String>) -> Result<()> {
    loop {
        loop {
            match commands.try_recv() {
                Ok(line) if line == "end" => return print_line("ok"),
                Ok(line) => {
                    let answer = member.command(&line)?;
                    print_line(&answer)?;
                }
                Err(TryRecvError::Empty) => break,
                // The parent process has ended.
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
        if member.ends.is_empty() {
            std::thread::sleep(Duration::from_micros(200));
        }
        member.exchange_messages()?;
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
            eprintln!("urxe-member: {error}");
            // The parent process waits for a reply.
            let _ = print_line(&format!("error {error}"));
            ExitCode::FAILURE
        }
    }
}
