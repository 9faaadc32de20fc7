//! Programs of libibverbs: whether `urxe run` can serve them, and a system-wide installation.

use std::path::Path;

use super::{Name, Probe};
use crate::cmd::install::system_wide;
use crate::cmd::run::{View, view_here};
use crate::output::describe;

/// Programs that `urxe run` and `urxe env` start.
pub fn under_run() -> Probe {
    let name = Name("C programs with urxe run");
    match view_here() {
        Ok(View { folder, sysfs: None }) => name
            .limited(
                format!("the libraries are in {}", folder.display()),
                "programs that read /sys/class/infiniband (UCX, Mooncake) do not see the devices",
            )
            .advise("install all files of the package"),
        Ok(View { folder, sysfs: Some(Err(error)) }) => name
            .limited(
                format!("the libraries are in {}; {}", folder.display(), describe(&error)),
                "programs that read /sys/class/infiniband (UCX, Mooncake) do not see the devices",
            )
            .advise("set HOME or XDG_CACHE_HOME to a folder of this user"),
        Ok(View { folder, sysfs: Some(Ok(_)) }) => name.works(
            format!("the libraries are in {}", folder.display()),
            "programs use urxe, and see its devices in /sys/class/infiniband",
        ),
        Err(error) => name
            .unverified(describe(&error), "urxe run and urxe env do not work; Rust programs do")
            .advise("cargo xtask install --prefix ~/.local"),
    }
}

/// Programs that are started in another way.
pub fn without_run() -> Probe {
    let name = Name("programs without urxe run");
    match system_wide(Path::new("/")) {
        Some(folder) if folder.join("libibverbs.so.1").exists() => name.works(
            format!("urxe is installed system-wide from {}", folder.display()),
            "all programs use urxe; urxe uninstall --system-wide ends that",
        ),
        Some(folder) => name
            .limited(
                format!(
                    "the system-wide installation names {}, which has no library",
                    folder.display()
                ),
                "programs use the system's libibverbs",
            )
            .advise("urxe uninstall --system-wide"),
        None => name.works(
            "urxe is not installed system-wide",
            "these programs use the system's libibverbs and its devices",
        ),
    }
}
