//! `urxe completions`: prints the script by which a shell completes the options of `urxe`.
//!
//! The script follows from the definition of the command line, so it has no other list of options.
//! Hidden options, which only `urxe` itself passes, are in no script.

use std::collections::BTreeSet;
use std::io::Write;

use clap::{Command, CommandFactory as _, ValueEnum};
use clap_complete::aot;

use crate::cmd::{Cli, CmdError, Outcome};
use crate::output;

/// The name by which the shell knows the command.
const NAME: &str = "urxe";

/// Arguments of `urxe completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The packages install the scripts. Without a package, for the present shell:
  bash:  source <(urxe completions bash)
  zsh:   source <(urxe completions zsh)
  fish:  urxe completions fish | source")]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// The shells that have a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// GNU Bash
    Bash,
    /// The Z shell
    Zsh,
    /// The friendly interactive shell
    Fish,
}

impl Args {
    /// Prints the script.
    pub fn run(self) -> Result<Outcome, CmdError> {
        let mut out = output::data();
        out.write_all(&self.shell.script(Cli::command()))?;
        out.flush()?;
        Ok(Outcome::Done)
    }
}

impl Shell {
    /// Returns the script for a command line with this definition.
    #[must_use]
    pub fn script(self, command: Command) -> Vec<u8> {
        let shell = match self {
            Self::Bash => aot::Shell::Bash,
            Self::Zsh => aot::Shell::Zsh,
            Self::Fish => aot::Shell::Fish,
        };
        let (mut command, mut script) = (command, Vec::new());
        aot::generate(shell, &mut command, NAME, &mut script);
        without_hidden(&String::from_utf8_lossy(&script), &command).into_bytes()
    }
}

/// Removes the options that the help does not show from a script. clap_complete writes them.
///
/// | shell | the line of an option |
/// |---|---|
/// | bash | `opts="--one --two"`, with all options of a subcommand |
/// | zsh | `'--one=[help]:VALUE:_default' \` |
/// | fish | `complete -c urxe -n "condition" -l one -d 'help'` |
fn without_hidden(script: &str, command: &Command) -> String {
    let (mut hidden, mut shown) = (BTreeSet::new(), BTreeSet::new());
    options(command, &mut hidden, &mut shown);
    let hidden: Vec<&String> = hidden.difference(&shown).collect();
    let has = |line: &str, name: &str| match line.trim_start() {
        line if line.starts_with('\'') => {
            line.contains(&format!("{name}[")) || line.contains(&format!("{name}=["))
        }
        line if line.starts_with("complete -c ") => line.contains(&format!(" -l {} ", &name[2..])),
        _ => false,
    };
    let lines = script.lines().filter(|line| !hidden.iter().any(|name| has(line, name)));
    let line = |line: &str| match line.trim_start().strip_prefix("opts=\"") {
        Some(words) => {
            let is_shown = |word: &&str| !hidden.iter().any(|name| name == word);
            let words: Vec<&str> = words.split(' ').filter(is_shown).collect();
            format!("opts=\"{}\n", words.join(" "))
        }
        None => format!("{line}\n"),
    };
    lines.map(line).collect()
}

/// Collects the long options of a command and of its subcommands.
fn options(command: &Command, hidden: &mut BTreeSet<String>, shown: &mut BTreeSet<String>) {
    for argument in command.get_arguments() {
        let names = argument.get_long().map(|name| format!("--{name}"));
        if argument.is_hide_set() { hidden.extend(names) } else { shown.extend(names) }
    }
    command.get_subcommands().for_each(|command| options(command, hidden, shown));
}
