//! The campaigns that take too long for CI; started by hand, before a release.

use std::process::Command;

use anyhow::{Result, bail};

use super::ci::{finish, run};
use super::deep::in_namespace;
use super::{none, number};
use crate::machine::{need_packages, need_root};
use crate::run::{Runner, cargo};

/// Entries with the arguments that make them long.
const CAMPAIGNS: [(&str, &[&str]); 13] = [
    ("sim", &["20000"]),
    ("fuzz", &["600"]),
    ("abi-fuzz", &["100"]),
    ("tsan", &["10"]),
    ("forger", &[]),
    ("sharing", &[]),
    ("keys", &[]),
    ("soak", &[]),
    ("programs", &["all"]),
    ("newer", &[]),
    ("kernel", &["all"]),
    ("kernel", &["newest"]),
    ("wheel", &["--check"]),
];

/// Runs all campaigns, or the named ones. A failed campaign does not stop the others. Ends with a
/// table for CONTRIBUTING.md.
pub fn long(arguments: &[String], runner: &mut Runner) -> Result<()> {
    if let Some(unknown) = arguments.iter().find(|&name| CAMPAIGNS.iter().all(|(c, _)| c != name)) {
        bail!("no campaign {unknown}; there are {}", CAMPAIGNS.map(|(name, _)| name).join(", "));
    }
    let is_chosen = |name: &str| arguments.is_empty() || arguments.iter().any(|a| a == name);
    let chosen = CAMPAIGNS.into_iter().filter(|(name, _)| is_chosen(name));
    let outcomes: Vec<_> = chosen
        .clone()
        .map(|(name, arguments)| run(name, arguments, Ok(Runner::default())))
        .collect();
    finish(outcomes, chosen.map(|(name, _)| name), runner)
}

/// Sends a hundred million forged packets of each attacker in simulated networks, and a million of
/// each over sockets.
pub fn forger(arguments: &[String], runner: &mut Runner) -> Result<()> {
    none(arguments)?;
    let mut tests = cargo(["test", "--test", "forger", "--", "--nocapture"]);
    runner.run(tests.env("URXE_FORGED", "100000000"))?;
    runner.run(in_namespace("forger").arg("--nocapture").env("URXE_FORGED_SENT", "1000000"))
}

/// Kills processes that share an address two hundred times, and checks the remaining processes
/// after each. Then lets 64 processes of an address exchange messages, each with each.
pub fn sharing(arguments: &[String], runner: &mut Runner) -> Result<()> {
    none(arguments)?;
    let tests = || cargo(["test", "--test", "sharing"]);
    runner.run(tests().env("URXE_SHARING_KILLS", "200"))?;
    let all_to_all = ["--", "--ignored", "--nocapture", "--test-threads", "1", "all_to_all"];
    runner.run(tests().args(all_to_all))
}

/// Registers and deregisters regions until keys return, and checks that none returns too early.
pub fn keys(arguments: &[String], runner: &mut Runner) -> Result<()> {
    none(arguments)?;
    let test = "in_the_long_run";
    runner.run(&mut cargo(["test", "-p", "urxe-memory", "--lib", test, "--", "--ignored"]))
}

/// Moves verified messages for two hours, or for a number of minutes, while processes die and stop,
/// addresses and clocks change, and disks become full.
///
/// The processes have namespaces of their own, which end with them. If this process is killed, the
/// kernel kills `unshare` and with it the others.
pub fn soak(arguments: &[String], runner: &mut Runner) -> Result<()> {
    let minutes = number(arguments, 120)?;
    need_root("soak", "network namespaces and mounts")?;
    need_packages(&["gcc", "iproute2", "util-linux"], runner)?;
    // Built outside: the namespace has no network to fetch anything from.
    runner.run(&mut cargo(["test", "--test", "soak", "--no-run"]))?;
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "unshare", "--net", "--mount", "--pid", "--mount-proc"]);
    // Temporary files vanish with the namespace.
    let mount = "mount -t tmpfs none /mnt && TMPDIR=/mnt exec \"$@\"";
    command.args(["--fork", "--kill-child", "sh", "-c", mount, "sh"]);
    command.args(["cargo", "test", "--test", "soak"]);
    command.args(["--", "--ignored", "--nocapture", "--test-threads", "1"]);
    runner.run(command.env("URXE_SOAK_MINUTES", minutes.to_string()))
}
