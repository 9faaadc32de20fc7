//! Checks that the top-level modules of a crate do not use each other in a cycle.
//!
//! - A path `crate::a::…` or `super::a::…` in module `b` is an edge from `b` to `a`.
//! - A name that the root re-exports counts as its defining module. A name that the root defines is
//!   an edge to the root.
//! - Nested modules count as their top-level module, so cycles inside a folder are allowed.
//! - Code under `#[cfg(test)]`, attributes and visibilities are ignored.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use proc_macro2::{Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, ItemMod, ItemUse, Macro, Meta, UseTree, Visibility};

use super::root_files;
use crate::run::root;

/// The file and line of the first use, by using and used module.
type Arrows = BTreeMap<(String, String), String>;

/// The name of the root file's own code.
const ROOT: &str = "crate root";

/// Crates whose modules may use each other. Each module is an object of the API that creates its
/// children, such as a device its protection domains, and a child names its parent.
const FREE: [&str; 2] = ["urxe", "urxe-abi"];

/// Returns the cycles of all other crates of the workspace.
pub fn check() -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for (package, file) in root_files(&FREE)? {
        let arrows = arrows(&file)?;
        faults.extend(cycles(&arrows).into_iter().map(|cycle| show(&package, &arrows, &cycle)));
    }
    Ok(faults)
}

fn show(package: &str, arrows: &Arrows, cycle: &[String]) -> String {
    let mut text = format!("{package}: modules in a cycle:");
    for (at, user) in cycle.iter().enumerate() {
        let used = &cycle[(at + 1) % cycle.len()];
        let place = &arrows[&(user.clone(), used.clone())];
        text.push_str(&format!("\n  {user} -> {used:<20} {place}"));
    }
    text
}

/// Returns the arrows between the top-level modules of the crate with this root file.
fn arrows(file: &Path) -> Result<Arrows> {
    let mut reader = Reader { file: file.to_owned(), ..Reader::default() };
    reader.read(file, file.parent().unwrap_or(file))?;
    let mut arrows = Arrows::new();
    for Use { module, path, place } in &reader.uses {
        let Some(to) = reader.resolve(module, path, 0) else { continue };
        let from = module.first().map_or(ROOT, String::as_str).to_owned();
        if from != to {
            arrows.entry((from, to)).or_insert_with(|| place.clone());
        }
    }
    Ok(arrows)
}

/// Returns all paths of two or more words in the crate with this root file, with file and line.
pub fn paths(file: &Path) -> Result<Vec<(Vec<String>, String)>> {
    let mut reader = Reader { file: file.to_owned(), ..Reader::default() };
    reader.read(file, file.parent().unwrap_or(file))?;
    Ok(reader.uses.into_iter().map(|Use { path, place, .. }| (path, place)).collect())
}

/// A path in a module.
struct Use {
    module: Vec<String>,
    path: Vec<String>,
    place: String,
}

/// Reads the files of a crate.
#[derive(Default)]
struct Reader {
    file: PathBuf,
    module: Vec<String>,
    /// Where the files of the module's children lie.
    folder: PathBuf,
    uses: Vec<Use>,
    top_level: BTreeSet<String>,
    /// The names that the root re-exports, with their paths.
    exported: BTreeMap<String, Vec<String>>,
    failed: Option<anyhow::Error>,
}

impl Reader {
    fn read(&mut self, file: &Path, folder: &Path) -> Result<()> {
        let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
        let parsed = syn::parse_file(&text).with_context(|| format!("parse {}", file.display()))?;
        let outer = (self.file.clone(), self.folder.clone());
        (self.file, self.folder) = (file.to_owned(), folder.to_owned());
        self.visit_file(&parsed);
        (self.file, self.folder) = outer;
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Reads the file of a child module.
    fn read_child(&mut self, name: &str) -> Result<()> {
        let below = self.folder.join(name);
        let (flat, nested) = (below.with_extension("rs"), below.join("mod.rs"));
        self.read(if flat.is_file() { &flat } else { &nested }, &below)
    }

    fn note(&mut self, path: Vec<String>, span: Span) {
        let file = self.file.strip_prefix(root()).unwrap_or(&self.file);
        let place = format!("{}:{}", file.display(), span.start().line);
        self.uses.push(Use { module: self.module.clone(), path, place });
    }

    /// Records paths from `crate` and `super` in the arguments of a macro, which are tokens.
    fn note_tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            if let TokenTree::Group(group) = &tokens[at] {
                self.note_tokens(group.stream());
            }
            let mut path = Vec::new();
            let start = at;
            while let Some(TokenTree::Ident(word)) = tokens.get(at) {
                path.push(word.to_string());
                if !is_colon(tokens.get(at + 1)) || !is_colon(tokens.get(at + 2)) {
                    break;
                }
                at += 3;
            }
            if path.len() > 1 {
                self.note(path, tokens[start].span());
            }
            at += 1;
        }
    }

    /// Returns the top-level module that a path in `module` refers to. Returns `None` for another
    /// crate and for the module itself.
    fn resolve(&self, module: &[String], path: &[String], depth: usize) -> Option<String> {
        let mut base = module.to_vec();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => {
                base.clear();
                rest = &path[1..];
            }
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|word| word == "super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            // A name of this scope: its `use` is noted by itself, another crate does not count.
            _ if !module.is_empty() => return None,
            name if !self.top_level.contains(name) && !self.exported.contains_key(name) => {
                return None;
            }
            _ => {}
        }
        if let Some(top) = base.first() {
            return Some(top.clone());
        }
        let Some(name) = rest.first() else { return Some(ROOT.to_owned()) };
        if self.top_level.contains(name) {
            return Some(name.clone());
        }
        match self.exported.get(name) {
            Some(target) if depth < 8 => self.resolve(&[], target, depth + 1),
            _ => Some(ROOT.to_owned()),
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        match item {
            ImplItem::Fn(function) if is_test(&function.attrs) => {}
            _ => visit::visit_impl_item(self, item),
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let name = item.ident.to_string();
        if self.module.is_empty() {
            self.top_level.insert(name.clone());
        }
        self.module.push(name.clone());
        if item.content.is_some() {
            let outer = self.folder.clone();
            self.folder.push(&name);
            visit::visit_item_mod(self, item);
            self.folder = outer;
        } else if let Err(error) = self.read_child(&name) {
            self.failed.get_or_insert(error);
        }
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let mut paths = Vec::new();
        flatten(&item.tree, Vec::new(), &mut paths);
        let is_private = matches!(item.vis, Visibility::Inherited);
        for (name, path, span) in paths {
            if self.module.is_empty() {
                self.exported.insert(name, path.clone());
            }
            if !self.module.is_empty() || is_private {
                self.note(path, span);
            }
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            let words = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.note(words, path.segments[0].ident.span());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.note_tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}

fn is_colon(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Punct(mark)) if mark.as_char() == ':')
}

/// Lists the paths of a `use`, each with its name in the scope.
fn flatten(tree: &UseTree, mut path: Vec<String>, out: &mut Vec<(String, Vec<String>, Span)>) {
    match tree {
        UseTree::Path(step) => {
            path.push(step.ident.to_string());
            flatten(&step.tree, path, out);
        }
        UseTree::Group(group) => {
            group.items.iter().for_each(|item| flatten(item, path.clone(), out));
        }
        UseTree::Name(name) if name.ident == "self" => {
            out.push((path.last().cloned().unwrap_or_default(), path, name.ident.span()));
        }
        UseTree::Name(name) => {
            path.push(name.ident.to_string());
            out.push((name.ident.to_string(), path, name.ident.span()));
        }
        UseTree::Rename(name) => {
            path.push(name.ident.to_string());
            out.push((name.rename.to_string(), path, name.ident.span()));
        }
        UseTree::Glob(star) => out.push(("*".to_owned(), path, star.star_token.spans[0])),
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns whether an item is compiled only for tests: `cfg(test)` or `cfg(all(test, …))`.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let text = list.tokens.to_string();
            let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
            words.contains(&"test") && !words.contains(&"not") && !words.contains(&"any")
                || text.starts_with("all (test")
                || text.starts_with("all(test")
        }
        _ => false,
    })
}

/// Returns a shortest cycle for each edge that is part of a cycle; each cycle once.
fn cycles(arrows: &Arrows) -> Vec<Vec<String>> {
    let mut used: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in arrows.keys() {
        used.entry(from).or_default().push(to);
    }
    let mut found = BTreeSet::new();
    for (from, to) in arrows.keys() {
        if let Some(mut cycle) = path(&used, to, from) {
            let first = (0..cycle.len()).min_by_key(|&at| &cycle[at]).unwrap_or(0);
            cycle.rotate_left(first);
            found.insert(cycle);
        }
    }
    found.into_iter().collect()
}

/// Returns a shortest way from one module to another, both included.
fn path(used: &BTreeMap<&str, Vec<&str>>, from: &str, to: &str) -> Option<Vec<String>> {
    let mut ways = VecDeque::from([vec![from.to_owned()]]);
    let mut seen = BTreeSet::from([from]);
    while let Some(way) = ways.pop_front() {
        let last = way.last()?;
        if last == to {
            return Some(way);
        }
        for &next in used.get(last.as_str()).into_iter().flatten() {
            if seen.insert(next) {
                ways.push_back(way.iter().cloned().chain([next.to_owned()]).collect());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(name: &str) -> Vec<String> {
        let root = root().join("tools/xtask/testdata").join(name).join("lib.rs");
        let arrows = arrows(&root).unwrap();
        cycles(&arrows).iter().map(|cycle| show(name, &arrows, cycle)).collect()
    }

    #[test]
    fn a_reversed_arrow_is_found() {
        let found = fixture("reversed");
        let expected = "reversed: modules in a cycle:\
            \n  high -> low                  tools/xtask/testdata/reversed/high.rs:3\
            \n  low -> high                 tools/xtask/testdata/reversed/low/deep.rs:7";
        assert_eq!(found, [expected]);
    }

    #[test]
    fn tests_folders_and_reexports_make_no_cycle() {
        assert_eq!(fixture("straight"), [""; 0]);
    }
}
