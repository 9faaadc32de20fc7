//! A running command of the host or of a guest, with its output, exit status and time limit.

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

/// How long a guest's shell may take to accept a connection on a machine with two emulators.
const SHELL_LIMIT: Duration = Duration::from_secs(20);

/// How often a waiting thread checks whether waiting still makes sense.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The end mark of a guest command's output. The exit status follows.
const STATUS_MARK: u8 = 1;

/// A started command. Dropping it kills its remaining processes.
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
    /// For a guest's command: the process group and the exit status.
    group: Option<u32>,
    status: Option<i32>,
}

/// A command that has ended.
#[derive(Debug)]
pub struct Finished {
    /// The command line.
    pub command: String,
    /// The exit status; -1 if a signal ended the command.
    pub status: i32,
    /// Standard output and standard error, in order of arrival.
    pub output: String,
}

impl Finished {
    /// Returns the output of a successful command.
    ///
    /// # Errors
    /// [`Error::Status`] if the exit status is not 0.
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

    /// Reads until the end of the stream, or an error.
    fn follow(&self, mut from: impl Read) {
        let mut chunk = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut chunk) {
            self.append(&chunk[..length]);
        }
    }
}

impl Job {
    /// Starts a command of the host. Standard output and standard error are one stream.
    pub(super) fn on_host(command: &mut Command) -> Result<Self, Error> {
        let line = command_line(command);
        let (reader, writer) = io::pipe().context(|| "pipe".to_owned())?;
        let stderr = writer.try_clone().context(|| "pipe".to_owned())?;
        command.stdin(Stdio::null()).stdout(writer).stderr(stderr).process_group(0);
        let spawned = command.spawn();
        // The command holds its ends of the pipe; while they are open, the pipe does not end.
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
        // With a session of its own, all processes of the command can be killed as one process
        // group.
        let quoted = command.replace('\'', r"'\''");
        let script = format!(
            "setsid sh -c 'echo $$\n{quoted}\n' </dev/null 2>&1\n\
             printf '\\{STATUS_MARK:03o}%d' $?\nexit\n"
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
            // All output has been read; an error here means that the guest closed the connection
            // first.
            let _ = stream.shutdown(Shutdown::Both);
        });
        Ok(Self { command: command.to_owned(), state, source: Source::Guest(shell) })
    }

    /// Returns the output so far.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&self.state.lock().output).into_owned()
    }

    /// Waits until the output contains a text.
    ///
    /// # Errors
    /// [`Error::Timeout`] after the limit; [`Error::Status`] if the command ended without the text.
    pub fn wait_for(&mut self, text: &str, limit: Duration) -> Result<(), Error> {
        let is_printed =
            |progress: &Progress| String::from_utf8_lossy(&progress.output).contains(text);
        let closed =
            self.wait_until(|progress| is_printed(progress) || progress.closed, text, limit)?;
        if closed && !is_printed(&self.state.lock()) {
            let status = self.status();
            return Err(Error::Status {
                command: self.command.clone(),
                status,
                output: self.output(),
            });
        }
        Ok(())
    }

    /// Waits until the command ends.
    ///
    /// # Errors
    /// [`Error::Timeout`] after the limit; the command is killed then.
    pub fn finish(self, limit: Duration) -> Result<Finished, Error> {
        self.finish_while(limit, || true)
    }

    /// Waits until the command ends, as long as `is_sensible` returns true. A command whose peer
    /// has died would never end.
    ///
    /// # Errors
    /// As [`Job::finish`]; [`Error::Abandoned`] at most a second after `is_sensible` returned
    /// false, when the command is killed as well.
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

    /// Kills the command. Returns the output so far.
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
                .wait_timeout(progress, left.min(CHECK_INTERVAL))
                .map_or_else(|p| p.into_inner().0, |(guard, _)| guard);
        }
        Ok(progress.closed)
    }

    /// Kills the command in the guest, and waits for its end. A command that was started just now
    /// may not have its process group yet.
    fn kill_in_guest(&self, shell: SocketAddr) {
        let _ = self.wait_until(
            |progress| progress.group.is_some() || progress.closed,
            "its process group",
            SHELL_LIMIT,
        );
        let progress = self.state.lock();
        let Some(group) = progress.group.filter(|_| !progress.closed) else { return };
        drop(progress);
        // A guest that is gone has no processes left.
        if let Ok(mut stream) = TcpStream::connect_timeout(&shell, SHELL_LIMIT) {
            let _ = stream.write_all(format!("kill -9 -{group}\nexit\n").as_bytes());
            let _ = stream.set_read_timeout(Some(SHELL_LIMIT));
            let _ = stream.read_to_end(&mut Vec::new());
            let _ = self.wait_until(|progress| progress.closed, "its end", SHELL_LIMIT);
        }
    }

    /// Returns the exit status, after the end of the output.
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
                    // The command may have ended meanwhile.
                    let _ =
                        rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
                }
                let _ = child.wait();
            }
            &mut Source::Guest(shell) => self.kill_in_guest(shell),
        }
    }
}

/// A command of the host in the testbed's namespace, as the user `nobody` (uid and gid 65534, no
/// groups).
#[derive(Debug)]
pub struct HostCommand {
    command: Command,
}

impl HostCommand {
    /// Creates a command of an unprivileged user with `home` as the home folder.
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

    /// Adds arguments from a text, separated by blanks.
    pub fn words(self, words: &str) -> Self {
        self.args(words.split_whitespace())
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Starts the command.
    ///
    /// # Errors
    /// [`Error::Io`] if the command cannot be started.
    pub fn start(mut self) -> Result<Job, Error> {
        Job::on_host(&mut self.command)
    }
}

/// Runs a short command of the host until it ends. Returns the output.
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
        // The killed process may need some time, and stays a zombie until its new parent waits for
        // it.
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
