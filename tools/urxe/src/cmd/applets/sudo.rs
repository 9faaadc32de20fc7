//! `sudo`: keeps urxe's programs where they are, in the user's own environment.
//!
//! The real `sudo` removes the variables of `urxe run` and searches a `PATH` of its own, so its
//! programs would use the kernel's devices. urxe needs no root. So this command decides:
//!
//! | program | how it runs |
//! |---|---|
//! | one of urxe's commands (`modprobe`, `rdma`, …), also by its path | as this user |
//! | any, if this user is root already and no other user is wanted | as root, without `sudo` |
//! | others, if the real `sudo` allows `env` without a password | by `sudo env … urxe run -- …` |
//! | others | by the real `sudo`, unchanged |
//!
//! So another user has folders of its own for the libraries and the view of sysfs, and writes none
//! of this user's.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use urxe_stack::sys::environment;

use super::{AppletError, Call, names, system};
use crate::cmd::run as urxe_run;

/// Short options that take a value.
const SHORT_WITH_VALUE: &str = "aCcDgprRtTuUh";
/// Long options that take a value, which may follow `=`.
const LONG_WITH_VALUE: [&str; 11] = [
    "auth-type",
    "close-from",
    "login-class",
    "chdir",
    "group",
    "prompt",
    "role",
    "chroot",
    "type",
    "command-timeout",
    "user",
];
/// Options without a program of their own, or with a shell.
const SHORT_SPECIAL: &str = "eilsvVK";
const LONG_SPECIAL: [&str; 9] = [
    "edit",
    "login",
    "list",
    "shell",
    "validate",
    "version",
    "remove-timestamp",
    "help",
    "other-user",
];
/// Folders of the system's programs.
const SYSTEM: [&str; 6] =
    ["/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];
/// The variables of urxe that go to the program. `urxe run` sets the others.
const KEPT: [&str; 15] = [
    "URXE_DEVICES",
    "URXE_LOG",
    "URXE_CAPTURE",
    "URXE_CAPTURE_HEADERS",
    "URXE_FAULTS",
    "URXE_DIRECT",
    "URXE_SHM",
    "URXE_SPIN",
    "URXE_ECN",
    "URXE_PORT_CHECK",
    "URXE_STRICT",
    "URXE_ICMP_MTU",
    "URXE_AFFINITY",
    "URXE_CHECKED_COPIES",
    "URXE_LIBRARY",
];
/// The variable with this user's view of sysfs.
const SYSFS: &str = "URXE_SYSFS";

/// The parts of a call.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parts {
    /// The number of words that are options.
    options: usize,
    /// The user or group of the program, if given.
    other: Option<String>,
    /// No plain call of a program.
    is_special: bool,
    /// The number of words `VARIABLE=VALUE` after the options.
    assignments: usize,
}

fn parse(words: &[String]) -> Parts {
    let mut parts = Parts::default();
    let mut rest = words.iter().peekable();
    while let Some(word) = rest.peek().filter(|word| word.len() > 1 && word.starts_with('-')) {
        let word = word.as_str();
        rest.next();
        parts.options += 1;
        if word == "--" {
            break;
        }
        let value = match word.strip_prefix("--") {
            Some(long) => {
                let (name, value) =
                    long.split_once('=').map_or((long, None), |(n, v)| (n, Some(v)));
                parts.is_special |= LONG_SPECIAL.contains(&name);
                let takes = LONG_WITH_VALUE.contains(&name);
                takes.then(|| (name == "user" || name == "group", value.map(str::to_owned)))
            }
            None => {
                let letter = word.find(|letter: char| SHORT_WITH_VALUE.contains(letter));
                let flags = &word[1..letter.unwrap_or(word.len())];
                parts.is_special |= flags.contains(|flag: char| SHORT_SPECIAL.contains(flag));
                letter.map(|at| {
                    let attached = &word[at + 1..];
                    let is_user = matches!(word.as_bytes()[at], b'u' | b'g');
                    (is_user, (!attached.is_empty()).then(|| attached.to_owned()))
                })
            }
        };
        if let Some((is_user, value)) = value {
            let value = value.or_else(|| {
                parts.options += 1;
                rest.next().cloned()
            });
            if is_user {
                parts.other = value;
            }
        }
    }
    parts.options = parts.options.min(words.len());
    let is_assignment = |word: &&String| {
        word.split_once('=').is_some_and(|(name, _)| !name.is_empty() && !name.contains('/'))
    };
    parts.assignments = words[parts.options..].iter().take_while(is_assignment).count();
    parts
}

/// Returns urxe's command for a program name or path.
fn own(program: &str) -> Option<&'static str> {
    let path = Path::new(program);
    let folder = path.parent().unwrap_or(Path::new(""));
    let is_system =
        folder.as_os_str().is_empty() || SYSTEM.iter().any(|one| folder == Path::new(one));
    names().filter(|_| is_system).find(|name| path.file_name() == Some(OsStr::new(name)))
}

/// `sudo`
pub fn run(call: &Call) -> Result<ExitCode, AppletError> {
    let words = call.words();
    let parts = parse(&words);
    let (assignments, program) = call.arguments[parts.options..].split_at(parts.assignments);
    let Some((name, arguments)) = program.split_first().filter(|_| !parts.is_special) else {
        return system::pass_on(call);
    };
    let is_root = rustix::process::geteuid().is_root();
    let stays = parts.other.as_deref().is_none_or(|user| matches!(user, "root" | "#0"));
    if stays && let Some(own) = own(&name.to_string_lossy()) {
        let mut command = Command::new("/proc/self/exe");
        command.arg0(own).args(arguments);
        return Err(start(command, assignments, name));
    }
    if stays && is_root {
        let mut command = Command::new(name);
        command.args(arguments);
        return Err(start(command, assignments, name));
    }
    let Some(real) = system::find(OsStr::new("sudo")) else { return system::pass_on(call) };
    if !urxe_run::serves(name) || !allows_env(&real) {
        return system::pass_on(call);
    }
    let mut all: Vec<OsString> = call.arguments[..parts.options].to_vec();
    all.push("env".into());
    all.extend(kept());
    all.extend(assignments.iter().cloned());
    all.push(std::env::current_exe()?.into());
    all.push("run".into());
    if environment::value(SYSFS).is_some() {
        all.push("--sysfs".into());
    }
    all.push("--".into());
    all.extend(program.iter().cloned());
    system::pass_on_words("sudo", &all)
}

/// Replaces this process. Returns why it is still there.
fn start(mut command: Command, assignments: &[OsString], name: &OsStr) -> AppletError {
    for word in assignments {
        let bytes = word.as_bytes();
        if let Some(at) = bytes.iter().position(|byte| *byte == b'=') {
            command.env(OsStr::from_bytes(&bytes[..at]), OsStr::from_bytes(&bytes[at + 1..]));
        }
    }
    AppletError::Start { error: command.exec(), program: name.into() }
}

/// Returns whether the real `sudo` runs `env` without a password.
fn allows_env(sudo: &Path) -> bool {
    let mut command = Command::new(sudo);
    command.args(["-n", "-l", "env"]).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Returns the settings of urxe as arguments of `env`.
fn kept() -> Vec<OsString> {
    let assigned = |name: &&str| {
        let mut word = OsString::from(format!("{name}="));
        word.push(environment::value(name)?);
        Some(word)
    };
    KEPT.iter().filter_map(assigned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (Parts, String) {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let parts = parse(&words);
        let rest = words[parts.options + parts.assignments..].join(" ");
        (parts, rest)
    }

    #[test]
    fn the_program_follows_options_and_variables() {
        for (text, program, other) in [
            ("modprobe rdma_rxe", "modprobe rdma_rxe", None),
            ("-n -E rdma link add -j", "rdma link add -j", None),
            ("-nE rdma link", "rdma link", None),
            ("-u root rdma link", "rdma link", Some("root")),
            ("-uroot -- rdma link", "rdma link", Some("root")),
            ("-nu nobody id", "id", Some("nobody")),
            ("--user=nobody id", "id", Some("nobody")),
            ("--user nobody A=1 id B=2", "id B=2", Some("nobody")),
            ("A=1 B=x=y make", "make", None),
            ("-p prompt ./a=b/run", "./a=b/run", None),
            ("-u", "", None),
        ] {
            let (parts, rest) = parts(text);
            assert_eq!((rest.as_str(), parts.other.as_deref()), (program, other), "{text}");
            assert!(!parts.is_special, "{text}");
        }
    }

    #[test]
    fn shells_and_lists_are_special() {
        for text in ["-i", "-s", "-l", "-nv", "--login", "-e file", "-K", "-V"] {
            assert!(parts(text).0.is_special, "{text}");
        }
    }

    #[test]
    fn commands_of_the_system_are_known_by_path() {
        for (program, expected) in [
            ("modprobe", Some("modprobe")),
            ("/usr/sbin/modprobe", Some("modprobe")),
            ("/sbin/rdma", Some("rdma")),
            ("./rdma", None),
            ("/opt/x/rdma", None),
            ("ip", None),
        ] {
            assert_eq!(own(program), expected, "{program}");
        }
    }
}
