//! The system's commands, which stand behind urxe's in `PATH`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use urxe_stack::sys::environment;

use super::{AppletError, Call};

/// Folders of commands for root, which the `PATH` of other users often lacks.
const MORE: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Replaces this process with the system's command, with all arguments.
pub fn pass_on(call: &Call) -> Result<ExitCode, AppletError> {
    pass_on_words(call.name, &call.arguments)
}

/// Replaces this process with the system's command of this name.
pub fn pass_on_words(name: &str, arguments: &[OsString]) -> Result<ExitCode, AppletError> {
    let program =
        find(OsStr::new(name)).ok_or_else(|| AppletError::NoCommand { name: name.to_owned() })?;
    let error = Command::new(&program).arg0(name).args(arguments).exec();
    Err(AppletError::Start { program, error })
}

/// Returns the system's command of this name. Another installation of urxe is not the system's.
pub fn find(name: &OsStr) -> Option<PathBuf> {
    let path = environment::value("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let folders = env::split_paths(&path).chain(MORE.iter().map(PathBuf::from));
    let own = env::current_exe().and_then(fs::canonicalize).unwrap_or_default();
    folders.map(|folder| folder.join(name)).find(|file| {
        let program = fs::canonicalize(file).unwrap_or_default();
        is_executable(&program)
            && program != own
            && (program.file_name() != Some(OsStr::new("urxe")) || name == "urxe")
    })
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
