//! The names in the public interface of the crate `urxe`: each type that a public item mentions
//! belongs to std, to `urxe-wire`, or has a public name in `urxe`.
//!
//! The traits of optional features, such as those of tokio, may appear, too.
//!
//! `cargo check-external-types` is a similar program, for a nightly compiler. It forbids a type of
//! an internal crate, or allows it. This check allows it if it has a public name.
//!
//! The check reads what rustdoc writes as JSON for the crate and the layers that it re-exports. It
//! follows the public modules and re-exports of `urxe`, and collects the types in fields, variants,
//! signatures and implementations. rustdoc writes JSON only as an unstable format, so the check
//! reads few of its fields.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// The crate whose interface is checked.
const CRATE: &str = "urxe";
/// Crates whose types may appear: std and its parts, the crate of packets, which programs use
/// directly, and the crates of optional features.
const ALLOWED: [&str; 8] =
    ["std", "core", "alloc", "urxe_wire", "futures_core", "futures_io", "serde_core", "tokio"];
/// What `bitflags!` generates for a set of flags.
const GENERATED: &str = "bitflags::";

/// An item: its crate and its number there.
type Item<'a> = (&'a str, String);

/// What rustdoc wrote about the crates.
#[derive(Default)]
pub struct Docs {
    crates: BTreeMap<String, Value>,
    /// The numbers of items by their paths, for each crate.
    paths: HashMap<String, HashMap<String, String>>,
}

impl Docs {
    /// Reads the files of the crates in `folder`.
    pub fn read(folder: &Path, crates: &[&str]) -> Result<Self> {
        let mut docs = Self::default();
        for name in crates {
            let file = folder.join(name.replace('-', "_")).with_extension("json");
            let text = fs::read(&file).with_context(|| file.display().to_string())?;
            docs.add(&name.replace('-', "_"), serde_json::from_slice(&text)?);
        }
        ensure!(docs.crates.contains_key(CRATE), "no documentation of {CRATE}");
        Ok(docs)
    }

    fn add(&mut self, name: &str, doc: Value) {
        let mut paths = HashMap::new();
        for (id, path) in doc["paths"].as_object().into_iter().flatten() {
            if path["crate_id"] == 0 {
                paths.insert(joined(path), id.clone());
            }
        }
        self.paths.insert(name.to_owned(), paths);
        self.crates.insert(name.to_owned(), doc);
    }

    fn item(&self, (name, id): &Item<'_>) -> Option<&Value> {
        self.crates.get(*name)?["index"].get(id)
    }

    /// Returns the item with number `id` in the crate `name`, which may be of another crate, and
    /// its full path. The item is missing if its crate was not read.
    fn resolve<'a>(&'a self, name: &'a str, id: &Value) -> (Option<Item<'a>>, String) {
        let id = id.to_string();
        let Some((name, doc)) = self.crates.get_key_value(name) else { return (None, id) };
        let Some(path) = doc["paths"].get(&id) else { return (Some((name, id)), String::new()) };
        let full = joined(path);
        let owner = full.split("::").next().unwrap_or_default();
        let item = self.paths.get_key_value(owner);
        (item.and_then(|(owner, paths)| Some((&**owner, paths.get(&full)?.clone()))), full)
    }

    /// Returns the items that have a public name: those that the modules and re-exports reach.
    fn named(&self) -> HashSet<Item<'_>> {
        let mut named = HashSet::new();
        let mut todo = vec![(CRATE, self.crates[CRATE]["root"].to_string())];
        while let Some(place) = todo.pop() {
            let Some(item) = self.item(&place).filter(|_| named.insert(place.clone())) else {
                continue;
            };
            for id in item["inner"]["module"]["items"].as_array().into_iter().flatten() {
                todo.push((place.0, id.to_string()));
            }
            if let Some(id) = item["inner"]["use"].get("id") {
                todo.extend(self.resolve(place.0, id).0);
            }
        }
        named
    }

    /// Returns a line for each type without a public name, with an item that mentions it.
    pub fn faults(&self) -> Vec<String> {
        let named = self.named();
        let mut found = BTreeMap::new();
        for place in named.iter().filter(|(name, _)| !ALLOWED.contains(name)) {
            let Some(item) = self.item(place) else { continue };
            if item["inner"].get("module").or(item["inner"].get("use")).is_some() {
                continue;
            }
            let mut mentioned = BTreeSet::new();
            self.mentioned(place.0, &place.1, &named, &mut mentioned);
            for path in mentioned {
                let user = format!("{}::{}", place.0, item["name"].as_str().unwrap_or_default());
                let first = found.entry(path).or_insert_with(|| user.clone());
                *first = user.min(first.clone());
            }
        }
        let line = |(path, user)| format!("{user} mentions {path}, which has no public name");
        found.into_iter().map(line).collect()
    }

    /// Adds the types without a public name that an item and its parts mention.
    fn mentioned(
        &self,
        name: &str,
        id: &str,
        named: &HashSet<Item<'_>>,
        found: &mut BTreeSet<String>,
    ) {
        let Some(item) = self.item(&(name, id.to_owned())) else { return };
        let inner = &item["inner"];
        let has_name = |id: &Value| {
            let (item, path) = self.resolve(name, id);
            let is_allowed = ALLOWED.contains(&path.split("::").next().unwrap_or_default());
            let is_named = item.is_some_and(|item| named.contains(&item));
            // A parameter of the item itself has no path.
            (is_allowed || is_named || path.is_empty() || path.starts_with(GENERATED), path)
        };
        if let Some(implementation) = inner.get("impl") {
            let is_generated =
                implementation["is_synthetic"] == true || !implementation["blanket_impl"].is_null();
            // A program cannot use a trait or a type that has no public name.
            let is_internal = |id: &Value| {
                let (has_name, path) = has_name(id);
                let owner = path.split("::").next().unwrap_or_default();
                !id.is_null() && !has_name && self.paths.contains_key(owner)
            };
            let of_type = &implementation["for"]["resolved_path"]["id"];
            let is_unusable = is_internal(&implementation["trait"]["id"]) || is_internal(of_type);
            if is_generated || is_unusable {
                return;
            }
        }
        let mut ids = Vec::new();
        types(inner, &mut ids);
        for id in ids {
            let (has_name, path) = has_name(id);
            if !has_name {
                found.insert(path);
            }
        }
        let mut parts = Vec::new();
        parts_of(inner, &mut parts);
        for part in parts {
            self.mentioned(name, &part.to_string(), named, found);
        }
    }
}

/// Returns the path of an entry as text.
fn joined(path: &Value) -> String {
    let words = path["path"].as_array().into_iter().flatten().filter_map(Value::as_str);
    words.collect::<Vec<_>>().join("::")
}

/// Collects the numbers of the types and traits that a declaration mentions.
fn types<'a>(value: &'a Value, ids: &mut Vec<&'a Value>) {
    match value {
        Value::Object(fields) => {
            if let (Some(id), Some(_)) = (fields.get("id"), fields.get("path")) {
                ids.push(id);
            }
            fields.values().for_each(|value| types(value, ids));
        }
        Value::Array(values) => values.iter().for_each(|value| types(value, ids)),
        _ => {}
    }
}

/// Collects the numbers of the fields, variants, methods and implementations of an item.
fn parts_of<'a>(value: &'a Value, parts: &mut Vec<&'a Value>) {
    let Some(fields) = value.as_object() else { return };
    for (key, value) in fields {
        match (key.as_str(), value) {
            ("fields" | "variants" | "items" | "impls" | "tuple", Value::Array(ids)) => {
                parts.extend(ids.iter().filter(|id| id.is_number()));
            }
            ("struct" | "enum" | "union" | "variant" | "trait" | "impl" | "kind" | "plain", _) => {
                parts_of(value, parts);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns a crate with a public struct `Open`, whose field has the type of `id`.
    fn docs(re_exports: bool, id: u64) -> Docs {
        let mut docs = Docs::default();
        let of = |crate_id: u64, path: &str| {
            let path: Vec<_> = path.split("::").collect();
            json!({ "crate_id": crate_id, "path": path })
        };
        let field = json!({ "struct_field": { "resolved_path": { "path": "T", "id": id } } });
        let open = json!({ "struct": { "kind": { "plain": { "fields": [2] } }, "impls": [] } });
        let mut items = vec![1];
        items.extend(re_exports.then_some(3));
        docs.add(
            CRATE,
            json!({
                "root": 0,
                "index": {
                    "0": { "name": CRATE, "inner": { "module": { "items": items } } },
                    "1": { "name": "Open", "inner": open },
                    "2": { "name": "field", "inner": field },
                    "3": { "name": null, "inner": { "use": { "id": 4 } } },
                },
                "paths": {
                    "1": of(0, "urxe::Open"), "4": of(1, "urxe_low::Hidden"),
                    "5": of(2, "rustix::Errno"), "6": of(3, "std::vec::Vec"),
                },
            }),
        );
        let hidden = json!({ "struct": { "kind": "unit", "impls": [] } });
        docs.add(
            "urxe_low",
            json!({
                "root": 0,
                "index": { "9": { "name": "Hidden", "inner": hidden } },
                "paths": { "9": of(0, "urxe_low::Hidden") },
            }),
        );
        docs
    }

    #[test]
    fn a_type_needs_a_public_name() {
        let fault = |path| [format!("urxe::Open mentions {path}, which has no public name")];
        assert_eq!(docs(false, 4).faults(), fault("urxe_low::Hidden"));
        assert!(docs(true, 4).faults().is_empty(), "it is re-exported");
        assert_eq!(docs(true, 5).faults(), fault("rustix::Errno"));
        assert!(docs(true, 6).faults().is_empty(), "std has public names");
    }
}
