//! The GitHub Action of `action.yml`, as a runner of GitHub plays it: its step sets the environment
//! of the later steps by files.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::install::{NOBODY, install, is_root, ok, text_of};

/// The folder of a job, and the files by which a step passes values to the runner.
struct Job(TempDir);

impl Job {
    fn new() -> Self {
        let folder = TempDir::with_prefix("urxe-action-").unwrap();
        for name in ["env", "path", "output"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let job = Self(folder);
        if is_root() {
            for path in ["", "env", "path", "output"].map(|name| job.0.path().join(name)) {
                chown(path, Some(NOBODY.0), Some(NOBODY.1)).unwrap();
            }
        }
        job
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Plays the step of the action with these inputs.
    fn set_up(&self, inputs: &[(&str, &str)]) -> Output {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let action = fs::read_to_string(root.join("action.yml")).unwrap();
        let script = "tools/action/set-up.sh";
        assert!(action.contains(&format!("run: '\"$GITHUB_ACTION_PATH/{script}\"'")), "{action}");
        // The user of the job reads no folder of this checkout.
        let copy = self.path(script);
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(root.join(script), &copy).unwrap();
        let mut step = install().user("bash");
        step.arg(copy).current_dir(self.0.path()).env("RUNNER_TEMP", self.0.path());
        for name in ["env", "path", "output"] {
            step.env(format!("GITHUB_{}", name.to_uppercase()), self.path(name));
        }
        for (input, value) in inputs {
            let variable = format!("{}: ${{{{ inputs.{input} }}}}", input.to_uppercase());
            assert!(action.contains(&variable), "action.yml does not pass {input}");
            step.env(input.to_uppercase(), value);
        }
        step.output().unwrap()
    }

    /// Returns a command of a later step.
    fn later(&self, words: &str) -> Command {
        let mut words = words.split_whitespace();
        let mut command = install().user("env");
        let added = fs::read_to_string(self.path("path")).unwrap();
        // The runner puts each line before the others.
        let path = added.lines().fold("/usr/bin:/bin".to_owned(), |path, line| {
            assert!(Path::new(line).is_dir(), "{line}");
            format!("{line}:{path}")
        });
        command.env_clear().env("HOME", self.0.path()).env("PATH", path);
        command.envs(self.variables()).args(&mut words);
        command
    }

    /// Returns the variables of the later steps.
    fn variables(&self) -> BTreeMap<String, String> {
        let text = fs::read_to_string(self.path("env")).unwrap();
        let mut lines = text.lines();
        let mut variables = BTreeMap::new();
        while let Some((name, end)) = lines.next().map(|line| line.split_once("<<").unwrap()) {
            let value = Vec::from_iter(lines.by_ref().take_while(|line| *line != end));
            variables.insert(name.to_owned(), value.join("\n"));
        }
        variables
    }
}

/// Makes an archive with the folder of the installation, as `cargo xtask package` does.
fn archive(folder: &Path) -> String {
    let archive = folder.join("urxe.tar.gz");
    let mut tar = Command::new("tar");
    tar.arg("-czf").arg(&archive).arg("--transform=s,^,urxe-0.1.0-x86_64/,");
    ok(tar.arg("-C").arg(install().path(".")).args(["bin/urxe", "lib"]));
    archive.to_str().unwrap().to_owned()
}

#[test]
fn later_steps_of_a_job_use_rdma() {
    let job = Job::new();
    let package = archive(job.0.path());
    let inputs = [
        ("package", package.as_str()),
        ("devices", "rxe0=127.0.0.1,rxe1=127.0.0.2"),
        ("faults", "delay=50us,seed=7"),
        ("captures", "packets"),
    ];
    let output = job.set_up(&inputs);
    assert!(output.status.success(), "{}", text_of(&output));
    let prefix = job.path("urxe").display().to_string();
    assert_eq!(fs::read_to_string(job.path("output")).unwrap(), format!("prefix={prefix}\n"));
    assert_eq!(job.variables()["URXE_FAULTS"], "delay=50us,seed=7");

    let devices = ok(&mut job.later("ibv_devices"));
    assert!(devices.contains("rxe0") && devices.contains("rxe1"), "{devices}");
    // The client waits for the server by trying again.
    let script = "timeout 60 ibv_rc_pingpong -d rxe0 -g 0 -p 20999 > server &
        until timeout 60 ibv_rc_pingpong -d rxe1 -g 0 -p 20999 127.0.0.1 > client 2> error; do
            grep -q \"Couldn't connect\" error || exit 1
            sleep 0.05
        done
        wait $!";
    ok(job.later("bash -c").arg(script).current_dir(job.0.path()));
    let packets = Vec::from_iter(fs::read_dir(job.path("packets")).unwrap());
    let of_pingpong = |file: &std::io::Result<fs::DirEntry>| {
        let mut decode = job.later("urxe decode");
        let text = ok(decode.arg(file.as_ref().unwrap().path()));
        text.contains("SEND") && text.contains("ACK")
    };
    assert_eq!(packets.iter().filter(|file| of_pingpong(file)).count(), 2, "{packets:?}");
}

#[test]
fn wrong_inputs_of_the_action_are_errors_that_name_them() {
    let folder = TempDir::with_prefix("urxe-action-input-").unwrap();
    let installed = install().path(".").display().to_string();
    let missing = folder.path().join("none.tar.gz").display().to_string();
    let empty = folder.path().display().to_string();
    for (inputs, why) in [
        (vec![("package", missing.as_str())], "there is no file"),
        (vec![("package", empty.as_str())], "is a .deb, a .tar.gz or an installed prefix"),
        (vec![("package", installed.as_str()), ("faults", "los=1")], "unknown fault \"los\""),
        (
            vec![("package", installed.as_str()), ("devices", "rxe0=192.0.2.77")],
            "192.0.2.77 is not an address of this machine",
        ),
    ] {
        let job = Job::new();
        let output = job.set_up(&inputs);
        let text = text_of(&output);
        assert!(output.status.code() == Some(1), "{text}");
        assert!(text.contains("::error title=urxe::") && text.contains(why), "{text}");
    }
}
