//! The scripts of `urxe completions`: each shell loads its script and completes a subcommand.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common::{User, run};

/// Writes the script of a shell to `_urxe` in a folder, where zsh expects that name.
fn written(shell: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let script = run(&format!("completions {shell}")).ok();
    fs::write(folder.path().join("_urxe"), script).unwrap();
    folder
}

/// Returns the output of a shell, or none if the shell is missing.
fn output(shell: &str, arguments: &[&str], folder: &Path) -> Option<String> {
    let mut command = Command::new("timeout");
    command.args(["30", shell]).args(arguments).env("FOLDER", folder).env("HOME", folder);
    command.env("TERM", "dumb").env_remove("XDG_CONFIG_HOME").stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().unwrap();
    if status.code() == Some(127) {
        eprintln!("skipped: {shell} is not installed");
        return None;
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(status.success(), "{status}: {}{}", text(&stdout), text(&stderr));
    assert_eq!(text(&stderr), "");
    Some(text(&stdout))
}

#[test]
fn bash_completes_a_subcommand() {
    let script = "source \"$FOLDER/_urxe\"\n\
                  COMP_WORDS=(urxe li) COMP_CWORD=1 COMPREPLY=()\n\
                  complete -p urxe > /dev/null\n_urxe urxe li urxe\necho \"${COMPREPLY[*]}\"\n";
    let arguments = ["--norc", "--noprofile", "-euc", script];
    if let Some(text) = output("bash", &arguments, written("bash").path()) {
        assert_eq!(text, "listen link\n");
    }
}

#[test]
fn zsh_completes_a_subcommand() {
    // A terminal of zsh's own, because only the line editor completes.
    let script = r#"
        zmodload zsh/zpty
        zpty terminal zsh -f -i
        zpty -w terminal "fpath=($FOLDER \$fpath); PS1=; autoload -U compinit; compinit -u -D"
        zpty -w terminal 'echo rea''dy'
        zpty -r -m terminal all '*ready*'
        zpty -w -n terminal $'urxe unin\t'
        zpty -r -m terminal completed '*stall*'
        print -r -- "${completed##*urxe}"
        zpty -d terminal
    "#;
    if let Some(text) = output("zsh", &["-fc", script], written("zsh").path()) {
        assert!(text.contains("stall"), "{text:?}");
    }
}

#[test]
fn fish_completes_a_subcommand() {
    let script = "source $FOLDER/_urxe; complete -C 'urxe li'";
    let arguments = ["--no-config", "-c", script];
    if let Some(text) = output("fish", &arguments, written("fish").path()) {
        let names: Vec<&str> = text.lines().filter_map(|line| line.split('\t').next()).collect();
        assert_eq!(names, ["link", "listen"]);
    }
}

#[test]
fn variables_of_captures_do_not_hinder() {
    let mut command = User::new().urxe("completions bash");
    let output = command.env("URXE_CAPTURE", "x").env("URXE_FAULTS", "loss=1%").output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}
