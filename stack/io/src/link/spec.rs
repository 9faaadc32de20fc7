//! One link as text: `rxe0=10.0.0.1`, `rxe1 = eth0`.
//!
//! The environment variable has several entries separated by commas. The user's file has one entry
//! a line, with blank lines and `#` comments:
//!
//! ```text
//! list   = [entry] *("," [entry])          the environment variable
//! file   = *([entry] ["#" comment] LF)     the user's file
//! entry  = [blanks name blanks "="] blanks source blanks *("," option)
//! option = blanks "profile" blanks "=" blanks word blanks
//! name   = letter *62(letter / digit / "_" / "-" / ".")
//! source = IPv4 or IPv6 address / name of a network interface
//! ```
//!
//! An option belongs to the entry before it, so no device has the name `profile`. Without a name, a
//! device has the name of its [profile](Profile). A source that can be parsed as an address is an
//! address. Invariant: the text that [`LinkSpec`]
//! displays parses to the same value.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use urxe_types::limits::Limits;

use super::profile::{PROFILES, Profile};

#[cfg(test)]
mod tests;

/// Longest device name in bytes (libibverbs' `IBV_SYSFS_NAME_MAX` is 64 with the terminating zero).
pub const MAX_NAME_LEN: usize = 63;

/// The name of the option with the identity of a NIC.
const PROFILE: &str = "profile";

/// Longest interface name in bytes (Linux's `IFNAMSIZ` is 16 with the terminating zero).
pub const MAX_INTERFACE_LEN: usize = 15;

/// A device's name: a letter, then letters, digits, `_`, `-` and `.`; at most 63 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkName(String);

impl LinkName {
    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for LinkName {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse_name(text).map_err(|reason| ParseError { line: 1, column: 1, reason })
    }
}

/// The source of a device's addresses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// One address of this machine: the device has only that address.
    Address(IpAddr),
    /// A network interface: the device has all its addresses.
    Interface(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Interface(name) => f.pad(name),
        }
    }
}

impl FromStr for Source {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse_source(text).map_err(|reason| ParseError { line: 1, column: 1, reason })
    }
}

/// One link: the device `name` is made from `source`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LinkSpec {
    /// The device's name.
    pub name: LinkName,
    /// The source of its addresses.
    pub source: Source,
    /// The NIC whose identity it has; `None` for that of `rdma_rxe`.
    pub profile: Option<&'static Profile>,
}

impl LinkSpec {
    /// Returns the limits of the device: `limits`, or less if its NIC has less.
    #[must_use]
    pub fn limits(&self, limits: Limits) -> Limits {
        self.profile.map_or(limits, |profile| profile.restrict(limits))
    }

    /// Returns a device without a profile.
    #[must_use]
    pub const fn new(name: LinkName, source: Source) -> Self {
        Self { name, source, profile: None }
    }

    /// Returns the device that exists without configuration: `rxe0` on 127.0.0.1. If another user
    /// has that address, [`default_address`](super::default_address()) gives another one.
    #[must_use]
    pub fn built_in() -> Self {
        Self {
            name: LinkName("rxe0".to_owned()),
            source: Source::Address(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)),
            profile: None,
        }
    }
}

impl fmt::Display for LinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.source)?;
        self.profile.map_or(Ok(()), |profile| write!(f, ",{PROFILE}={profile}"))
    }
}

impl FromStr for LinkSpec {
    type Err = ParseError;

    /// Parses one entry, `rxe0=10.0.0.1`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse_entry(text, 1, 0)
    }
}

/// The first mistake in a list of links, and its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {reason}")]
#[non_exhaustive]
pub struct ParseError {
    /// The line, from 1 (always 1 in the environment variable).
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The mistake.
    pub reason: ParseReason,
}

urxe_types::errors! {
    /// A mistake in an entry, with the text of the entry.
    #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum ParseReason {
        /// An entry without `=`.
        #[error(
            "{given:?} has no '='; an entry is NAME=ADDRESS or NAME=INTERFACE, as in rxe0=10.0.0.1"
        )]
        NoEquals { given: String } = ENODEV,
        #[error("the device name before '=' is missing")]
        EmptyName = ENODEV,
        #[error("the address or interface after '=' is missing")]
        EmptySource = ENODEV,
        #[error("the device name {given:?} is longer than {MAX_NAME_LEN} bytes")]
        NameTooLong { given: String } = ENODEV,
        /// `found`: the first character that is not allowed there.
        #[error("the device name {given:?} has {found:?}; a name is a letter, then letters, \
                 digits, '_', '-' and '.'")]
        NameCharacter { given: String, found: char } = ENODEV,
        #[error("no device may have the name {PROFILE}, which is the option of a device")]
        ReservedName = ENODEV,
        /// Neither an address nor a possible name of an interface.
        #[error("{given:?} is neither an IP address nor the name of a network interface")]
        BadSource { given: String } = ENODEV,
        #[error("there is no profile {given:?}; there are: {}", profiles())]
        UnknownProfile { given: String } = ENODEV,
        #[error("{given:?} is no option of a device; the only one is {PROFILE}=NAME")]
        UnknownOption { given: String } = ENODEV,
        #[error("the device {given} is listed a second time; the first is on line {first_line}, \
                 column {first_column}")]
        Duplicate { given: LinkName, first_line: usize, first_column: usize } = ENODEV,
    }
}

fn profiles() -> String {
    PROFILES.iter().map(|profile| profile.name).collect::<Vec<_>>().join(", ")
}

/// Parses a comma-separated list, as in the environment variable. Empty entries are ignored.
///
/// # Errors
/// [`ParseError`] for the first entry that does not follow the grammar or repeats a name.
pub fn parse_list(text: &str) -> Result<Vec<LinkSpec>, ParseError> {
    let mut links = Links::default();
    let mut start = 0;
    let mut rest = text;
    loop {
        let (entry, after) = split_entry(rest);
        links.add(entry, 1, start)?;
        start += entry.chars().count() + 1;
        match after {
            Some(after) => rest = after,
            None => return Ok(links.into_specs()),
        }
    }
}

/// Parses a file: an entry a line, blank lines, `#` comments.
///
/// # Errors
/// [`ParseError`] for the first line that does not follow the grammar or repeats a name.
pub fn parse_file(text: &str) -> Result<Vec<LinkSpec>, ParseError> {
    let mut links = Links::default();
    for (index, line) in text.lines().enumerate() {
        links.add(strip_comment(line), index + 1, 0)?;
    }
    Ok(links.into_specs())
}

/// Returns the line up to its comment.
pub(super) fn strip_comment(line: &str) -> &str {
    line.split_once('#').map_or(line, |(entry, _)| entry)
}

/// Splits the first entry, with its options, from the list after the next comma.
fn split_entry(list: &str) -> (&str, Option<&str>) {
    for (at, _) in list.match_indices(',') {
        let after = &list[at + 1..];
        if !is_option(after) {
            return (&list[..at], Some(after));
        }
    }
    (list, None)
}

/// Returns whether a text begins with an option.
fn is_option(text: &str) -> bool {
    text.split_once('=').is_some_and(|(name, _)| name.trim() == PROFILE)
}

/// The entries so far, each with its line and column.
#[derive(Default)]
struct Links(Vec<(LinkSpec, usize, usize)>);

impl Links {
    /// Adds `entry`, which starts `start` characters into `line`. Ignores a blank entry.
    fn add(&mut self, entry: &str, line: usize, start: usize) -> Result<(), ParseError> {
        if entry.trim().is_empty() {
            return Ok(());
        }
        let spec = parse_entry(entry, line, start)?;
        let column = start + blanks(entry) + 1;
        if let Some((_, first_line, first_column)) =
            self.0.iter().find(|(other, ..)| other.name == spec.name)
        {
            let (first_line, first_column) = (*first_line, *first_column);
            let reason = ParseReason::Duplicate { given: spec.name, first_line, first_column };
            return Err(ParseError { line, column, reason });
        }
        self.0.push((spec, line, column));
        Ok(())
    }

    fn into_specs(self) -> Vec<LinkSpec> {
        self.0.into_iter().map(|(spec, ..)| spec).collect()
    }
}

/// Parses one entry that starts `start` characters into line `line`.
fn parse_entry(entry: &str, line: usize, start: usize) -> Result<LinkSpec, ParseError> {
    let at = |offset: usize, reason| ParseError { line, column: start + offset + 1, reason };
    let (entry, options) = match entry.split_once(',') {
        Some((entry, options)) => (entry, Some(options)),
        None => (entry, None),
    };
    let options_start = entry.chars().count() + 1;
    let profile = options.map(parse_options).transpose();
    let profile = profile.map_err(|reason| at(options_start, reason))?.flatten();
    let Some((name_text, source_text)) = entry.split_once('=') else {
        if let Some(profile) = profile {
            let parse =
                |text| parse_name(text).and_then(|name| Ok((name, parse_source(entry.trim())?)));
            let (name, source) =
                parse(profile.device_name).map_err(|reason| at(blanks(entry), reason))?;
            return Ok(LinkSpec { name, source, profile: Some(profile) });
        }
        return Err(at(blanks(entry), ParseReason::NoEquals { given: entry.trim().to_owned() }));
    };
    let name = parse_name(name_text.trim()).map_err(|reason| at(blanks(name_text), reason))?;
    let source_start = name_text.chars().count() + 1;
    let source = parse_source(source_text.trim())
        .map_err(|reason| at(source_start + blanks(source_text), reason))?;
    Ok(LinkSpec { name, source, profile })
}

/// Parses the options after the first comma of an entry. The last profile counts.
fn parse_options(text: &str) -> Result<Option<&'static Profile>, ParseReason> {
    let mut profile = None;
    for option in text.split(',').map(str::trim).filter(|option| !option.is_empty()) {
        let Some((_, given)) = option.split_once('=').filter(|_| is_option(option)) else {
            return Err(ParseReason::UnknownOption { given: option.to_owned() });
        };
        let given = given.trim();
        let found = Profile::named(given);
        profile =
            Some(found.ok_or_else(|| ParseReason::UnknownProfile { given: given.to_owned() })?);
    }
    Ok(profile)
}

/// Returns the number of leading white-space characters of `text`; 0 if `text` is blank.
fn blanks(text: &str) -> usize {
    if text.trim().is_empty() { 0 } else { text.chars().take_while(|c| c.is_whitespace()).count() }
}

fn parse_name(text: &str) -> Result<LinkName, ParseReason> {
    let Some(first) = text.chars().next() else {
        return Err(ParseReason::EmptyName);
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let wrong =
        if first.is_ascii_alphabetic() { text.chars().find(|&c| !allowed(c)) } else { Some(first) };
    if let Some(found) = wrong {
        return Err(ParseReason::NameCharacter { given: text.to_owned(), found });
    }
    if text.len() > MAX_NAME_LEN {
        return Err(ParseReason::NameTooLong { given: text.to_owned() });
    }
    if text == PROFILE {
        return Err(ParseReason::ReservedName);
    }
    Ok(LinkName(text.to_owned()))
}

fn parse_source(text: &str) -> Result<Source, ParseReason> {
    if text.is_empty() {
        return Err(ParseReason::EmptySource);
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Source::Address(address.to_canonical()));
    }
    // The kernel refuses '/', ':' and white space in names; the others have a meaning in this
    // grammar.
    let forbidden =
        |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | ':' | ',' | '=' | '#');
    if text.len() > MAX_INTERFACE_LEN || text == "." || text == ".." || text.contains(forbidden) {
        return Err(ParseReason::BadSource { given: text.to_owned() });
    }
    Ok(Source::Interface(text.to_owned()))
}
