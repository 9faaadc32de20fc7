//! The user's list of links: one plain text file, written by hand or by `urxe link`.
//!
//! The file is `$XDG_CONFIG_HOME/urxe/links`, or `~/.config/urxe/links`. [`spec`](super::spec) has
//! the grammar:
//!
//! ```text
//! # devices of this user
//! rxe0 = 10.0.0.1
//! rxe1 = eth0       # all of its addresses
//! ```
//!
//! Adding and removing links keeps every other line, comments included. A complete new file
//! replaces the old one by renaming, so a reader never reads an incomplete file. Writers lock the
//! folder. If the file is a symbolic link of this user, the target file is replaced. Files and
//! folders of other users are not changed.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::default_address::default_address;
use super::spec::{parse_file, parse_list, strip_comment};
use super::{ENVIRONMENT, LinkError, LinkName, LinkSpec, Source};
use crate::files;
use crate::sys::environment;

#[cfg(test)]
mod tests;

/// The first lines of a new file.
const HEADER: &str = "\
# Devices of urxe, one a line: NAME = ADDRESS or NAME = INTERFACE.
# While this file lists any, the built-in device rxe0 on 127.0.0.1 is not there.
";

/// The source of the list of links.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The option `--link` of a command.
    Option,
    /// The environment variable.
    Environment,
    /// The user's file.
    File(PathBuf),
    /// The built-in default.
    BuiltIn,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option => f.write_str("--link"),
            Self::Environment => f.write_str(ENVIRONMENT),
            Self::File(path) => path.display().fmt(f),
            Self::BuiltIn => f.write_str("the built-in default"),
        }
    }
}

/// The links, and the source of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configured {
    /// The source of the list.
    pub origin: Origin,
    /// The links in the order given: at least one, and each name once.
    pub links: Vec<LinkSpec>,
}

impl Configured {
    /// Returns the list of the option `--link`.
    ///
    /// # Errors
    /// [`LinkError::Parse`] if two links have one name.
    pub fn from_option(links: &[LinkSpec]) -> Result<Self, LinkError> {
        let origin = Origin::Option;
        let text = links.iter().map(LinkSpec::to_string).collect::<Vec<_>>().join(",");
        let links = parse_list(&text)
            .map_err(|error| LinkError::Parse { origin: origin.clone(), error })?;
        Ok(Self { origin, links })
    }

    /// Returns the link with this name.
    ///
    /// # Errors
    /// [`LinkError::NoSuchLink`] with the existing names.
    pub fn find(&self, name: &LinkName) -> Result<&LinkSpec, LinkError> {
        self.links.iter().find(|link| link.name == *name).ok_or_else(|| LinkError::NoSuchLink {
            given: name.clone(),
            origin: self.origin.clone(),
            existing: self.links.iter().map(|link| link.name.clone()).collect(),
        })
    }
}

/// Returns the links of this process: from the environment, the user's file, or the built-in
/// default.
///
/// # Errors
/// [`LinkError`] if the source that applies cannot be read or does not follow the grammar. There is
/// no fallback to the next source, because a mistake must not select another device.
pub fn configured() -> Result<Configured, LinkError> {
    let file = file_path().ok();
    let mut found = configured_from(environment::value(ENVIRONMENT).as_deref(), file.as_deref())?;
    if found.origin == Origin::BuiltIn {
        for link in &mut found.links {
            link.source = Source::Address(default_address().address.into());
        }
    }
    Ok(found)
}

/// Returns the links for this value of the environment variable and this path of the file. The
/// built-in default has 127.0.0.1 here.
///
/// # Errors
/// As [`configured`].
pub fn configured_from(
    environment: Option<&OsStr>,
    file: Option<&Path>,
) -> Result<Configured, LinkError> {
    if let Some(value) = environment {
        let text = value.to_str().ok_or(LinkError::EnvironmentNotText)?;
        let origin = Origin::Environment;
        let links =
            parse_list(text).map_err(|error| LinkError::Parse { origin: origin.clone(), error })?;
        if !links.is_empty() {
            return Ok(Configured { origin, links });
        }
    }
    if let Some(path) = file {
        let links = parse_at(path, &read_or_empty(path)?)?;
        if !links.is_empty() {
            return Ok(Configured { origin: Origin::File(path.to_owned()), links });
        }
    }
    Ok(Configured { origin: Origin::BuiltIn, links: vec![LinkSpec::built_in()] })
}

/// Returns the path of the user's file, whether the file exists or not.
///
/// # Errors
/// [`LinkError::NoHome`] if neither `XDG_CONFIG_HOME` nor `HOME` is set to an absolute path.
pub fn file_path() -> Result<PathBuf, LinkError> {
    let [xdg, home] = ["XDG_CONFIG_HOME", "HOME"].map(environment::value);
    file_path_from(xdg.as_deref(), home.as_deref())
}

/// Returns the path for these values of `XDG_CONFIG_HOME` and `HOME`.
///
/// # Errors
/// As [`file_path`].
pub fn file_path_from(xdg: Option<&OsStr>, home: Option<&OsStr>) -> Result<PathBuf, LinkError> {
    // Relative paths are ignored (XDG Base Directory Specification).
    let absolute =
        |value: Option<&OsStr>| value.map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(xdg)
        .or_else(|| absolute(home).map(|home| home.join(".config")))
        .map(|folder| folder.join("urxe").join("links"))
        .ok_or(LinkError::NoHome)
}

/// Appends a link to the file at `path`. Creates the file and its folder if they do not exist.
///
/// # Errors
/// [`LinkError::NameTaken`]; or the file cannot be read, parsed or written.
pub fn add(path: &Path, link: &LinkSpec) -> Result<(), LinkError> {
    rewrite(path, |text| {
        if let Some(old) = parse_at(path, text)?.into_iter().find(|old| old.name == link.name) {
            let path = path.to_owned();
            return Err(LinkError::NameTaken { name: old.name, path, source_of_it: old.source });
        }
        let mut text = if text.is_empty() { HEADER.to_owned() } else { text.to_owned() };
        if !text.ends_with('\n') {
            text.push('\n');
        }
        // The text of a link has no blanks, as in the environment variable.
        let text_of_link = link.to_string();
        let (name, rest) = text_of_link.split_once('=').unwrap_or_default();
        text.push_str(&format!("{name} = {rest}\n"));
        Ok(text)
    })
}

/// Removes the line of the link `name` from the file at `path`.
///
/// # Errors
/// [`LinkError::NoSuchLink`] with the existing names, [`LinkError::BuiltIn`] for the built-in
/// default while the file lists no link; or the file cannot be read, parsed or written.
pub fn remove(path: &Path, name: &LinkName) -> Result<(), LinkError> {
    let current = configured_from(None, Some(path))?;
    current.find(name)?;
    if current.origin == Origin::BuiltIn {
        return Err(LinkError::BuiltIn { name: name.clone() });
    }
    rewrite(path, |text| {
        parse_at(path, text)?;
        let is_it = |line: &&str| {
            strip_comment(line)
                .split_once('=')
                .is_some_and(|(entry, _)| entry.trim() == name.as_str())
        };
        Ok(text.split_inclusive('\n').filter(|line| !is_it(line)).collect())
    })
}

fn parse_at(path: &Path, text: &str) -> Result<Vec<LinkSpec>, LinkError> {
    parse_file(text)
        .map_err(|error| LinkError::Parse { origin: Origin::File(path.to_owned()), error })
}

/// Returns the file's text, which is empty if the file does not exist.
fn read_or_empty(path: &Path) -> Result<String, LinkError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(LinkError::ReadConfig { path: path.to_owned(), error }),
    }
}

/// Replaces the file's text by the result of `change`, atomically and under the lock.
fn rewrite(
    path: &Path,
    change: impl FnOnce(&str) -> Result<String, LinkError>,
) -> Result<(), LinkError> {
    let failed = |error| LinkError::WriteConfig { path: path.to_owned(), error };
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = target.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).map_err(failed)?;
    let turn = File::open(folder).map_err(failed)?;
    files::check_folder(folder, &rustix::fs::fstat(&turn).map_err(|errno| failed(errno.into()))?)?;
    for file in [path, &target] {
        files::check_owner(file)?;
    }
    turn.lock().map_err(failed)?;

    let text = change(&read_or_empty(&target)?)?;
    let fresh = folder.join(format!(".links.{}.new", std::process::id()));
    let replaced = write_whole(&fresh, &text).and_then(|()| fs::rename(&fresh, &target));
    if replaced.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    replaced.map_err(failed)
}

/// Writes a file and waits until the disk has the file, because the rename must not precede its
/// content.
fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let _left_by_one_that_was_killed = fs::remove_file(path);
    let mut file = File::create_new(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
