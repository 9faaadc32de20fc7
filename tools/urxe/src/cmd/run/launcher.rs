//! Programs that start another program without the variables of `urxe run`.
//!
//! The table is by name. It has programs that clear the environment, and programs that start others
//! in another file system.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The result of a look at the name and the arguments of a program.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The program passes the variables on, as far as known.
    Passes,
    /// The program would run, and others without urxe. The sentence says what to do instead.
    Note(String),
    /// The program would only start another program without urxe. The sentence says what to do
    /// instead.
    Refused(String),
}

/// Returns what a program with these arguments does with the variables.
pub fn check(program: &Path, arguments: &[OsString]) -> Verdict {
    let name = program.file_name().and_then(OsStr::to_str).unwrap_or_default();
    match name {
        "sudo" | "doas" | "pkexec" => Verdict::Refused(format!(
            "{name} removes the variables by which the loader finds urxe; put urxe run behind it: \
             {name} {} run -- PROGRAM",
            own()
        )),
        "su" | "runuser" if !rustix::process::getuid().is_root() => Verdict::Refused(format!(
            "{name} runs as another user, so the loader does not find urxe; put urxe run into its \
             command: {name} -c '{} run -- PROGRAM' USER",
            own()
        )),
        "env" if clears(arguments) => Verdict::Refused(format!(
            "env -i removes the variables by which the loader finds urxe; put urxe run behind it: \
             env -i HOME=\"$HOME\" {} run -- PROGRAM",
            own()
        )),
        "docker" | "podman" | "nerdctl" if starts_container(arguments) => Verdict::Note(format!(
            "programs in a container do not see urxe; install urxe in the image, and start {name} \
             with: IMAGE urxe run -- PROGRAM"
        )),
        "chroot" => Verdict::Note(
            "programs behind chroot see other files, so the loader does not find urxe; install \
             urxe there, and put urxe run behind it: chroot FOLDER urxe run -- PROGRAM"
                .to_owned(),
        ),
        "systemd-run" => Verdict::Note(format!(
            "systemd starts programs without the variables by which the loader finds urxe; put \
             urxe run behind it: systemd-run {} run -- PROGRAM",
            own()
        )),
        _ => Verdict::Passes,
    }
}

/// Returns the path of this program.
fn own() -> String {
    let path = std::env::current_exe().map(|path| path.display().to_string());
    path.unwrap_or_else(|_| "urxe".to_owned())
}

/// Returns whether these arguments of env(1) clear the environment or a variable of the loader.
fn clears(arguments: &[OsString]) -> bool {
    let mut words = arguments.iter().filter_map(|word| word.to_str());
    while let Some(word) = words.next() {
        match word {
            "-" | "-i" | "--ignore-environment" => return true,
            "-u" | "--unset" if words.next().is_some_and(is_of_loader) => return true,
            "-u" | "--unset" => {}
            "-C" | "--chdir" => {
                words.next();
            }
            // The value has options and a program, in one word or in the next words.
            "-S" | "--split-string" => {}
            "--" => return false,
            _ if word.starts_with("--") => {
                if word.strip_prefix("--unset=").is_some_and(is_of_loader) {
                    return true;
                }
            }
            _ if word.starts_with('-') => {
                // Several short options in a word, up to one with a value.
                let options = word[1..].split(['u', 'C', 'S']).next().unwrap_or_default();
                if options.contains('i') || word.strip_prefix("-u").is_some_and(is_of_loader) {
                    return true;
                }
            }
            _ if word.contains('=') => {}
            _ => return false,
        }
    }
    false
}

fn is_of_loader(variable: &str) -> bool {
    variable == "LD_LIBRARY_PATH" || variable == "LD_PRELOAD"
}

/// Returns whether these arguments of a container program start a container.
fn starts_container(arguments: &[OsString]) -> bool {
    const STARTS: [&str; 7] = ["run", "exec", "compose", "create", "start", "build", "kube"];
    let word = arguments.iter().filter_map(|word| word.to_str());
    word.take_while(|word| *word != "--").any(|word| STARTS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(words: &str) -> Verdict {
        let mut words = words.split(' ');
        let program = Path::new("/usr/bin").join(words.next().unwrap());
        check(&program, &words.map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn programs_that_clear_the_environment_are_refused() {
        for words in [
            "sudo make",
            "sudo -E make",
            "doas make",
            "env -i make",
            "env - make",
            "env -iS make",
            "env -S -i make",
            "env -v -i A=1 make",
            "env A=1 -u B -i make",
            "env -u LD_PRELOAD make",
            "env --unset=LD_LIBRARY_PATH make",
            "env -uLD_PRELOAD make",
            "env --ignore-environment make",
        ] {
            let verdict = verdict(words);
            assert!(matches!(&verdict, Verdict::Refused(text) if text.contains("run -- PROGRAM")));
        }
    }

    #[test]
    fn the_same_words_behind_the_program_are_its_own() {
        for words in [
            "env",
            "env make -i",
            "env A=1 make -i",
            "env -u HOME make -i",
            "env -C -i make",
            "env -- make -i",
            "env -v make sudo",
            "make -i",
            "docker ps",
            "docker images --format run:latest",
            "podman version",
        ] {
            assert_eq!(verdict(words), Verdict::Passes, "{words}");
        }
    }

    #[test]
    fn containers_run_with_a_note() {
        for words in [
            "docker run --rm debian true",
            "docker compose up",
            "podman --log-level=debug exec c true",
            "chroot / true",
            "systemd-run true",
        ] {
            let verdict = verdict(words);
            assert!(matches!(&verdict, Verdict::Note(text) if text.contains("urxe")), "{words}");
        }
    }
}
