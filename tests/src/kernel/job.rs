//! A running command, of the host or of a guest: its output as it comes, its exit status, its time
//! limit.

use std::{
    ffi::{OsStr, OsString},
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use super::{Error, error::Context as _};

/// How long a guest's shell may take to answer a connection, on a machine busy with two emulators.
const SHELL_LIMIT: Duration = Duration::from_secs(20);

/// How often who waits looks whether there is a point in it.
const LOOK: Duration = Duration::from_secs(1);

/// Ends a guest command's output; what follows is the exit status.
const STATUS_MARK: u8 = 1;

/// A command that was started. Dropping it kills what still runs of it.
#[derive(Debug)]
pub struct Job {
    command: String,
    state: Arc<State>,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Host(Child),
    Guest(SocketAddr),
}

#[derive(Debug, Default)]
struct State {
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Progress {
    output: Vec<u8>,
    closed: bool,
    /// Of a guest's command: its process group, and its exit status.
    group: Option<u32>,
    status: Option<i32>,
}

/// A command that has ended.
#[derive(Debug)]
pub struct Finished {
    /// The command line.
    pub command: String,
    /// Exit status; -1 when a signal ended it.
    pub status: i32,
    /// Standard output and standard error, as they came.
    pub output: String,
}

impl Finished {
    /// The output of a command that succeeded.
    ///
    /// # Errors
    /// [`Error::Status`] when the exit status is not 0.
    pub fn ok(self) -> Result<String, Error> {
        if self.status == 0 {
            return Ok(self.output);
        }
        Err(Error::Status { command: self.command, status: self.status, output: self.output })
    }
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, bytes: &[u8]) {
        self.lock().output.extend_from_slice(bytes);
        self.changed.notify_all();
    }

    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Reads to the end; an error ends it too.
    fn follow(&self, mut from: impl Read) {
        let mut chunk = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut chunk) {
            self.append(&chunk[..length]);
        }
    }
}

impl Job {
    /// Starts a command of the host; its standard output and error are one stream.
    pub(super) fn on_host(command: &mut Command) -> Result<Self, Error> {
        let line = command_line(command);
        let (reader, writer) = io::pipe().context(|| "pipe".to_owned())?;
        let twin = writer.try_clone().context(|| "pipe".to_owned())?;
        command.stdin(Stdio::null()).stdout(writer).stderr(twin).process_group(0);
        let spawned = command.spawn();
        // The command keeps its ends of the pipe, which would never end.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = spawned.context(|| format!("start `{line}`"))?;
        let state = Arc::new(State::default());
        let follower = Arc::clone(&state);
        thread::spawn(move || {
            follower.follow(reader);
            follower.close();
        });
        Ok(Self { command: line, state, source: Source::Host(child) })
    }

    /// Starts a shell command in the guest whose shell listens at `shell`.
    pub(super) fn in_guest(shell: SocketAddr, command: &str) -> Result<Self, Error> {
        let mut stream = TcpStream::connect_timeout(&shell, SHELL_LIMIT)
            .context(|| format!("connect to the guest's shell at {shell}"))?;
        // Its own session: the process group dies as one, whatever the command starts.
        let quoted = command.replace('\'', r"'\''");
        let script = format!(
            "setsid sh -c 'echo $$\n{quoted}\n' </dev/null 2>&1\nprintf '\\{STATUS_MARK:03o}%d' $?\nexit\n"
        );
        stream.write_all(script.as_bytes()).context(|| format!("send `{command}` to {shell}"))?;
        let state = Arc::new(State::default());
        let follower = Arc::clone(&state);
        thread::spawn(move || {
            let mut reader = BufReader::new(&stream);
            let mut group = String::new();
            if reader.read_line(&mut group).is_ok() {
                follower.lock().group = group.trim().parse().ok();
                follower.follow(&mut reader);
            }
            let mut progress = follower.lock();
            if let Some(mark) = progress.output.iter().rposition(|&byte| byte == STATUS_MARK) {
                let status =
                    String::from_utf8_lossy(&progress.output[mark + 1..]).trim().parse().ok();
                progress.status = status;
                progress.output.truncate(mark);
            }
            drop(progress);
            follower.close();
            // Nothing is left to say; an error here means that the guest said so first.
            let _ = stream.shutdown(Shutdown::Both);
        });
        Ok(Self { command: command.to_owned(), state, source: Source::Guest(shell) })
    }

    /// What it has printed so far.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&self.state.lock().output).into_owned()
    }

    /// Waits until its output contains a text.
    ///
    /// # Errors
    /// [`Error::Timeout`] after the limit; [`Error::Status`] when it ended without saying so.
    pub fn wait_for(&mut self, text: &str, limit: Duration) -> Result<(), Error> {
        let said = |progress: &Progress| String::from_utf8_lossy(&progress.output).contains(text);
        let closed = self.wait_until(|progress| said(progress) || progress.closed, text, limit)?;
        if closed && !said(&self.state.lock()) {
            let status = self.status();
            return Err(Error::Status {
                command: self.command.clone(),
                status,
                output: self.output(),
            });
        }
        Ok(())
    }

    /// Waits until it ends.
    ///
    /// # Errors
    /// [`Error::Timeout`] after the limit; it is killed then.
    pub fn finish(self, limit: Duration) -> Result<Finished, Error> {
        self.finish_while(limit, || true)
    }

    /// Waits until it ends, as long as there is a point in it: who talks to a peer that died waits
    /// in vain.
    ///
    /// # Errors
    /// As [`Job::finish`]; [`Error::Abandoned`] within a second after there was none any more, when
    /// it is killed as well.
    pub fn finish_while(
        mut self,
        limit: Duration,
        is_sensible: impl Fn() -> bool,
    ) -> Result<Finished, Error> {
        let closed =
            self.wait_until(|progress| progress.closed || !is_sensible(), "its end", limit)?;
        if !closed {
            return Err(Error::Abandoned { command: self.command.clone(), output: self.output() });
        }
        Ok(Finished { command: self.command.clone(), status: self.status(), output: self.output() })
    }

    /// Kills it; what it has printed.
    pub fn stop(self) -> String {
        let output = self.output();
        drop(self);
        output
    }

    fn wait_until(
        &self,
        done: impl Fn(&Progress) -> bool,
        what: &str,
        limit: Duration,
    ) -> Result<bool, Error> {
        let end = Instant::now() + limit;
        let mut progress = self.state.lock();
        while !done(&progress) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::Timeout {
                    command: self.command.clone(),
                    waited_for: what.to_owned(),
                    limit,
                    output: String::from_utf8_lossy(&progress.output).into_owned(),
                });
            }
            progress = self
                .state
                .changed
                .wait_timeout(progress, left.min(LOOK))
                .map_or_else(|p| p.into_inner().0, |(guard, _)| guard);
        }
        Ok(progress.closed)
    }

    /// After the output's end.
    fn status(&mut self) -> i32 {
        match &mut self.source {
            Source::Host(child) => child.wait().ok().and_then(|status| status.code()).unwrap_or(-1),
            Source::Guest(_) => self.state.lock().status.unwrap_or(-1),
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        match &mut self.source {
            Source::Host(child) => {
                if let Ok(Some(_)) = child.try_wait() {
                    return;
                }
                if let Some(group) =
                    i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw)
                {
                    // It may have ended meanwhile.
                    let _ =
                        rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
                }
                let _ = child.wait();
            }
            Source::Guest(shell) => {
                let progress = self.state.lock();
                let Some(group) = progress.group.filter(|_| !progress.closed) else { return };
                drop(progress);
                // A guest that is gone has no process left either.
                if let Ok(mut stream) = TcpStream::connect_timeout(shell, SHELL_LIMIT) {
                    let _ = stream.write_all(format!("kill -9 -{group}\nexit\n").as_bytes());
                    let _ = stream.set_read_timeout(Some(SHELL_LIMIT));
                    let _ = stream.read_to_end(&mut Vec::new());
                }
            }
        }
    }
}

/// A command of the host, in the testbed's namespace: as nobody (uid and gid 65534, no groups), unless
/// told otherwise.
#[derive(Debug)]
pub struct HostCommand {
    command: Command,
}

impl HostCommand {
    /// A command of an unprivileged user, with `home` as its home.
    pub(super) fn unprivileged(program: impl AsRef<OsStr>, home: &OsStr) -> Self {
        let mut command = Command::new("setpriv");
        let rights = "--reuid=65534 --regid=65534 --clear-groups --no-new-privs";
        command.args(rights.split(' ')).args(["--pdeathsig=KILL", "--"]);
        command.arg(program).env("HOME", home).env_remove("XDG_CONFIG_HOME").current_dir(home);
        Self { command }
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.command.arg(arg.into());
        self
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.command.args(args);
        self
    }

    /// Adds arguments that are separated by blanks.
    pub fn words(self, words: &str) -> Self {
        self.args(words.split_whitespace())
    }

    /// Sets a variable of its environment.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be started.
    pub fn start(mut self) -> Result<Job, Error> {
        Job::on_host(&mut self.command)
    }
}

/// Runs a short command of the host to its end; its output.
pub(super) fn output_of(command: &mut Command) -> Result<String, Error> {
    Job::on_host(command)?.finish(Duration::from_secs(120))?.ok()
}

fn command_line(command: &Command) -> String {
    let words: Vec<_> = [command.get_program()]
        .into_iter()
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use std::{
        process::Command,
        thread,
        time::{Duration, Instant},
    };

    use super::{Error, Job};

    const LIMIT: Duration = Duration::from_secs(20);

    fn shell(script: &str) -> Job {
        Job::on_host(Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn output_and_status_are_reported() {
        let finished = shell("echo out; echo err >&2; exit 3").finish(LIMIT).unwrap();
        assert_eq!((finished.status, finished.output.as_str()), (3, "out\nerr\n"));
        assert!(matches!(finished.ok(), Err(Error::Status { status: 3, .. })));
    }

    #[test]
    fn a_text_is_waited_for_while_the_command_goes_on() {
        let mut job = shell("echo ready; exec sleep 100");
        job.wait_for("ready", LIMIT).unwrap();
        assert_eq!(job.stop(), "ready\n");
    }

    #[test]
    fn a_text_that_never_comes_is_an_error() {
        assert!(matches!(
            shell("exit 0").wait_for("ready", LIMIT),
            Err(Error::Status { status: 0, .. })
        ));
        let limit = Duration::from_millis(50);
        assert!(matches!(
            shell("exec sleep 100").wait_for("ready", limit),
            Err(Error::Timeout { .. })
        ));
    }

    #[test]
    fn dropping_kills_the_whole_group() {
        let job = shell("sleep 100 & echo $!; wait");
        let pid = loop {
            let output = job.output();
            if let Some(line) = output.strip_suffix('\n') {
                break line.to_owned();
            }
        };
        drop(job);
        // Killed, it goes in its own time, and may stay a zombie until its new parent looks.
        let end = Instant::now() + LIMIT;
        loop {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            if stat.is_empty() || stat.contains(") Z ") {
                return;
            }
            assert!(Instant::now() < end, "{stat}");
            thread::yield_now();
        }
    }
}
