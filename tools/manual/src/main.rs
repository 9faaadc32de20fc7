//! `urxe-manual PREFIX DATE`: writes the manual pages and the shell completions below a prefix.
//! `cargo xtask manual`, `install` and `package` run it.
//!
//! ```text
//!   PREFIX/share/man/man1/urxe.1, urxe-run.1, …        from the definition of the command line
//!                                                      and docs/manual.md
//!   PREFIX/share/man/man7/urxe-environment.7, …        from other pages of docs
//!   PREFIX/share/bash-completion/completions/urxe      from the definition of the command line
//!   PREFIX/share/zsh/site-functions/_urxe
//!   PREFIX/share/fish/vendor_completions.d/urxe.fish
//! ```
//! No generated file is in the repository. So a page cannot differ from the help or from docs.
//!
//! | file | subject |
//! |---|---|
//! | `commands` | pages of section 1 |
//! | `topics` | pages of section 7 |
//! | `page` | a page: its sections, their order, its text in roff |
//! | `markdown` | Markdown as roff |
//! | `table` | tables, for the preprocessor tbl |
#![forbid(unsafe_code)]

mod commands;
mod markdown;
mod page;
mod table;
mod topics;

#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::ValueEnum as _;
use page::Page;
use urxe_tools::Shell;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [prefix, date] = &arguments[..] else {
        eprintln!("usage: urxe-manual PREFIX DATE");
        // cargo xtask asks by --help whether this machine can run the program.
        return ExitCode::from(if arguments == ["--help"] { 0 } else { 2 });
    };
    match write(Path::new(prefix), date) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("urxe-manual: cannot write below {prefix}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes all files below a prefix. The pages have this date.
fn write(prefix: &Path, date: &str) -> io::Result<()> {
    let share = prefix.join("share");
    for page in pages() {
        let folder = share.join(format!("man/man{}", page.number));
        put(&folder, &format!("{}.{}", page.name, page.number), page.roff(date).as_bytes())?;
    }
    for shell in Shell::value_variants() {
        let (folder, name) = match shell {
            Shell::Bash => ("bash-completion/completions", "urxe"),
            Shell::Zsh => ("zsh/site-functions", "_urxe"),
            Shell::Fish => ("fish/vendor_completions.d", "urxe.fish"),
        };
        put(&share.join(folder), name, &shell.script(urxe_tools::command()))?;
    }
    Ok(())
}

/// Returns all pages.
fn pages() -> Vec<Page> {
    let mut pages = commands::pages();
    pages.extend(topics::pages());
    pages
}

/// Writes a file. It replaces an old one atomically, because a program may read the old one.
fn put(folder: &Path, name: &str, text: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let fresh = folder.join(format!(".{name}.fresh"));
    fs::write(&fresh, text)?;
    fs::rename(fresh, folder.join(name))
}
