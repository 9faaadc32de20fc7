//! The commands of README.md and of the book (`docs`), in the order in which each page has them.
//!
//! Each page gets a fresh home directory, and a shell runs its blocks `sh` and `console` as one
//! script. In a block `console`, commands begin with `$ `; the other lines are output. The output
//! of the test must have the same lines in this order, where a word with a digit stands for any
//! other. It may have more lines. A comment before a block says why its commands do not run:
//!
//! | comment | meaning |
//! |---|---|
//! | `<!-- not run: REASON -->` | the commands need what the tests lack, such as a second host |
//! | `<!-- recipe: NAME -->` | `cargo xtask recipes` runs them; docs/recipes.md has them |
//!
//! Three commands differ from the page ([`FUNCTIONS`]):
//!
//! - `sleep 1` waits until the server in the background listens. `wait` returns the exit status of
//!   that server.
//! - `cargo` runs programs of this build. The installation of the tests stands for `cargo xtask
//!   install`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Instant;

use tempfile::TempDir;
use urxe_tests::process::build;

use crate::install::{NOBODY, install, is_root, text_of};
use crate::pair::exclusive;

/// The shell functions that stand for `sleep`, `wait` and `cargo`. A server listens on a TCP port
/// (18515: the ping-pongs and perftest, 13337: UCX, 47592: libfabric), or by `rdma_cm`.
const FUNCTIONS: &str = r#"
sleep() {
    for attempt in $(seq 300); do
        command sleep 0.1
        if grep -qiE ':(4853|3419|B9E8) .* 0A ' /proc/net/tcp /proc/net/tcp6; then return; fi
        if urxe link show --connections | grep -q LISTEN; then return; fi
    done
    echo "no server listens" >&2
    return 1
}
wait() {
    command wait "$!"
}
cargo() {
    case $* in
    "xtask install --prefix $HOME/.local" | "xtask package" | "xtask wheel") ;;
    "run --release -p urxe-tools -- "*) shift 5; urxe "$@" ;;
    "run --release -p urxe --example ping_pong") "$PING_PONG" ;;
    *) echo "the test does not know cargo $*" >&2; return 1 ;;
    esac
}
"#;

/// Words at the begin of a line of a block `text` that make the line a command.
const COMMANDS: [&str; 8] =
    ["$ ", "urxe ", "cargo ", "sudo ", "apt-get ", "pip ", "mpirun", "export "];

/// A block of commands.
#[derive(Debug, PartialEq)]
struct Block {
    /// The line of its first command.
    line: usize,
    /// How the commands are proven.
    proof: Proof,
    /// The commands, a line each.
    commands: Vec<String>,
    /// The shown output; none in a block `sh`.
    output: Option<Vec<String>>,
}

#[derive(Debug, PartialEq)]
enum Proof {
    Run,
    Recipe(String),
    NotRun(String),
}

/// Returns the blocks of commands of a page, or its faults, a line each.
fn blocks(page: &str) -> Result<Vec<Block>, Vec<String>> {
    let (mut blocks, mut faults) = (Vec::<Block>::new(), Vec::new());
    let (mut marker, mut language) = (None, None::<&str>);
    for (line, number) in page.lines().zip(1..) {
        if let Some(opened) = language {
            if line.trim_start() == "```" {
                language = None;
                continue;
            }
            match opened {
                "sh" => blocks.last_mut().expect("one is open").commands.push(line.to_owned()),
                "console" => {
                    let block = blocks.last_mut().expect("one is open");
                    let is_free = !block.commands.is_empty() || block.proof != Proof::Run;
                    match line.strip_prefix("$ ") {
                        Some(command) => block.commands.push(command.to_owned()),
                        None if line.starts_with("# ") && !is_free => {
                            faults.push(format!("{number}: a command of root needs `not run`"));
                        }
                        None => block.output.get_or_insert_default().push(line.to_owned()),
                    }
                }
                "text" if COMMANDS.iter().any(|word| line.starts_with(word)) => {
                    faults.push(format!("{number}: write commands in a block `console`"));
                }
                _ => {}
            }
        } else if let Some(opened) = line.trim_start().strip_prefix("```") {
            language = Some(opened);
            let is_shell = matches!(opened, "sh" | "console");
            let proof = match marker.take() {
                None => Proof::Run,
                Some(_) if !is_shell => {
                    faults.push(format!("{number}: the comment above needs a block of commands"));
                    continue;
                }
                Some(proof) => proof,
            };
            if is_shell {
                let output = (opened == "console").then(Vec::new);
                blocks.push(Block { line: number + 1, proof, commands: Vec::new(), output });
            }
        } else if marker.is_some() {
            faults.push(format!("{number}: the comment above must be before its block"));
            marker = None;
        } else if let Some(comment) = line.strip_prefix("<!-- ") {
            let text = comment.strip_suffix(" -->").and_then(|text| text.split_once(": "));
            marker = match text {
                Some(("not run", reason)) => Some(Proof::NotRun(reason.to_owned())),
                Some(("recipe", name)) => Some(Proof::Recipe(name.to_owned())),
                _ => {
                    faults.push(format!("{number}: not a comment of this test: {line}"));
                    None
                }
            };
        }
    }
    if faults.is_empty() { Ok(blocks) } else { Err(faults) }
}

/// Returns a line in which `#` stands for each word with a digit; none for a line without words.
fn masked(line: &str) -> Option<String> {
    let mask = |word: &str| {
        if word.contains(|c: char| c.is_ascii_digit()) { "#" } else { word }.to_owned()
    };
    let words: Vec<String> = line.split_whitespace().map(mask).collect();
    let has_words =
        words.iter().any(|word| word.contains(|c: char| c.is_alphanumeric() || c == '#'));
    has_words.then(|| words.join(" "))
}

/// Returns the first shown line that the output lacks behind those before it.
fn missing<'a>(shown: &'a [String], output: &str) -> Option<&'a str> {
    let mut lines = output.lines().filter(|line| !line.starts_with('+')).filter_map(masked);
    shown.iter().map(String::as_str).find(|line| {
        // A line that ends with … is shown in part.
        let (start, is_part) = match line.trim_end().strip_suffix('…') {
            Some(start) => (start, true),
            None => (*line, false),
        };
        let Some(wanted) = masked(start) else { return false };
        !lines.any(|line| line == wanted || (is_part && line.starts_with(&wanted)))
    })
}

/// Returns the commands of a block that the row of docs/recipes.md lacks.
fn unknown_to_recipe<'a>(commands: &'a [String], row: &str) -> Vec<&'a str> {
    let is_known = |line: &&str| {
        let command = line.split(" & ").next().unwrap_or_default();
        let command = command.split_once("urxe run -- ").map_or(command, |(_, command)| command);
        let command = command.strip_prefix("export ").unwrap_or(command).replace('|', "\\|");
        row.contains(&format!("`{command}`"))
    };
    let is_free = |line: &&str| line.is_empty() || *line == "wait" || line.starts_with("cd ");
    commands.iter().map(String::as_str).filter(|line| !is_free(line) && !is_known(line)).collect()
}

/// Returns README.md and the pages of the book in its order, relative to the repository.
fn pages(repository: &Path) -> Vec<String> {
    let summary = fs::read_to_string(repository.join("docs/SUMMARY.md")).unwrap();
    let links = summary.split("](").skip(1).filter_map(|part| part.split(')').next());
    let pages = links.map(|link| format!("docs/{link}"));
    std::iter::once("README.md".to_owned()).chain(pages).collect()
}

/// Runs the blocks of a page, and returns its faults.
fn run(page: &str, blocks: &[Block], ping_pong: &Path) -> Vec<String> {
    let home = TempDir::with_prefix("urxe-page-").unwrap();
    fs::create_dir(home.path().join(".local")).unwrap();
    for name in ["bin", "lib"] {
        symlink(install().path(name), home.path().join(".local").join(name)).unwrap();
    }
    let mut script =
        format!("export PATH=\"$HOME/.local/bin:$PATH\"\n{FUNCTIONS}\nexec 7>&1 8>&2\n");
    let output_of = |block: &Block| home.path().join(format!("output-{}", block.line));
    for block in blocks {
        script += &format!(
            "exec >'{}' 2>&1\n{}\nexec >&7 2>&8\n",
            output_of(block).display(),
            block.commands.join("\n"),
        );
    }
    if is_root() {
        for folder in [home.path().to_owned(), home.path().join(".local")] {
            chown(folder, Some(NOBODY.0), Some(NOBODY.1)).unwrap();
        }
    }
    let mut shell = install().user("timeout");
    shell.args(["300", "sh", "-euxc", &script]);
    shell.env("HOME", home.path()).env("PING_PONG", ping_pong).current_dir(home.path());
    let result = shell.output().unwrap();
    let mut faults = Vec::new();
    for block in blocks {
        let Ok(output) = fs::read_to_string(output_of(block)) else { continue };
        if let Some(line) = block.output.as_ref().and_then(|shown| missing(shown, &output)) {
            faults.push(format!("{page}:{}: the output lacks {line:?}:\n{output}", block.line));
        }
        let is_last =
            blocks.iter().all(|other| other.line <= block.line || !output_of(other).exists());
        if is_last && !result.status.success() {
            let text = text_of(&result);
            faults.push(format!("{page}:{}: a command fails:\n{output}{text}", block.line));
        }
    }
    faults
}

#[test]
fn the_commands_of_each_page_run_in_their_order() {
    let _exclusive = exclusive();
    let [built] = build(["examples/ping_pong"]).unwrap();
    let ping_pong: PathBuf = install().path("bin/example-ping-pong");
    fs::copy(&built, &ping_pong).unwrap();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let recipes = fs::read_to_string(repository.join("docs/recipes.md")).unwrap();
    let (_, rows) = recipes.split_once("\n## Commands\n").unwrap();
    let (mut faults, mut reasons) = (Vec::new(), BTreeMap::<String, usize>::new());
    let mut count = 0;
    for name in pages(&repository) {
        let page = fs::read_to_string(repository.join(&name)).unwrap();
        let found = match blocks(&page) {
            Ok(found) => found,
            Err(more) => {
                faults.extend(more.into_iter().map(|fault| format!("{name}:{fault}")));
                continue;
            }
        };
        let (run_here, others): (Vec<Block>, Vec<Block>) =
            found.into_iter().partition(|block| block.proof == Proof::Run);
        for block in others {
            match block.proof {
                Proof::Recipe(recipe) => {
                    let row = rows.lines().find(|row| row.starts_with(&format!("| {recipe} |")));
                    for line in unknown_to_recipe(&block.commands, row.unwrap_or_default()) {
                        faults
                            .push(format!("{name}:{}: not in recipe {recipe}: {line}", block.line));
                    }
                    *reasons.entry("a recipe runs them".to_owned()).or_default() += 1;
                }
                Proof::NotRun(reason) => *reasons.entry(reason).or_default() += 1,
                Proof::Run => unreachable!("partitioned above"),
            }
        }
        count += run_here.len();
        if !run_here.is_empty() {
            let start = Instant::now();
            faults.extend(run(&name, &run_here, &ping_pong));
            println!("{name}: {:.1} s", start.elapsed().as_secs_f64());
        }
    }
    println!("{count} blocks ran; not run: {reasons:#?}");
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
    assert!(count >= 40, "{count} blocks of commands are fewer than the pages have");
}

#[test]
fn blocks_and_their_comments_are_read() {
    let page = "# A\n\n```sh\none\n```\n\n<!-- not run: needs root -->\n```console\n# two\n```\n\n\
                <!-- recipe: R -->\n```sh\nthree\n```\n\n```console\n$ four\nout\n```\n";
    let block = |line, proof, commands: &[&str], output: Option<&[&str]>| {
        let owned = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect();
        Block { line, proof, commands: owned(commands), output: output.map(owned) }
    };
    let expected = vec![
        block(4, Proof::Run, &["one"], None),
        block(9, Proof::NotRun("needs root".to_owned()), &[], Some(&["# two"])),
        block(14, Proof::Recipe("R".to_owned()), &["three"], None),
        block(18, Proof::Run, &["four"], Some(&["out"])),
    ];
    assert_eq!(blocks(page), Ok(expected));
    for (page, line) in [
        ("<!-- not run -->\n```sh\none\n```\n", "1: "),
        ("<!-- not run: it is late -->\n\n```sh\none\n```\n", "2: "),
        ("<!-- not run: it is late -->\n```text\none\n```\n", "2: "),
        ("```text\nurxe doctor\n```\n", "2: "),
        ("```console\n# modprobe rdma_rxe\n```\n", "2: "),
    ] {
        let faults = blocks(page).unwrap_err();
        assert!(faults[0].starts_with(line), "{page}: {faults:?}");
    }
}

#[test]
fn shown_output_is_compared_except_for_numbers() {
    let shown = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let output =
        "+ urxe decode a\n    1  0.00 RC SEND_ONLY qp 0x12 ok\n    2  0.01 RC ACKNOWLEDGE\n";
    assert_eq!(missing(&shown("1 9.99 RC SEND_ONLY qp 0x99 ok\n  ...\n──\n"), output), None);
    assert_eq!(missing(&shown("2 0.0 RC SEND_ONLY…\n7 1 RC ACKNOWLEDGE\n"), output), None);
    assert_eq!(
        missing(&shown("1 9.99 RC WRITE_ONLY qp 0x99 ok\n"), output),
        Some("1 9.99 RC WRITE_ONLY qp 0x99 ok")
    );
    // The order counts, and traced commands are no output.
    assert!(missing(&shown("2 0.01 RC ACKNOWLEDGE\n1 0.00 RC SEND_ONLY…\n"), output).is_some());
    assert!(missing(&shown("+ urxe decode a\n"), output).is_some());
}

#[test]
fn commands_of_recipes_are_those_of_the_row() {
    let row = "| R | `tool -s` | `tool 127.0.0.1` | `UCX_TLS=rc_v`: reason |";
    let commands = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let fine = "cd tests\nexport UCX_TLS=rc_v\nurxe run -- tool -s & sleep 1\n\
                urxe run -- tool 127.0.0.1\nwait\n";
    assert_eq!(unknown_to_recipe(&commands(fine), row), Vec::<&str>::new());
    assert_eq!(unknown_to_recipe(&commands("urxe run -- tool -x\n"), row), ["urxe run -- tool -x"]);
}
