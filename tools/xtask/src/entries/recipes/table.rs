//! The table of recipes, `tests/programs/recipes.toml`: its fields, and the words of its commands.
//!
//! Commands are words separated by blanks. `'…'` holds blanks together. Words in braces are
//! replaced:
//!
//! | word | replaced by |
//! |---|---|
//! | `{dir}` | an empty folder, in which the programs start |
//! | `{here}` | a copy of `tests/programs/recipes` |
//! | `{python}` | Python of the recipe's virtual environment, or Debian's |
//! | `{path}` | the folder that `--path` names |
//! | `{n}` | the first of `counts`; with `--speed` the second |
//! | `{0}`, `{1}`, … | the entries of a row of `each` |

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use regex::Regex;
use serde::Deserialize;

/// The file, relative to the workspace.
pub const FILE: &str = "tests/programs/recipes.toml";
/// The folder with the scripts of recipes, relative to the workspace.
pub const SCRIPTS: &str = "tests/programs/recipes";

/// One recipe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Recipe {
    /// The name; with `each`, it contains `{0}`.
    pub name: String,
    /// Rows of values. Each row makes a recipe of its own.
    pub each: Vec<Vec<String>>,
    /// Debian packages. The version of the first stands in the documentation.
    pub packages: Vec<String>,
    /// Packages of PyPI, without their dependencies. The first names the virtual environment.
    pub pypi: Vec<String>,
    /// The name of a program that the user gives by `--path NAME=FOLDER`.
    pub path: Option<String>,
    /// Whether CI plays the recipe, which the table's own list says.
    #[serde(skip)]
    pub ci: bool,
    /// Whether the programs run as root.
    pub root: bool,
    /// An option of `urxe run`: the device of both ends.
    pub link: Option<String>,
    /// Variables that the program needs, and the reason.
    pub env: Vec<String>,
    /// Why the recipe has `link` or `env`.
    pub needs: Option<String>,
    /// The server; absent if one command starts all processes.
    pub server: Option<String>,
    /// How the server shows that a client can connect; absent for a server of `rdma_cm`.
    pub ready: Option<Ready>,
    /// The client, whose end is the end of the recipe.
    pub client: String,
    /// Whether the server ends by itself and must succeed.
    pub server_ends: Option<bool>,
    /// Seconds after which the programs are ended.
    pub limit: Option<u64>,
    /// The programs or means that check the data.
    pub verified: String,
    /// Patterns in the output of both ends.
    pub expect: Vec<String>,
    /// Starts of the names of opcodes that the captures must have.
    pub opcodes: Vec<String>,
    /// The payload bytes that one process must have captured at least.
    pub bytes: u64,
    /// The packets that it must have captured at least, if they have no payload.
    pub packets: u64,
    /// Numbers of messages, bytes or seconds: with a capture, and with `--speed`.
    pub counts: Vec<u64>,
    /// How to compare with the program's TCP mode.
    pub speed: Option<Speed>,
    /// A known failure, which counts as none.
    pub known: Option<Known>,
}

/// How a server shows that it listens.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ready {
    /// It listens on this TCP port.
    Tcp(u16),
    /// Its output has this text.
    Says(String),
}

/// A known failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// The reason, which the documentation has.
    pub reason: String,
    /// A text of the failure.
    pub text: String,
}

/// A comparison with TCP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Speed {
    /// The pattern whose last match in the output has the figure as its first group.
    pub figure: String,
    /// The unit of the figure.
    pub unit: String,
    /// Whether less is better.
    pub less_is_better: bool,
    /// The server over TCP, if it differs.
    pub server: Option<String>,
    /// How that server shows that it listens, if that differs.
    pub ready: Option<Ready>,
    /// The client over TCP, if it differs.
    pub client: Option<String>,
    /// Whether the programs need an RDMA device over TCP, too.
    pub has_device: bool,
    /// The variables over TCP.
    pub env: Vec<String>,
    /// The pattern over TCP, if it differs.
    pub tcp_figure: Option<String>,
}

/// The whole file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    /// The names of the recipes that CI plays.
    #[serde(default)]
    ci: Vec<String>,
    recipe: Vec<Recipe>,
}

/// Reads the table; the rows of `each` are recipes of their own.
pub fn recipes(root: &Path) -> Result<Vec<Recipe>> {
    let path = root.join(FILE);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {FILE}"))?;
    parse(&text).with_context(|| FILE.to_owned())
}

fn parse(text: &str) -> Result<Vec<Recipe>> {
    let table: Table = toml::from_str(text)?;
    let mut recipes: Vec<Recipe> = table.recipe.iter().flat_map(Recipe::rows).collect();
    for name in &table.ci {
        let recipe = recipes.iter_mut().find(|recipe| recipe.name == *name);
        recipe.with_context(|| format!("ci: no recipe has the name {name}"))?.ci = true;
    }
    let mut names = Vec::new();
    for recipe in &recipes {
        recipe.check().with_context(|| format!("recipe {}", recipe.name))?;
        ensure!(!names.contains(&&recipe.name), "two recipes have the name {}", recipe.name);
        names.push(&recipe.name);
    }
    Ok(recipes)
}

impl Recipe {
    /// Returns a recipe for each row of `each`.
    fn rows(&self) -> Vec<Self> {
        if self.each.is_empty() {
            return vec![self.clone()];
        }
        self.each.iter().map(|row| self.row(row)).collect()
    }

    fn row(&self, row: &[String]) -> Self {
        let words: BTreeMap<String, String> =
            row.iter().enumerate().map(|(nr, word)| (nr.to_string(), word.clone())).collect();
        let put = |text: &String| replace(text, &words);
        let mut recipe = Self { each: Vec::new(), ..self.clone() };
        recipe.name = put(&self.name);
        recipe.client = put(&self.client);
        recipe.server = self.server.as_ref().map(put);
        for list in [&mut recipe.env, &mut recipe.expect, &mut recipe.opcodes] {
            *list = list.iter().map(put).collect();
        }
        if let Some(speed) = &mut recipe.speed {
            speed.figure = put(&speed.figure);
            speed.server = speed.server.as_ref().map(put);
            speed.client = speed.client.as_ref().map(put);
            speed.env = speed.env.iter().map(put).collect();
        }
        recipe
    }

    /// Returns the reason of a failure if it is the known one.
    pub fn known(&self, failure: &str) -> Option<&str> {
        let known = self.known.as_ref().filter(|known| failure.contains(&known.text));
        known.map(|known| known.reason.as_str())
    }

    /// Returns whether the result of playing is as the table says.
    pub fn is_expected(&self, failure: Option<&str>) -> bool {
        failure.is_none_or(|failure| self.known(failure).is_some())
    }

    fn check(&self) -> Result<()> {
        ensure!(!self.name.is_empty() && !self.client.is_empty(), "name and client are missing");
        ensure!(!self.verified.is_empty(), "nothing says how the data is verified");
        let proves = !self.opcodes.is_empty() && self.bytes + self.packets > 0;
        ensure!(proves, "nothing proves RDMA");
        ensure!(
            (self.env.is_empty() && self.link.is_none()) || self.needs.is_some(),
            "the reason of env or link is missing (needs)"
        );
        let sources = [!self.packages.is_empty(), !self.pypi.is_empty(), self.path.is_some()];
        ensure!(sources.contains(&true), "no package and no path has the program");
        let speed = self.speed.iter();
        let patterns = speed.flat_map(|speed| [Some(&speed.figure), speed.tcp_figure.as_ref()]);
        for pattern in self.expect.iter().chain(patterns.flatten()) {
            Regex::new(pattern)?;
        }
        for command in [Some(&self.client), self.server.as_ref()].into_iter().flatten() {
            words(command)?;
        }
        Ok(())
    }
}

/// Returns `text` with the words in braces replaced. Other braces stay.
pub fn replace(text: &str, words: &BTreeMap<String, String>) -> String {
    words
        .iter()
        .fold(text.to_owned(), |text, (name, word)| text.replace(&format!("{{{name}}}"), word))
}

/// Splits a command at blanks, except between apostrophes.
pub fn words(command: &str) -> Result<Vec<String>> {
    let mut words = Vec::new();
    for (nr, part) in command.split('\'').enumerate() {
        if nr % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    if command.matches('\'').count() % 2 == 1 {
        bail!("an apostrophe is not closed: {command}");
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "ci = ['ay']\n[[recipe]]\nname = 'a{0}'\n\
                       each = [['x', 'RC SEND'], ['y', 'UD SEND']]\n\
                       packages = ['p']\nclient = \"p {0} 'two words' {n}\"\nverified = 'p'\n\
                       opcodes = ['{1}']\nbytes = 1\n";

    #[test]
    fn each_row_is_a_recipe() {
        let recipes = parse(ONE).unwrap();
        let names: Vec<&str> = recipes.iter().map(|recipe| recipe.name.as_str()).collect();
        assert_eq!(names, ["ax", "ay"]);
        assert_eq!(words(&recipes[1].client).unwrap(), ["p", "y", "two words", "{n}"]);
        assert_eq!(recipes[1].opcodes, ["UD SEND"]);
        assert!(!recipes[0].ci && recipes[1].ci);
    }

    #[test]
    fn a_recipe_that_proves_nothing_is_refused() {
        for (from, to) in [
            ("bytes = 1\n", ""),
            ("opcodes = ['{1}']\n", ""),
            ("verified = 'p'\n", ""),
            ("packages = ['p']\n", ""),
            ("packages = ['p']\n", "packages = ['p']\nlink = 'rxe0=lo'\n"),
            ("bytes = 1\n", "bytes = 1\nexpect = ['(']\n"),
            ("bytes = 1\n", "bytes = 1\nother = 1\n"),
            ("['x', 'RC SEND']", "['y', 'RC SEND']"),
            ("ci = ['ay']", "ci = ['az']"),
        ] {
            assert!(ONE.contains(from));
            assert!(parse(&ONE.replace(from, to)).is_err(), "{from} to {to}");
        }
    }

    #[test]
    fn only_the_known_failure_counts_as_none() {
        let known = "known = { reason = 'r', text = 'refused' }\n";
        let recipe = parse(&format!("{ONE}{known}")).unwrap().remove(0);
        assert!(recipe.is_expected(None) && recipe.is_expected(Some("it was refused:")));
        assert!(!recipe.is_expected(Some("it hung")));
        assert!(!parse(ONE).unwrap()[0].is_expected(Some("refused")));
    }

    #[test]
    fn the_table_is_well_formed() {
        assert!(!recipes(&crate::run::root()).unwrap().is_empty());
    }
}
