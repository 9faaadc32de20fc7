//! An installation of `urxe` in a temporary folder, and programs that run with it.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Output, Stdio};
use std::sync::OnceLock;
use std::{env, fs};

use tempfile::TempDir;
use urxe_tests::process::build;

/// Debian's user without rights: uid and gid.
pub const NOBODY: (u32, u32) = (65534, 65534);

/// An installation: `bin/urxe`, the libraries in `lib`, and a home for the user.
pub struct Install {
    folder: TempDir,
    /// The folder of cargo's build.
    pub built: PathBuf,
}

/// The folder's name begins with this and the number of the test process.
const PREFIX: &str = "urxe-programs-";

/// The output of a program that found no fault.
pub const EXPECTED: &str = "all as expected\n";

/// Returns the installation, which the first test creates.
pub fn install() -> &'static Install {
    static INSTALL: OnceLock<Install> = OnceLock::new();
    INSTALL.get_or_init(Install::new)
}

/// Removes the folders of test processes that have ended. Nothing drops the installation of a
/// process, because it is static.
fn remove_old() {
    for entry in fs::read_dir(env::temp_dir()).unwrap().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        let pid = pid.and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // The folder of another user stays.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Returns whether this process runs as root, so that programs must run as another user.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Install {
    fn new() -> Self {
        let [binary, library, sysfs] = build(["urxe", "liburxe.so", "liburxe_sysfs.so"]).unwrap();
        remove_old();
        let folder = TempDir::with_prefix(format!("{PREFIX}{}-", process::id())).unwrap();
        let place = |from: &Path, to: &str| {
            let to = folder.path().join(to);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(from, &to).unwrap();
            fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
        };
        place(&binary, "bin/urxe");
        place(&library, "lib/liburxe.so");
        place(&sysfs, "lib/liburxe_sysfs.so");
        let home = folder.path().join("home");
        fs::create_dir(&home).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        if is_root() {
            chown(&home, Some(NOBODY.0), Some(NOBODY.1)).unwrap();
        }
        let built = binary.parent().unwrap().to_owned();
        Self { folder, built }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns a command as the ordinary user, in that user's home, without any configuration.
    pub fn user(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        self.environment(&mut command);
        if is_root() {
            command.uid(NOBODY.0).gid(NOBODY.1);
        }
        command
    }

    /// Sets the user's home and removes all configuration, for a command that changes the user on
    /// its own.
    pub fn environment(&self, command: &mut Command) {
        let home = self.path("home");
        command.current_dir(&home).env("HOME", &home).stdin(Stdio::null());
        for variable in
            ["XDG_CACHE_HOME", "XDG_CONFIG_HOME", "LD_LIBRARY_PATH", "URXE_DEVICES", "URXE_LOG"]
        {
            command.env_remove(variable);
        }
    }

    /// Returns a command of `urxe run` with these words, separated by blanks.
    pub fn run(&self, words: &str) -> Command {
        let mut command = self.user(self.path("bin/urxe"));
        command.arg("run").args(words.split_whitespace());
        command
    }
}

/// Runs a command, which must succeed. Returns the standard output.
#[track_caller]
pub fn ok(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}\n{}", text_of(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a program that was compiled here with these links. The program must report [`EXPECTED`].
#[track_caller]
pub fn passes(links: &str, program: &Path, arguments: &str) {
    let words = format!("{links} -- timeout 120 {} {arguments}", program.display());
    assert_eq!(ok(&mut install().run(&words)), EXPECTED);
}

/// Returns status and both outputs, for a message.
pub fn text_of(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// Compiles `tests/programs/NAME.c` to a folder where the ordinary user can run it.
pub fn compile(name: &str) -> PathBuf {
    // Links only needed libraries, because `urxe run` checks them.
    compile_as(name, &format!("bin/{name}"), &["-Wl,--as-needed", "-libverbs", "-lrdmacm"])
}

/// Compiles a program to this path of the installation, with these options at the end.
pub fn compile_as(name: &str, place: &str, options: &[&str]) -> PathBuf {
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name).with_extension("c");
    let program = install().path(place);
    let mut gcc = Command::new("gcc");
    gcc.args(["-Wall", "-Wextra", "-Werror", "-O1", "-g", "-o"])
        .arg(&program)
        .arg(source)
        .args(options);
    ok(&mut gcc);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}
