//! The page `docs/recipes.md`, which `cargo xtask recipes --table` writes.
//!
//! Rows of recipes that were not played stay as they are.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::needs;
use super::play::Played;
use super::table::{Recipe, replace};

/// The page, relative to the workspace.
pub const PAGE: &str = "docs/recipes.md";
const RESULTS: &str = "\
| recipe | program | data checked by | carried by RDMA | result | speed, ratio to TCP |
|---|---|---|---|---|---|
";
const COMMANDS: &str = "\
| recipe | server | client | options and variables |
|---|---|---|---|
";
const HEAD: &str = "\
# Programs of the field

`cargo xtask recipes` plays the programs of this page over urxe, in namespaces of their own, as an
ordinary user. `tests/programs/recipes.toml` describes them. A recipe passes if

- its programs succeed and print the expected lines,
- something compares the data,
- a capture has the named packets and at least the named payload, with correct ICRCs.

<!-- not run: needs root, and installs many packages -->
```sh
sudo -E cargo xtask recipes --install          # all recipes, with their packages
sudo -E cargo xtask recipes fio nixl           # recipes whose names begin so
sudo -E cargo xtask recipes --speed --table    # the ratios to TCP, and this page
```

`--install` installs Debian packages, and packages of PyPI into `target/recipes`. Without it, a
recipe whose package is missing is skipped. `--path NAME=FOLDER` names a program that no package
offers.

`--speed` builds for release and runs each program over RDMA and over its own TCP mode by turns,
three times. A ratio above 1 means that RDMA is faster. Each figure is a median. The figures of this
page are from a machine with two processors and without other load.

In the column \"data checked by\", ICRC means the ICRC of each captured packet of both ends. It is
alone where a program does not compare data.

`cargo xtask recipes --table` writes the rest of this page.

## Results

";
const MIDDLE: &str = "
## Commands

Each command follows `urxe run --`, in a copy of `tests/programs/recipes`. The last column has the
reason for each variable and option.

";

/// Replaces the rows of the played recipes, and writes those of all recipes.
pub fn write(root: &Path, all: &[Recipe], played: &[(Recipe, Played)]) -> Result<()> {
    let path = root.join(PAGE);
    let old = fs::read_to_string(&path).unwrap_or_default();
    fs::write(&path, page(all, played, &old)).with_context(|| format!("cannot write {PAGE}"))
}

fn page(all: &[Recipe], played: &[(Recipe, Played)], old: &str) -> String {
    let mut page = format!("{HEAD}{RESULTS}");
    for recipe in all {
        let start = format!("| {} |", recipe.name);
        let now = played.iter().find(|(other, _)| other.name == recipe.name);
        let row = match now {
            Some((recipe, played)) => result(recipe, played),
            None => old
                .lines()
                .find(|line| line.starts_with(&start))
                .map_or_else(|| unplayed(recipe), str::to_owned),
        };
        page.push_str(&row);
        page.push('\n');
    }
    page.push_str(MIDDLE);
    page.push_str(COMMANDS);
    for recipe in all {
        page.push_str(&commands(recipe));
        page.push('\n');
    }
    page
}

fn unplayed(recipe: &Recipe) -> String {
    let path = recipe.path.as_ref().map(|name| format!("; needs `--path {name}=FOLDER`"));
    let verified = &recipe.verified;
    format!("| {} | – | {verified} | – | not played{} | – |", recipe.name, path.unwrap_or_default())
}

fn result(recipe: &Recipe, played: &Played) -> String {
    let proof = played.proof.as_ref().map_or("–".to_owned(), |proof| {
        let packets: u64 = proof.packets.values().sum();
        let mut opcodes: Vec<_> = proof.packets.iter().collect();
        opcodes.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let most: Vec<&str> = opcodes.iter().take(2).map(|(name, _)| name.as_str()).collect();
        format!("{} bytes in {packets} packets, most {}", proof.bytes, most.join(", "))
    });
    let result = match &played.failure {
        None => format!("passes in {:.1} s", played.seconds),
        Some(failure) => {
            format!("fails: {}", recipe.known(failure).unwrap_or_else(|| first_line(failure)))
        }
    };
    let ratio = match (&played.ratio, &recipe.speed) {
        (Some(ratio), Some(speed)) => {
            let unit = &speed.unit;
            format!("{:.3} {unit}, {:.2} of {:.3} {unit}", ratio.rdma, ratio.ratio, ratio.tcp)
        }
        (None, Some(_)) => "–".to_owned(),
        _ => "no TCP mode".to_owned(),
    };
    let row = [&recipe.name, &needs::version(recipe), &recipe.verified, &proof, &result, &ratio];
    format!("| {} |", row.map(|cell| cell.replace('|', "\\|")).join(" | "))
}

fn commands(recipe: &Recipe) -> String {
    let count = recipe.counts.first().map(u64::to_string).unwrap_or_default();
    let shown = [("n", count.as_str()), ("here", "."), ("python", "python3")];
    let shown = shown.map(|(name, word)| (name.to_owned(), word.to_owned())).into();
    let code = |text: &str| format!("`{}`", replace(text, &shown).replace('|', "\\|"));
    let server = recipe.server.as_ref().map_or("–".to_owned(), |server| code(server));
    let mut options: Vec<String> = recipe.env.iter().map(|variable| code(variable)).collect();
    options.extend(recipe.link.iter().map(|link| code(&format!("--link {link}"))));
    let needs = recipe.needs.as_ref().map_or(String::new(), |needs| format!(": {needs}"));
    let options = if options.is_empty() { "–".to_owned() } else { options.join(" ") + &needs };
    format!("| {} | {server} | {} | {options} |", recipe.name, code(&recipe.client))
}

/// Returns the first line of an error.
pub fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim_end_matches(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(name: &str) -> Recipe {
        Recipe { name: name.to_owned(), client: "true".to_owned(), ..Recipe::default() }
    }

    #[test]
    fn rows_of_other_recipes_stay() {
        let all = [recipe("a"), recipe("b")];
        let failure = Some("broken:\nmore".to_owned());
        let played = Played { failure, seconds: 1.0, proof: None, ratio: None };
        let old = "| a | old row |\n| b | old row |\n| gone | old row |\n";
        let page = page(&all, &[(recipe("b"), played)], old);
        assert!(page.contains("| a | old row |\n| b | "), "{page}");
        assert!(page.contains("fails: broken |") && !page.contains("gone"), "{page}");
    }

    #[test]
    fn the_page_has_a_row_for_each_recipe() {
        let root = crate::run::root();
        let page = fs::read_to_string(root.join(PAGE)).unwrap();
        for recipe in crate::entries::recipes::table::recipes(&root).unwrap() {
            let rows =
                page.lines().filter(|line| line.starts_with(&format!("| {} |", recipe.name)));
            assert_eq!(rows.count(), 2, "{}: cargo xtask recipes --table", recipe.name);
        }
    }
}
