//! The pages of section 1: one for each command line, from its definition, with the parts of
//! `docs/manual.md`.
//!
//! | section | from |
//! |---|---|
//! | NAME, DESCRIPTION | the definition; the paragraphs below the options of the help |
//! | SYNOPSIS | the usage line of the help |
//! | OPTIONS, SUBCOMMANDS | the definition, by clap_mangen |
//! | EXIT STATUS, ENVIRONMENT, EXAMPLES | the help, then `docs/manual.md` |
//! | other sections | `docs/manual.md` |

use std::collections::BTreeMap;

use clap::{Arg, Command};
use clap_mangen::Man;
use clap_mangen::roff::{bold, roman};

use crate::markdown::{self, line, literal, without_preamble};
use crate::page::{Page, with_code};

/// The parts of pages that the definition of the command line does not have.
const PARTS: &str = include_str!("../../../docs/manual.md");
/// The heading of the parts that pages have which have none of their own.
const DEFAULT: &str = "Every command";
/// The heading of the references to other pages.
const SEE_ALSO: &str = "See also";
/// Heads of blocks of the help, and the sections for the blocks.
const BLOCKS: [(&str, &str); 3] =
    [("Examples:\n", "EXAMPLES"), ("Environment:\n", "ENVIRONMENT"), ("Exit code ", "EXIT STATUS")];

/// The sections of a page, by heading, in Markdown.
type Sections<'a> = BTreeMap<&'a str, &'a str>;

/// Returns the pages of the command and of all subcommands.
pub fn pages() -> Vec<Page> {
    let mut command = urxe_tools::command();
    command.build();
    let mut pages = Vec::new();
    let parts = parts();
    add(&command, None, &parts, &mut pages);
    let names: Vec<&str> = pages.iter().map(|page| &*page.name).collect();
    for name in parts.keys() {
        assert!(*name == DEFAULT || names.contains(name), "docs/manual.md: no command {name}");
    }
    pages
}

/// Adds the page of a command, then those of its subcommands.
fn add(
    command: &Command,
    parent: Option<&str>,
    parts: &BTreeMap<&str, Sections<'_>>,
    pages: &mut Vec<Page>,
) {
    let page = page(command, parent, parts);
    let name = page.name.clone();
    pages.push(page);
    for subcommand in subcommands(command) {
        add(subcommand, Some(&name), parts, pages);
    }
}

/// Returns the subcommands that the help shows.
fn subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    let is_shown = |sub: &&Command| !sub.is_hide_set() && sub.get_name() != "help";
    command.get_subcommands().filter(is_shown)
}

fn page(command: &Command, parent: Option<&str>, parts: &BTreeMap<&str, Sections<'_>>) -> Page {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let mut page = Page::new(name, 1, &about);
    page.add("SYNOPSIS", &synopsis(command));
    page.add("DESCRIPTION", &format!(".PP\n{}.\n", with_code(&line(vec![roman(&*about)]))));
    options(command, &mut page);
    help(command, &mut page);
    let none = Sections::new();
    let own = parts.get(name).unwrap_or(&none);
    for (heading, text) in own.iter().filter(|(heading, _)| **heading != SEE_ALSO) {
        page.add(heading, &markdown::roff(text));
    }
    for (heading, text) in &parts[DEFAULT] {
        if !page.has(&heading.to_uppercase()) {
            page.add(heading, &markdown::roff(text));
        }
    }
    // The pages above and below, then others.
    let below = subcommands(command).map(|sub| format!("{name}-{}(1)", sub.get_name()));
    let above = parent.map(|parent| format!("{parent}(1)"));
    let others = own.get(SEE_ALSO).map(|text| text.trim().to_owned());
    let pages: Vec<String> = above.into_iter().chain(below).chain(others).collect();
    page.add(SEE_ALSO, &markdown::roff(&pages.join(", ")));
    page
}

/// Returns the usage line.
fn synopsis(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let lines = usage.trim_start_matches("Usage:").lines().map(|usage| {
        let usage = usage.trim();
        match usage.strip_prefix(name) {
            Some(rest) => line(vec![bold(name), roman(rest)]),
            None => line(vec![roman(usage)]),
        }
    });
    lines.collect::<Vec<_>>().join("\n.br\n") + "\n"
}

/// Adds the options, and the subcommands.
fn options(command: &Command, page: &mut Page) {
    let command = command.clone().mut_args(with_aliases);
    let man = Man::new(command.clone());
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        let mut text = Vec::new();
        man.render_options_section(&mut text).expect("a vector takes all bytes");
        sections(&text, page);
    }
    if subcommands(&command).next().is_some() {
        let mut text = Vec::new();
        man.render_subcommands_section(&mut text).expect("a vector takes all bytes");
        sections(&text, page);
    }
}

/// Adds the other names of an option to its text. clap_mangen leaves them out.
fn with_aliases(argument: Arg) -> Arg {
    let names = argument.get_visible_aliases().unwrap_or_default();
    let names: Vec<String> = names.iter().map(|name| format!("--{name}")).collect();
    match (names.is_empty(), argument.get_help()) {
        (false, Some(help)) => {
            let help = format!("{help} [alias: {}]", names.join(", "));
            argument.help(help)
        }
        _ => argument,
    }
}

/// Adds rendered sections, which begin with `.SH`. An argument without a text leaves an empty line.
fn sections(rendered: &[u8], page: &mut Page) {
    let rendered = String::from_utf8_lossy(rendered);
    let text = without_preamble(&rendered);
    for section in text.split("\n.SH ").map(|section| section.trim_start_matches(".SH ")) {
        let (heading, body) = section.split_once('\n').unwrap_or((section, ""));
        let lines = body.lines().map(str::trim_end).filter(|line| !line.is_empty());
        let mut lines: Vec<&str> = lines.collect();
        // The values of an option follow two line breaks.
        lines.dedup_by(|next, line| *next == ".br" && *line == ".br");
        let body: String = lines.into_iter().flat_map(|line| [line, "\n"]).collect();
        page.add(&heading.trim_matches('"').replace("\\-", "-"), &with_code(&body));
    }
}

/// Adds the blocks below the options of the help. In a block, indented lines are literal.
fn help(command: &Command, page: &mut Page) {
    let Some(help) = command.get_after_long_help().or_else(|| command.get_after_help()) else {
        return;
    };
    let help = help.to_string();
    for text in help.split("\n\n") {
        match BLOCKS.iter().find(|(head, _)| text.starts_with(head)) {
            // The text of an exit code begins with the words.
            Some((_, section @ "EXIT STATUS")) => page.add(section, &block(text)),
            Some((head, section)) => page.add(section, &block(&text[head.len()..])),
            None => page.add("DESCRIPTION", &block(text)),
        }
    }
}

/// Returns a block of the help as roff.
fn block(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let runs = lines.chunk_by(|one, next| one.starts_with("  ") == next.starts_with("  "));
    let mut roff = String::new();
    for run in runs {
        if run[0].starts_with("  ") {
            let code = run.iter().map(|line| &line[2..]).collect::<Vec<_>>().join("\n");
            roff.push_str(&literal(&code));
        } else {
            let text = line(vec![roman(run.join(" "))]);
            roff.push_str(&format!(".PP\n{}\n", with_code(&text)));
        }
    }
    roff
}

/// Splits `docs/manual.md`: for each `## PAGE` its sections `### HEADING`.
fn parts() -> BTreeMap<&'static str, Sections<'static>> {
    let pages = PARTS.split("\n## ").skip(1);
    pages
        .map(|page| {
            let (name, body) = page.split_once('\n').unwrap_or((page, ""));
            let sections = body.split("\n### ").skip(1);
            (name, sections.filter_map(|section| section.split_once('\n')).collect())
        })
        .collect()
}
