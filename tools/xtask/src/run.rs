//! Runs the commands of a task: shows each, passes its output on and counts its tests.

use std::collections::VecDeque;
use std::fmt;
use std::fs::{self, File, Permissions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, bail};

#[cfg(test)]
mod tests;

/// The number of a failed command's last lines that its error repeats. Test programs end with the
/// names of the failed tests.
const LAST_LINES: usize = 80;

/// Numbers of passed and failed tests. A command without tests counts as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many passed.
    pub passed: u64,
    /// How many did not.
    pub failed: u64,
}

impl Tally {
    /// Counts the tests of a summary line; ignores other lines.
    ///
    /// | printed by | line |
    /// |---|---|
    /// | libtest, libtest-mimic | `test result: ok. 29 passed; 0 failed; 0 ignored; …` |
    /// | nextest | `Summary [   0.1s] 39 tests run: 38 passed (1 slow), 1 failed, 0 skipped` |
    fn read(&mut self, line: &str) {
        let line = line.trim_start();
        if !line.starts_with("test result: ") && !line.starts_with("Summary [") {
            return;
        }
        let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric()).collect();
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        for pair in words.windows(2) {
            let Ok(number) = pair[0].parse::<u64>() else { continue };
            match pair[1] {
                "passed" => self.passed += number,
                // nextest: "1 timed out", "1 exec failed".
                "failed" | "timed" | "exec" => self.failed += number,
                _ => {}
            }
        }
    }

    /// Adds the numbers of another tally.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// Runs the commands of one task.
pub struct Runner {
    /// The tests so far.
    pub tally: Tally,
    /// Takes the output of the commands.
    pub output: Box<dyn Write + Send>,
    /// Whether commands run at the lowest priority.
    pub yields: bool,
    /// Whether cargo builds incrementally, unless the environment decides. Incremental builds make
    /// the first build slower by a tenth.
    pub incremental: bool,
}

impl Default for Runner {
    fn default() -> Self {
        let output = Box::new(io::stdout());
        Self { tally: Tally::default(), output, yields: false, incremental: true }
    }
}

impl Runner {
    /// Runs a command and counts its tests. The working directory is the workspace's root.
    pub fn run(&mut self, command: &mut Command) -> Result<()> {
        self.run_accepting(command, &[0])
    }

    /// Runs two commands at the same time. The output of the second one goes to a file first, and
    /// follows that of the first one.
    pub fn run_both(
        &mut self,
        first: &mut Command,
        second: &mut Command,
        file: &Path,
    ) -> Result<()> {
        let mut beside = Self {
            tally: Tally::default(),
            output: Box::new(File::create(file)?),
            yields: self.yields,
            incremental: self.incremental,
        };
        let (first, second) = thread::scope(|scope| {
            let second = scope.spawn(|| beside.run(second));
            (self.run(first), second.join())
        });
        self.tally.add(beside.tally);
        self.output.write_all(&fs::read(file)?)?;
        first.and(second.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }

    /// Runs a command, of which any of the given exit statuses means success.
    pub fn run_accepting(&mut self, command: &mut Command, accepted: &[i32]) -> Result<()> {
        let shown = format!("{command:?}");
        writeln!(self.output, "\n$ {shown}")?;
        let mut own;
        let command = if self.yields {
            own = Command::new("nice");
            own.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
            own.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            &mut own
        } else {
            command
        };
        let (heard, said) = io::pipe()?;
        command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
        command.env("CARGO_TERM_COLOR", "never");
        if !self.incremental && std::env::var_os("CARGO_INCREMENTAL").is_none() {
            command.env("CARGO_INCREMENTAL", "0");
        }
        let mut child = command.spawn().with_context(|| format!("cannot start {shown}"))?;
        // The pipe ends when no process holds its write end, so this process closes its own.
        command.stdout(Stdio::null()).stderr(Stdio::null());

        let (mut counted, mut last) = (Tally::default(), VecDeque::new());
        let (mut heard, mut line) = (BufReader::new(heard), Vec::new());
        while heard.read_until(b'\n', &mut line)? > 0 {
            // The child is read to its end even when nothing takes our output any more.
            let _ = self.output.write_all(&line).and_then(|()| self.output.flush());
            let text = String::from_utf8_lossy(&line);
            counted.read(&text);
            if last.len() == LAST_LINES {
                last.pop_front();
            }
            last.push_back(text.trim_end().to_owned());
            line.clear();
        }
        let status = child.wait()?;
        let is_success = status.code().is_some_and(|code| accepted.contains(&code));
        match is_success {
            true if counted == Tally::default() => counted.passed = 1,
            // A failed build, or a program that died, has counted nothing.
            false if counted.failed == 0 => counted.failed = 1,
            _ => {}
        }
        self.tally.add(counted);
        if !is_success {
            bail!("{}\nfailed ({status}): {shown}", Vec::from(last).join("\n"));
        }
        Ok(())
    }
}

/// Returns a command of cargo.
pub fn cargo<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new("cargo");
    command.args(arguments);
    command
}

/// Returns the workspace's root folder.
pub fn root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root.pop();
    root
}

/// Writes a shell script for cargo to start instead of a compiler. Returns its path.
pub fn script(name: &str, command: &str) -> io::Result<PathBuf> {
    fs::create_dir_all(target_folder())?;
    let path = target_folder().join(name);
    // A running cargo may start the script, so it changes only as a whole.
    let written = target_folder().join(format!("{name}.{}", process::id()));
    fs::write(&written, format!("#!/bin/sh\n{command}\n"))?;
    fs::set_permissions(&written, Permissions::from_mode(0o755))?;
    fs::rename(written, &path)?;
    Ok(path)
}

/// Returns the folder of the builds.
pub fn target_folder() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}
