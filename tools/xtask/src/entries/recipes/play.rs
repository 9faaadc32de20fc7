//! Plays one recipe in namespaces of its own, in which all its processes end with it.
//!
//! ```text
//!   cargo xtask recipes ── unshare ── cargo xtask recipes --inside ──┬── urxe run -- SERVER
//!                                                                    └── urxe run -- CLIENT
//! ```
//! The inner process prints its result as one line of JSON.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use regex::Regex;
use serde::{Deserialize, Serialize};

use super::proof::Proof;
use super::table::{Ready, Recipe, SCRIPTS, recipes, replace, words};
use crate::run::root;

/// Rounds over RDMA and over TCP, which alternate.
const ROUNDS: usize = 3;
/// Seconds after which the programs are ended, if the recipe does not say.
const LIMIT: u64 = 60;
/// Waits before a client of `rdma_cm` starts, in milliseconds, because no table lists such servers.
const DELAYS_MS: [u64; 5] = [300, 600, 1_200, 2_400, 4_800];
/// The longest time in which a client notices that no server listens.
const EARLY: Duration = Duration::from_secs(4);
/// The folder of the namespace in which the programs write.
const PLACE: &str = "/mnt";
/// Prepares the namespaces: a folder in memory, loopback, and an interface with an address.
const PREPARE: &str = "mount -t tmpfs none /mnt && ip link set lo up && \
                       ip link add urxe0 type veth peer name urxe1 && \
                       ip address add 10.79.0.1/24 dev urxe0 && \
                       ip link set urxe0 up && ip link set urxe1 up && exec \"$@\"";
/// A function that Debian 12's librspreload.so lacks.
const ACCEPT4: &str = "tests/programs/accept4.c";
/// Debian's user without rights.
const NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// A recipe with the paths that it uses in the namespace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub name: String,
    pub urxe: PathBuf,
    pub python: PathBuf,
    pub path: Option<PathBuf>,
    pub speed: bool,
}

/// The result of a recipe.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Played {
    pub failure: Option<String>,
    pub seconds: f64,
    pub proof: Option<Proof>,
    pub ratio: Option<Ratio>,
}

/// Figures over RDMA and over TCP: medians, and the median of the ratios.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ratio {
    pub rdma: f64,
    pub tcp: f64,
    /// More than 1 if RDMA is better.
    pub ratio: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Over urxe, with captures.
    Captured,
    /// Over urxe.
    Rdma,
    /// Without urxe.
    Tcp,
}

/// Copies this program to `path`. The copy remains if cargo builds the program again while it runs.
pub fn copy_self(path: &Path) -> Result<()> {
    fs::copy("/proc/self/exe", path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

/// Plays a recipe in new namespaces with `inner`, a copy of this program.
pub fn outside(inner: &Path, order: &Order) -> Result<Played> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "unshare", "--net", "--mount", "--pid", "--mount-proc"]);
    command.args(["--fork", "--kill-child", "sh", "-c", PREPARE, "sh"]);
    command.arg(inner).args(["recipes", "--inside"]);
    let output = command.arg(serde_json::to_string(order)?).stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with('{'));
    let errors = String::from_utf8_lossy(&output.stderr);
    let line = line.with_context(|| format!("{command:?}: {}\n{text}{errors}", output.status))?;
    Ok(serde_json::from_str(line)?)
}

/// Plays a recipe in the present namespaces.
pub fn inside(order: &str) -> Result<()> {
    let order: Order = serde_json::from_str(order)?;
    let all = recipes(&root())?;
    let recipe = all.into_iter().find(|recipe| recipe.name == order.name);
    let play = Play { recipe: recipe.context("no recipe has this name")?, order };
    let start = Instant::now();
    let (mut proof, mut ratio) = (None, None);
    let result = play.prove(&mut proof).and_then(|()| {
        if play.order.speed {
            ratio = play.compare()?;
        }
        Ok(())
    });
    let failure = result.err().map(|error| format!("{error:#}"));
    let played = Played { failure, seconds: start.elapsed().as_secs_f64(), proof, ratio };
    println!("{}", serde_json::to_string(&played)?);
    Ok(())
}

struct Play {
    recipe: Recipe,
    order: Order,
}

impl Play {
    fn prove(&self, proof: &mut Option<Proof>) -> Result<()> {
        let folder = self.folder("proof")?;
        let text = self.run(Mode::Captured, &folder)?;
        for pattern in &self.recipe.expect {
            let is_there = Regex::new(pattern)?.is_match(&text);
            ensure!(is_there, "no line of the output matches {pattern}:\n{}", end_of(&text));
        }
        let found = Proof::of(&folder.join("captures"), &self.order.urxe)?;
        let checked = found.check(&self.recipe);
        *proof = Some(found);
        checked.with_context(|| end_of(&text))
    }

    fn compare(&self) -> Result<Option<Ratio>> {
        let Some(speed) = &self.recipe.speed else { return Ok(None) };
        let mut rounds: Vec<[f64; 3]> = Vec::new();
        for round in 0..ROUNDS {
            let of = |mode, name: &str, pattern: &str| -> Result<f64> {
                let text = self.run(mode, &self.folder(&format!("{name}{round}"))?)?;
                figure(&text, pattern).with_context(|| format!("over {name}:\n{}", end_of(&text)))
            };
            let rdma = of(Mode::Rdma, "rdma", &speed.figure)?;
            let tcp = of(Mode::Tcp, "tcp", speed.tcp_figure.as_ref().unwrap_or(&speed.figure))?;
            rounds.push([rdma, tcp, if speed.less_is_better { tcp / rdma } else { rdma / tcp }]);
        }
        let [rdma, tcp, ratio] = [0, 1, 2].map(|which| {
            let mut figures: Vec<f64> = rounds.iter().map(|round| round[which]).collect();
            figures.sort_by(f64::total_cmp);
            figures[ROUNDS / 2]
        });
        Ok(Some(Ratio { rdma, tcp, ratio }))
    }

    /// Creates a folder for the programs' user, with the scripts and a folder for captures.
    fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = Path::new(PLACE).join(name);
        fs::create_dir_all(folder.join("captures"))?;
        let scripts = folder.join("scripts");
        for source in [SCRIPTS, ACCEPT4] {
            let mut copy = Command::new("cp");
            copy.arg("-r").arg(root().join(source)).arg(&scripts);
            ensure!(copy.status()?.success(), "{copy:?} failed");
        }
        if !self.recipe.root {
            let mut chown = Command::new("chown");
            chown.args(["-R", "65534:65534"]).arg(&folder);
            ensure!(chown.status()?.success(), "{chown:?} failed");
        }
        Ok(folder)
    }

    /// Runs server and client. Returns both outputs.
    fn run(&self, mode: Mode, folder: &Path) -> Result<String> {
        let speed = self.recipe.speed.as_ref().filter(|_| mode == Mode::Tcp);
        let client = speed.and_then(|speed| speed.client.as_ref()).unwrap_or(&self.recipe.client);
        let server = speed.and_then(|speed| speed.server.as_ref()).or(self.recipe.server.as_ref());
        let ready = speed.and_then(|speed| speed.ready.as_ref()).or(self.recipe.ready.as_ref());
        let outputs = ["server", "client"].map(|end| folder.join(format!("{end}.txt")));
        let text = || {
            let text = |file| String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into();
            outputs.each_ref().map(text).map(|text: String| text.replace('\r', "\n")).join("\n")
        };
        let start = |words: &str, file: &Path, name: &str| {
            let mut command = self.command(mode, folder, words, name)?;
            let file = File::create(file)?;
            command.stdout(file.try_clone()?).stderr(file);
            command.spawn().with_context(|| format!("cannot start {command:?}"))
        };
        let Some(server) = server else {
            let status = start(client, &outputs[1], "client")?.wait()?;
            return fine(status, "the command", &text());
        };
        let mut serving = start(server, &outputs[0], "server")?;
        let mut delays = DELAYS_MS.iter().map(|ms| Duration::from_millis(*ms));
        loop {
            match ready {
                Some(ready) => self.wait(ready, &outputs[0], &mut serving)?,
                None => thread::sleep(delays.next().unwrap_or_default()),
            }
            let began = Instant::now();
            let status = start(client, &outputs[1], "client")?.wait()?;
            let is_early = ready.is_none() && began.elapsed() < EARLY && delays.len() > 0;
            if !status.success() && is_early && serving.try_wait()?.is_none() {
                continue;
            }
            if !status.success() || self.recipe.server_ends == Some(false) {
                end(&mut serving)?;
                return fine(status, "the client", &text());
            }
            return fine(serving.wait()?, "the server", &text());
        }
    }

    /// Waits until a server listens.
    fn wait(&self, ready: &Ready, output: &Path, server: &mut Child) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(self.limit());
        loop {
            let is_ready = match ready {
                Ready::Tcp(port) => {
                    let filter = format!("sport = :{port}");
                    !Command::new("ss").args(["-Hltn", &filter]).output()?.stdout.is_empty()
                }
                Ready::Says(text) => {
                    String::from_utf8_lossy(&fs::read(output)?).contains(text.as_str())
                }
            };
            if is_ready {
                return Ok(());
            }
            if server.try_wait()?.is_some() || Instant::now() > end {
                let text = String::from_utf8_lossy(&fs::read(output)?).into_owned();
                bail!("the server did not become ready:\n{}", end_of(&text));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn limit(&self) -> u64 {
        self.recipe.limit.unwrap_or(LIMIT)
    }

    /// Returns a command of these words with its variables.
    fn command(&self, mode: Mode, folder: &Path, text: &str, end: &str) -> Result<Command> {
        let (recipe, limit) = (&self.recipe, self.limit().to_string());
        let mut all: Vec<String> = Vec::new();
        if !recipe.root {
            all.extend(NOBODY.map(str::to_owned));
        }
        // Some programs catch the signal of `timeout` and wait for threads that hang.
        all.extend(["timeout", "-k", "5", &limit, "env"].map(str::to_owned));
        let tcp = recipe.speed.iter().flat_map(|speed| &speed.env);
        let variables: Vec<&String> =
            if mode == Mode::Tcp { tcp.collect() } else { recipe.env.iter().collect() };
        all.extend(variables.into_iter().map(|variable| self.replaced(mode, folder, variable)));
        let has_device =
            mode != Mode::Tcp || recipe.speed.as_ref().is_some_and(|speed| speed.has_device);
        if has_device {
            all.extend([self.order.urxe.display().to_string(), "run".to_owned()]);
            all.extend(recipe.link.iter().flat_map(|link| ["--link".to_owned(), link.clone()]));
        }
        if mode == Mode::Captured {
            let file = folder.join(format!("captures/{end}-%p.pcapng"));
            all.extend(["--capture".to_owned(), file.display().to_string()]);
        }
        if has_device {
            all.push("--".to_owned());
        }
        for word in words(text)? {
            all.push(self.replaced(mode, folder, &word));
        }
        let mut command = Command::new(&all[0]);
        command.args(&all[1..]).current_dir(folder).stdin(Stdio::null());
        command.env_clear().env("HOME", folder).env("TMPDIR", folder).env("LANG", "C.UTF-8");
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        if mode == Mode::Captured {
            // The ICRCs of a capture check the data only if the packets have them.
            command.env("URXE_SHM", "off");
        }
        Ok(command)
    }

    fn replaced(&self, mode: Mode, folder: &Path, text: &str) -> String {
        let counts = &self.recipe.counts;
        let count = if mode == Mode::Captured { counts.first() } else { counts.last() };
        let mut words = BTreeMap::from([
            ("dir".to_owned(), show(folder)),
            ("here".to_owned(), show(&folder.join("scripts"))),
            ("python".to_owned(), show(&self.order.python)),
            ("n".to_owned(), count.map(u64::to_string).unwrap_or_default()),
        ]);
        if let Some(path) = &self.order.path {
            words.insert("path".to_owned(), show(path));
        }
        replace(text, &words)
    }
}

fn show(path: &Path) -> String {
    path.display().to_string()
}

/// Returns `text` if a process succeeded.
fn fine(status: ExitStatus, which: &str, text: &str) -> Result<String> {
    match status.code() {
        Some(0) => Ok(text.to_owned()),
        Some(124 | 137) => bail!("{which} did not end in time:\n{}", end_of(text)),
        _ => bail!("{which} failed ({status}):\n{}", end_of(text)),
    }
}

/// Ends a server by the signal that a person would send. `timeout` forwards it.
fn end(server: &mut Child) -> Result<()> {
    let _already_ended = Command::new("kill").arg(server.id().to_string()).status()?;
    let end = Instant::now() + Duration::from_secs(5);
    while server.try_wait()?.is_none() {
        if Instant::now() > end {
            server.kill()?;
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Returns the last number that the pattern finds.
fn figure(text: &str, pattern: &str) -> Result<f64> {
    let pattern = Regex::new(pattern)?;
    let last = pattern.captures_iter(text).last().and_then(|found| found.get(1));
    let last = last.with_context(|| format!("nothing matches {pattern}"))?;
    Ok(last.as_str().parse()?)
}

/// Returns the last lines of an output.
fn end_of(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_figure_counts() {
        let text = "read 1.5 GB/s\nread 2.5 GB/s\n";
        assert_eq!(figure(text, "read ([0-9.]+) GB/s").unwrap(), 2.5);
        assert!(figure(text, "write ([0-9.]+)").is_err());
    }
}
