//! The test of a wheel in two virtual environments, without a package index.
//!
//! | environment | content | test |
//! |---|---|---|
//! | `fresh` | Debian's Python and the wheel | the command, and that removal leaves nothing |
//! | `debian` | also Debian's pyverbs and pytest | `tools/python/tests` |

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::machine::need_packages;
use crate::run::{Runner, root};

/// Debian's Python, for which Debian's pyverbs is built. `python3` in `PATH` may be another one.
const PYTHON: &str = "/usr/bin/python3";
const PACKAGES: [&str; 4] = ["ibverbs-utils", "python3-pytest", "python3-pyverbs", "python3-venv"];
/// Both sides of a ping-pong.
const PINGPONG: &str = "tests/chroots/pingpong.sh";

/// Installs the wheel below `place` and tests it.
pub fn check(wheel: &Path, place: &Path, runner: &mut Runner) -> Result<()> {
    need_packages(&PACKAGES, runner)?;
    let fresh = Environment::create(place.join("fresh"), &[], wheel, runner)?;
    runner.run(&mut fresh.program("python", &["-m", "pip", "check"]))?;
    runner.run(&mut fresh.program("urxe", &["--version"]))?;
    runner.run(&mut fresh.program("urxe", &["run", "--", "ibv_devinfo"]))?;
    runner.run(Command::new("sh").arg(root().join(PINGPONG)).env("PATH", fresh.path()))?;
    runner.run(&mut fresh.program("python", &["-m", "pip", "uninstall", "-y", "urxe"]))?;
    let mut find = Command::new("find");
    let left = find.arg(&fresh.folder).args(["-name", "*urxe*"]).output()?;
    let left = String::from_utf8_lossy(&left.stdout);
    ensure!(left.is_empty(), "pip uninstall leaves:\n{left}");

    let options = ["--system-site-packages"];
    let debian = Environment::create(place.join("debian"), &options, wheel, runner)?;
    let mut tests = debian.program("python", &["-B", "-m", "pytest", "-p", "no:cacheprovider"]);
    tests.arg("--basetemp").arg(place.join("temporary"));
    runner.run(tests.arg("-q").arg(root().join("tools/python/tests")))
}

/// A virtual environment with the wheel.
struct Environment {
    folder: PathBuf,
}

impl Environment {
    fn create(
        folder: PathBuf,
        options: &[&str],
        wheel: &Path,
        runner: &mut Runner,
    ) -> Result<Self> {
        runner.run(Command::new(PYTHON).args(["-m", "venv"]).args(options).arg(&folder))?;
        let environment = Self { folder };
        let install = ["-m", "pip", "install", "--no-index", "--no-deps", "--quiet"];
        runner.run(environment.program("python", &install).arg(wheel))?;
        Ok(environment)
    }

    /// Returns a command of the environment, as in a shell that has activated it.
    fn program(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.folder.join("bin").join(name));
        command.args(arguments).env("PATH", self.path());
        command
    }

    fn path(&self) -> String {
        let old = std::env::var("PATH").unwrap_or_default();
        format!("{}:{old}", self.folder.join("bin").display())
    }
}
