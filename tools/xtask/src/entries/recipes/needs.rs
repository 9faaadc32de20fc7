//! The needs of recipes: Debian packages, virtual environments with packages of PyPI, and folders
//! that the user names.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use super::table::Recipe;
use crate::machine::{is_installed, succeeds};
use crate::run::{Runner, target_folder};

/// The interpreter of Debian's packages.
const PYTHON: &str = "/usr/bin/python3";
/// Programs that every recipe needs.
pub const BASE: [&str; 3] = ["iproute2", "procps", "util-linux"];

/// Returns a sentence about the first thing that a recipe lacks.
pub fn missing(recipe: &Recipe, path: Option<&PathBuf>) -> Option<String> {
    let packages = recipe.packages.iter().map(String::as_str);
    let packages: Vec<&str> = packages.filter(|package| !is_installed(package)).collect();
    if !packages.is_empty() {
        let packages = packages.join(" ");
        return Some(format!("this machine lacks {packages}; --install installs them"));
    }
    if !recipe.pypi.is_empty() && !is_complete(recipe) {
        let packages = recipe.pypi.join(" ");
        return Some(format!("{packages} of PyPI are not installed; --install installs them"));
    }
    match (&recipe.path, path) {
        (Some(name), None) => {
            Some(format!("no package has {name}; name its folder by --path {name}=FOLDER"))
        }
        (Some(name), Some(path)) if !path.is_dir() => {
            Some(format!("{} is no folder; name that of {name} by --path", path.display()))
        }
        _ => None,
    }
}

/// Returns the folder of the recipe's virtual environment.
fn environment(recipe: &Recipe) -> Option<PathBuf> {
    let first = recipe.pypi.first()?;
    Some(target_folder().join("recipes").join(first))
}

/// The file with the list of packages in an environment.
fn list(folder: &Path) -> PathBuf {
    folder.join("packages.txt")
}

fn is_complete(recipe: &Recipe) -> bool {
    environment(recipe)
        .and_then(|folder| fs::read_to_string(list(&folder)).ok())
        .is_some_and(|packages| packages == recipe.pypi.join("\n"))
}

/// Returns the interpreter of a recipe.
pub fn python(recipe: &Recipe) -> PathBuf {
    environment(recipe).map_or_else(|| PYTHON.into(), |folder| folder.join("bin/python"))
}

/// Installs a recipe's packages of PyPI into its environment, without their dependencies. Debian's
/// packages are visible there, such as NumPy and PyTorch.
pub fn install(recipe: &Recipe, runner: &mut Runner) -> Result<()> {
    let Some(folder) = environment(recipe) else { return Ok(()) };
    if is_complete(recipe) {
        return Ok(());
    }
    let mut create = Command::new(PYTHON);
    runner.run(create.args(["-m", "venv", "--system-site-packages"]).arg(&folder))?;
    let mut pip = Command::new(folder.join("bin/pip"));
    runner.run(pip.args(["install", "--quiet", "--no-deps"]).args(&recipe.pypi))?;
    fs::write(list(&folder), recipe.pypi.join("\n"))?;
    Ok(())
}

/// Fails if the user without rights cannot run the interpreter of an environment.
pub fn check_readable(recipe: &Recipe) -> Result<()> {
    let Some(folder) = environment(recipe).filter(|_| !recipe.root) else { return Ok(()) };
    let python = folder.join("bin/python").display().to_string();
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", &python, "-c", ""];
    if !succeeds("setpriv", &nobody) {
        bail!("the user nobody cannot read {}; set CARGO_TARGET_DIR", folder.display());
    }
    Ok(())
}

/// Returns name and version of the program.
pub fn version(recipe: &Recipe) -> String {
    let output = |command: &mut Command| {
        let output = command.stdin(Stdio::null()).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        text.unwrap_or_default()
    };
    if let Some(name) = recipe.pypi.first() {
        let code = format!("import importlib.metadata as m; print(m.version('{name}'))");
        return format!("{name} {}", output(Command::new(python(recipe)).args(["-c", &code])));
    }
    if let Some(name) = recipe.packages.first() {
        let query = ["-W", "-f", "${Version}", name];
        return format!("{name} {}", output(Command::new("dpkg-query").args(query)));
    }
    recipe.path.clone().unwrap_or_default()
}
