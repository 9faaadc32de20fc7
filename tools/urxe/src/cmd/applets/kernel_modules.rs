//! `modprobe`, `insmod`, `rmmod`, `lsmod` and `modinfo`: the modules of soft RoCE, for which urxe
//! stands. Loading them does nothing. Unloading `rdma_rxe` deletes the user's devices, as in the
//! kernel. Other modules are passed on to the system's commands (kmod).

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode};

use super::{AppletError, Call, devices, system};
use crate::output;

/// The module of soft RoCE.
const RXE: &str = "rdma_rxe";
/// The modules for which urxe stands: of soft RoCE, and those that it needs, each with the modules
/// that use it.
const MODULES: [(&str, &str); 10] = [
    (RXE, ""),
    ("ib_uverbs", "rdma_rxe,rdma_ucm"),
    ("rdma_ucm", ""),
    ("rdma_cm", "rdma_ucm"),
    ("iw_cm", "rdma_cm"),
    ("ib_cm", "rdma_cm"),
    ("ib_umad", ""),
    ("ib_core", "rdma_rxe,ib_uverbs,rdma_ucm,rdma_cm,iw_cm,ib_cm,ib_umad"),
    ("udp_tunnel", "rdma_rxe"),
    ("ip6_udp_tunnel", "rdma_rxe"),
];
/// Options of `modprobe` that take a value.
const WITH_VALUE: [&str; 6] = ["-C", "--config", "-d", "--dirname", "-S", "--set-version"];
/// Options of `modprobe` that only show something.
const SHOWING: [&str; 14] = [
    "-c",
    "--showconfig",
    "-V",
    "--version",
    "-h",
    "--help",
    "-D",
    "--show-depends",
    "-R",
    "--resolve-alias",
    "--dump-modversions",
    "--show-modversions",
    "--show-exports",
    "--show-config",
];

/// Returns the name of a module for which urxe stands. Dashes and underscores are the same.
fn ours(word: &str) -> Option<&'static str> {
    let name = word.replace('-', "_");
    MODULES.iter().map(|(module, _)| *module).find(|module| *module == name)
}

/// The words of a `modprobe`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Probe {
    unloads: bool,
    is_dry: bool,
    shows: bool,
    /// Positions of the module names among the words.
    modules: Vec<usize>,
}

impl Probe {
    fn parse(words: &[String]) -> Self {
        let mut probe = Self::default();
        let (mut all, mut options, mut skip) = (false, true, false);
        for (at, word) in words.iter().enumerate() {
            if std::mem::take(&mut skip) {
                continue;
            }
            match word.as_str() {
                "--" if options => options = false,
                long if options && long.starts_with('-') && long.len() > 1 => {
                    let has = |letter, name| {
                        long == name || (!long.starts_with("--") && long.contains(letter))
                    };
                    all |= has('a', "--all");
                    probe.unloads |= has('r', "--remove");
                    probe.is_dry |= has('n', "--dry-run") || long == "--show";
                    probe.shows |= SHOWING.contains(&long);
                    skip = WITH_VALUE.contains(&long);
                }
                // Without -a and -r, the words after the module are its parameters.
                _ if all || probe.unloads || probe.modules.is_empty() => probe.modules.push(at),
                _ => {}
            }
        }
        probe
    }
}

/// `modprobe`
pub fn modprobe(call: &Call) -> Result<ExitCode, AppletError> {
    let words = call.words();
    let probe = Probe::parse(&words);
    let (own, foreign): (Vec<usize>, Vec<usize>) =
        probe.modules.iter().partition(|&&at| ours(&words[at]).is_some());
    if probe.shows || own.is_empty() {
        return system::pass_on(call);
    }
    if probe.unloads && !probe.is_dry && own.iter().any(|&at| ours(&words[at]) == Some(RXE)) {
        devices::remove_all()?;
    }
    if foreign.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let rest = call.arguments.iter().enumerate().filter(|(at, _)| !own.contains(at));
    system::pass_on_words(call.name, &rest.map(|(_, word)| word.clone()).collect::<Vec<_>>())
}

/// `insmod FILE`: the name of the file decides.
pub fn insmod(call: &Call) -> Result<ExitCode, AppletError> {
    let is_own = call.words().iter().find(|word| !word.starts_with('-')).is_some_and(|file| {
        let name = Path::new(file).file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.split_once(".ko").is_some_and(|(module, _)| ours(module).is_some())
    });
    if is_own { Ok(ExitCode::SUCCESS) } else { system::pass_on(call) }
}

/// `rmmod`
pub fn rmmod(call: &Call) -> Result<ExitCode, AppletError> {
    let words = call.words();
    let is_own = |word: &str| ours(word.trim_end_matches(".ko")).is_some();
    if !words.iter().any(|word| is_own(word)) {
        return system::pass_on(call);
    }
    if words.iter().any(|word| ours(word.trim_end_matches(".ko")) == Some(RXE)) {
        devices::remove_all()?;
    }
    let rest: Vec<OsString> =
        words.iter().filter(|word| !is_own(word)).map(OsString::from).collect();
    if rest.iter().all(|word| word.to_string_lossy().starts_with('-')) {
        return Ok(ExitCode::SUCCESS);
    }
    system::pass_on_words(call.name, &rest)
}

/// `lsmod`: the system's modules, then those for which urxe stands.
pub fn lsmod(call: &Call) -> Result<ExitCode, AppletError> {
    let text = system::find(call.name.as_ref())
        .and_then(|program| Command::new(program).args(&call.arguments).output().ok())
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .filter(|text| !text.is_empty());
    let text = text.unwrap_or_else(|| format!("{:<23} Size  Used by\n", "Module"));
    let loaded: BTreeSet<&str> =
        text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let mut out = output::stdout();
    write!(out, "{text}")?;
    for (module, users) in MODULES.iter().filter(|(module, _)| !loaded.contains(module)) {
        let count = users.split(',').filter(|user| !user.is_empty()).count();
        let line = format!("{module:<19} {:>8}  {count} {users}", 0);
        writeln!(out, "{}", line.trim_end())?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// `modinfo`: describes a module for which urxe stands.
pub fn modinfo(call: &Call) -> Result<ExitCode, AppletError> {
    let words = call.words();
    let mut field = None;
    let mut modules = Vec::new();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-F" | "--field" => field = rest.next().cloned(),
            "-n" | "--filename" => field = Some("filename".to_owned()),
            "-d" | "--description" => field = Some("description".to_owned()),
            "-l" | "--license" => field = Some("license".to_owned()),
            module => modules.push(ours(module)),
        }
    }
    let own: Option<Vec<&str>> = modules.into_iter().collect();
    let Some(own) = own.filter(|own| !own.is_empty()) else { return system::pass_on(call) };
    let mut out = output::stdout();
    for module in own {
        for (key, value) in [
            ("name", module),
            ("filename", "(builtin)"),
            ("license", "MIT OR Apache-2.0"),
            ("description", "urxe stands for this module (urxe run)"),
        ] {
            match &field {
                None => writeln!(out, "{:<15} {value}", format!("{key}:"))?,
                Some(wanted) if wanted == key => writeln!(out, "{value}")?,
                Some(_) => {}
            }
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(text: &str) -> (Vec<String>, Probe) {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        let probe = Probe::parse(&words);
        (words, probe)
    }

    #[test]
    fn the_modules_of_modprobe() {
        for (text, modules, unloads, is_dry, shows) in [
            ("rdma_rxe", "rdma_rxe", false, false, false),
            ("-v rdma-rxe", "rdma-rxe", false, false, false),
            ("ib_core debug=1", "ib_core", false, false, false),
            ("-a ib_core xfs", "ib_core xfs", false, false, false),
            ("-ar ib_core xfs", "ib_core xfs", true, false, false),
            ("-r rdma_rxe siw", "rdma_rxe siw", true, false, false),
            ("-rn rdma_rxe", "rdma_rxe", true, true, false),
            ("-C /etc/x rdma_rxe", "rdma_rxe", false, false, false),
            ("--show-depends rdma_rxe", "rdma_rxe", false, false, true),
            ("-- -r", "-r", false, false, false),
        ] {
            let (words, probe) = probe(text);
            let found: Vec<&str> = probe.modules.iter().map(|&at| words[at].as_str()).collect();
            assert_eq!(found.join(" "), modules, "{text}");
            assert_eq!(
                (probe.unloads, probe.is_dry, probe.shows),
                (unloads, is_dry, shows),
                "{text}"
            );
        }
    }

    #[test]
    fn names_with_dashes_are_the_same_modules() {
        assert_eq!(ours("rdma-rxe"), Some(RXE));
        assert_eq!(ours("ib_uverbs"), Some("ib_uverbs"));
        for foreign in ["xfs", "siw", "rdma_rxe.ko", "mlx5_ib", ""] {
            assert_eq!(ours(foreign), None, "{foreign}");
        }
    }
}
