//! Recipes: programs of the field from Debian's and PyPI's packages, played over urxe.
//!
//! | file | subject |
//! |---|---|
//! | `table` | the description of the recipes, and its words |
//! | `needs` | packages, virtual environments, folders of the user |
//! | `play` | the namespaces, the processes, the comparison with TCP |
//! | `proof` | the captures |
//! | `report` | `docs/recipes.md` |

mod needs;
mod play;
mod proof;
mod report;
mod table;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};

use super::package::installed;
use crate::machine::{need_packages, need_root};
use crate::run::{Runner, cargo, root, target_folder};
use play::{Order, Played};
use table::Recipe;

const USAGE: &str = "allowed: [--speed] [--table] [--install] [--ci] [--built FOLDER] \
                     [--path NAME=FOLDER] [NAME…]";

/// The targets of the tests (`tests/src/process.rs`).
const BUILD: [&str; 5] = ["--lib", "--bin", "urxe", "--example", "ping_pong"];

/// The parsed arguments.
#[derive(Default)]
struct Options {
    speed: bool,
    table: bool,
    install: bool,
    ci: bool,
    built: Option<PathBuf>,
    paths: BTreeMap<String, PathBuf>,
    names: Vec<String>,
}

fn options(arguments: &[String]) -> Result<Options> {
    let mut options = Options::default();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--speed" => options.speed = true,
            "--table" => options.table = true,
            "--install" => options.install = true,
            "--ci" => options.ci = true,
            "--built" => {
                let folder = arguments.next().with_context(|| USAGE.to_owned())?;
                options.built = Some(folder.into());
            }
            "--path" => {
                let pair = arguments.next().and_then(|pair| pair.split_once('='));
                let (name, folder) = pair.with_context(|| USAGE.to_owned())?;
                options.paths.insert(name.to_owned(), folder.into());
            }
            option if option.starts_with('-') => bail!("unknown option {option}; {USAGE}"),
            name => options.names.push(name.to_owned()),
        }
    }
    Ok(options)
}

impl Options {
    /// Installs urxe, and returns its path. Without `--speed`, it is the build of the tests, which
    /// cargo reuses.
    fn urxe(&self, runner: &mut Runner) -> Result<PathBuf> {
        let mut built = self.built.clone();
        if built.is_none() && !self.speed {
            runner.run(cargo(["build"]).args(BUILD))?;
            built = Some(target_folder().join("debug"));
        }
        installed(&target_folder().join("recipes/urxe"), built.as_deref(), "release", runner)
    }

    /// Returns the recipes whose names begin with a given name; without names, all.
    fn chosen(&self, all: &[Recipe]) -> Result<Vec<Recipe>> {
        let begins = |recipe: &&Recipe, name: &String| recipe.name.starts_with(name.as_str());
        if let Some(name) = self.names.iter().find(|name| all.iter().all(|r| !begins(&r, name))) {
            let names: Vec<&str> = all.iter().map(|recipe| recipe.name.as_str()).collect();
            bail!("no recipe begins with {name}; there are {}", names.join(", "));
        }
        let is_chosen = |recipe: &&Recipe| {
            (self.names.is_empty() || self.names.iter().any(|name| begins(recipe, name)))
                && (recipe.ci || !self.ci)
        };
        Ok(all.iter().filter(is_chosen).cloned().collect())
    }
}

/// Plays the chosen recipes, and prints a line for each.
pub fn recipes(arguments: &[String], runner: &mut Runner) -> Result<()> {
    if let [inside, order] = arguments
        && inside == "--inside"
    {
        return play::inside(order);
    }
    let options = options(arguments)?;
    let all = table::recipes(&root())?;
    let chosen = options.chosen(&all)?;
    need_root("recipes", "namespaces, and the user that runs the programs,")?;
    need_packages(&needs::BASE, runner)?;
    if options.install || options.ci {
        let packages = chosen.iter().flat_map(|recipe| &recipe.packages).map(String::as_str);
        need_packages(&packages.collect::<Vec<_>>(), runner)?;
        for recipe in &chosen {
            needs::install(recipe, runner)?;
        }
    }
    let urxe = options.urxe(runner)?;
    let inner = target_folder().join("recipes/xtask");
    play::copy_self(&inner)?;
    let (mut played, mut failed, mut skipped) = (Vec::new(), Vec::new(), 0);
    for recipe in chosen {
        let path = recipe.path.as_ref().and_then(|name| options.paths.get(name));
        if let Some(missing) = needs::missing(&recipe, path) {
            println!("skipped  {}: {missing}", recipe.name);
            skipped += 1;
            continue;
        }
        needs::check_readable(&recipe)?;
        let order = Order {
            name: recipe.name.clone(),
            urxe: urxe.clone(),
            python: needs::python(&recipe),
            path: path.cloned(),
            speed: options.speed,
        };
        let result = play::outside(&inner, &order)?;
        print(&recipe, &result);
        if recipe.is_expected(result.failure.as_deref()) {
            runner.tally.passed += 1;
        } else {
            failed.push(recipe.name.clone());
        }
        played.push((recipe, result));
        if options.table {
            report::write(&root(), &all, &played)?;
        }
    }
    println!("\n{} played, {skipped} skipped", played.len());
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Prints the line of a recipe.
fn print(recipe: &Recipe, played: &Played) {
    let Played { failure, seconds, proof, ratio } = played;
    let bytes = proof.as_ref().map_or(0, |proof| proof.bytes);
    let ratio = ratio.as_ref().zip(recipe.speed.as_ref()).map(|(ratio, speed)| {
        let unit = &speed.unit;
        format!(", {:.3} {unit}: {:.2} of TCP's {:.3}", ratio.rdma, ratio.ratio, ratio.tcp)
    });
    let ratio = ratio.unwrap_or_default();
    let known = failure.as_ref().and_then(|failure| recipe.known(failure));
    match (failure, known) {
        (None, _) if recipe.known.is_none() => {
            println!("ok       {} ({seconds:.1} s, {bytes} bytes{ratio})", recipe.name)
        }
        (None, _) => {
            println!("ok       {} ({seconds:.1} s{ratio}): remove its `known`", recipe.name);
        }
        (Some(failure), Some(known)) => {
            println!("known    {}: {known} ({})", recipe.name, report::first_line(failure));
        }
        (Some(failure), None) => println!("FAILED   {} ({seconds:.1} s): {failure}", recipe.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Options> {
        options(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn names_choose_by_their_starts_and_unknown_ones_are_refused() {
        let named = |name: &str| Recipe { name: name.to_owned(), ..Recipe::default() };
        let all = [named("fio-read"), named("fio-write"), Recipe { ci: true, ..named("rping") }];
        let chosen =
            |text: &str| parsed(text).unwrap().chosen(&all).map(|chosen| chosen.len()).ok();
        assert_eq!(chosen(""), Some(3));
        assert_eq!(chosen("fio"), Some(2));
        assert_eq!(chosen("--ci"), Some(1));
        assert_eq!(chosen("fio spdk"), None);
        assert!(parsed("--path spdk").is_err() && parsed("--fast").is_err());
        assert_eq!(parsed("--path spdk=/x").unwrap().paths["spdk"], PathBuf::from("/x"));
    }
}
