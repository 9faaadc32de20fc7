//! Links of Markdown pages: the linked file and section exist. The book has each page of `docs`.
//!
//! A page of `docs` may link inside `docs` by a relative path. It links to another file of the
//! repository by the address of that file on the web, because the book does not have the file. The
//! check compares such an address with the files, too. It reads no other address.
//!
//! Pages of `docs` that sources name as text, such as `docs/ci.md`, exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result};
use pulldown_cmark::{BrokenLink, Event, LinkType, Options, Parser, Tag, TagEnd};
use regex::Regex;

use super::{metadata, tracked};
use crate::run::root;

/// The folder of the book's pages.
const BOOK: &str = "docs";
/// The book's table of contents.
const SUMMARY: &str = "docs/SUMMARY.md";
/// Sources that name pages as text.
const SOURCES: [&str; 9] =
    ["*.rs", "*.sh", "*.py", "*.c", "*.h", "*.toml", "*.yml", "*.md", "Dockerfile"];

/// A page: the targets of its links with their lines, and the ids of its headings.
#[derive(Debug, Default, PartialEq)]
struct Page {
    links: Vec<(usize, String)>,
    ids: BTreeSet<String>,
}

/// Returns a line for each link without a target, and for each page that is not in the book.
pub fn check() -> Result<Vec<String>> {
    let mut pages = BTreeMap::new();
    for file in tracked(&["*.md"])? {
        let text = fs::read_to_string(root().join(&file))?;
        if !file.components().any(|part| part.as_os_str() == "testdata") {
            pages.insert(file, page(&text));
        }
    }
    let web = format!("{}/blob/main/", repository()?);
    let mut faults = faults(&pages, &web, |path| root().join(path).exists());
    faults.extend(named_pages()?);
    Ok(faults)
}

/// Returns the address of the repository on the web.
fn repository() -> Result<String> {
    let packages = metadata()?.packages;
    let address = packages.into_iter().find_map(|package| package.repository);
    address.context("no package has the field `repository`")
}

/// Returns a line for each page of docs that a source names, and that does not exist.
fn named_pages() -> Result<Vec<String>> {
    let named = Regex::new(r"\bdocs/[a-z/-]+\.md\b")?;
    let mut faults = BTreeSet::new();
    for file in tracked(&SOURCES)? {
        let text = fs::read_to_string(root().join(&file))?;
        for found in named.find_iter(&text).filter(|found| !root().join(found.as_str()).exists()) {
            faults.insert(format!("{}: names {}, which is gone", file.display(), found.as_str()));
        }
    }
    Ok(faults.into_iter().filter(|fault| !fault.starts_with(file!())).collect())
}

/// Reads a page.
fn page(text: &str) -> Page {
    let mut page = Page::default();
    let mut heading: Option<String> = None;
    let line = |offset: usize| text[..offset].matches('\n').count() + 1;
    let mut broken = Vec::new();
    let report = |link: BrokenLink<'_>| {
        // `[1]` alone is text.
        if link.link_type != LinkType::Shortcut {
            broken.push((line(link.span.start), format!("[{}]", link.reference)));
        }
        None
    };
    let options = Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES;
    let parser = Parser::new_with_broken_link_callback(text, options, Some(report));
    for (event, range) in parser.into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let id = id(&heading.take().unwrap_or_default());
                let mut ids =
                    std::iter::once(id.clone()).chain((1..).map(|nr| format!("{id}-{nr}")));
                page.ids.extend(ids.find(|id| !page.ids.contains(id)));
            }
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                page.links.push((line(range.start), dest_url.into_string()));
            }
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            _ => {}
        }
    }
    page.links.extend(broken);
    page
}

/// Returns the id of a heading, as mdBook and GitHub make it.
fn id(heading: &str) -> String {
    let is_kept = |c: &char| c.is_alphanumeric() || matches!(c, '_' | '-') || c.is_whitespace();
    let letters = heading.trim().chars().filter(is_kept);
    letters.map(|c| if c.is_whitespace() { '-' } else { c }).flat_map(char::to_lowercase).collect()
}

/// Returns a line for each fault. `web` is the address of the files on the web, and `exists` says
/// whether the repository has a path.
fn faults(
    pages: &BTreeMap<PathBuf, Page>,
    web: &str,
    exists: impl Fn(&Path) -> bool,
) -> Vec<String> {
    let mut faults = Vec::new();
    for (file, page) in pages {
        for (line, link) in &page.links {
            if let Some(fault) = fault(pages, file, link, web, &exists) {
                faults.push(format!("{}:{line}: {link}: {fault}", file.display()));
            }
        }
    }
    let listed = pages.get(Path::new(SUMMARY)).map(|summary| &summary.links);
    for file in pages.keys().filter(|file| file.starts_with(BOOK) && *file != Path::new(SUMMARY)) {
        let links = listed.into_iter().flatten();
        match links.filter(|(_, link)| Path::new(BOOK).join(link) == **file).count() {
            1 => {}
            count => faults.push(format!("{SUMMARY} lists {} {count} times", file.display())),
        }
    }
    faults
}

/// Returns the fault of a link of `file`.
fn fault(
    pages: &BTreeMap<PathBuf, Page>,
    file: &Path,
    link: &str,
    web: &str,
    exists: impl Fn(&Path) -> bool,
) -> Option<String> {
    if link.starts_with('[') {
        return Some("the page does not define this reference".to_owned());
    }
    let (path, id) = link.split_once('#').unwrap_or((link, ""));
    let target = match path.strip_prefix(web) {
        Some(path) => PathBuf::from(path),
        // rustdoc checks links to items of crates.
        None if path.contains("::") => return None,
        None if path.contains("://") || path.starts_with("mailto:") => return None,
        None if path.is_empty() => file.to_owned(),
        None => joined(file.parent().unwrap_or(Path::new("")), path)?,
    };
    let is_relative = !path.contains("://");
    if is_relative && file.starts_with(BOOK) && !target.starts_with(BOOK) {
        return Some(format!("the book lacks it; write {web}{}", target.display()));
    }
    if !exists(&target) {
        return Some(format!("{} does not exist", target.display()));
    }
    let has_id = |page: &Page| id.is_empty() || page.ids.contains(id);
    match pages.get(&target) {
        Some(page) if !has_id(page) => {
            Some(format!("{} has no heading with this id", target.display()))
        }
        _ => None,
    }
}

/// Returns the path relative to the root, without `..`; none if it leaves the root.
fn joined(folder: &Path, path: &str) -> Option<PathBuf> {
    let mut joined = PathBuf::new();
    for part in folder.join(path).components() {
        match part {
            Component::ParentDir if !joined.pop() => return None,
            Component::Normal(part) => joined.push(part),
            _ => {}
        }
    }
    Some(joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEB: &str = "https://example.org/blob/main/";

    /// Returns the faults of these pages, which are all files of the repository beside `LICENSE`.
    fn found(pages: &[(&str, &str)]) -> Vec<String> {
        let pages: BTreeMap<PathBuf, Page> =
            pages.iter().map(|(file, text)| ((*file).into(), page(text))).collect();
        let exists = |path: &Path| pages.contains_key(path) || path == Path::new("LICENSE");
        faults(&pages, WEB, exists)
    }

    #[test]
    fn ids_are_those_of_the_book() {
        for (heading, expected) in [
            ("Quick start", "quick-start"),
            ("qperf (9a)", "qperf-9a"),
            ("`rdma_rxe` – and more?", "rdma_rxe--and-more"),
            ("Naïve Übertragung", "naïve-übertragung"),
        ] {
            let ids = page(&format!("# {heading}\n")).ids;
            assert_eq!(ids, BTreeSet::from([expected.to_owned()]));
        }
        let twice = page("# A\n\n## Files\n\n## Files\n\n```sh\n# no heading\n```\n").ids;
        assert_eq!(twice, ["a", "files", "files-1"].map(str::to_owned).into());
    }

    #[test]
    fn links_to_files_and_headings_are_compared_with_them() {
        let summary = ("docs/SUMMARY.md", "- [A](a.md)\n- [B](b/c.md)\n");
        let fine = "# A\n\n[b](b/c.md#here), [self](#a), [web](https://nowhere.example/x#y),\n\
                    [licence](https://example.org/blob/main/LICENSE), `[code](gone.md)`, [1]\n";
        let c = ("docs/b/c.md", "## Here\n\n[up](../a.md)\n");
        assert_eq!(found(&[summary, ("docs/a.md", fine), c]), Vec::<String>::new());
        for (text, expected) in [
            ("\n[b](b/d.md)\n", "docs/a.md:2: b/d.md: docs/b/d.md does not exist"),
            ("[b](b/c.md#there)\n", "docs/b/c.md has no heading with this id"),
            ("[x](../LICENSE)\n", "the book lacks it; write https://example.org/blob/main/LICENSE"),
            ("[x](https://example.org/blob/main/GONE)\n", "GONE does not exist"),
            ("[x][gone]\n", "the page does not define this reference"),
        ] {
            let faults = found(&[summary, ("docs/a.md", text), c]);
            assert_eq!(faults.len(), 1, "{text}: {faults:?}");
            assert!(faults[0].contains(expected), "{faults:?}");
        }
    }

    #[test]
    fn a_page_that_the_book_lacks_is_found() {
        let faults = found(&[("docs/SUMMARY.md", ""), ("docs/a.md", ""), ("README.md", "")]);
        assert_eq!(faults, ["docs/SUMMARY.md lists docs/a.md 0 times"]);
    }
}
