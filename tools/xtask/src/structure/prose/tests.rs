//! Prose of pages and comments, with the words that the limits count.

use super::*;

/// Returns the faults of one area with one file.
fn found(area: &str, text: String, pending: &[&str]) -> Vec<String> {
    let texts = Texts::from([("file".to_owned(), text)]);
    faults(&BTreeMap::from([(area.to_owned(), texts)]), pending)
}

/// Returns a text of many words, with `others` among them.
fn long(others: &str) -> String {
    format!("{} {others}", "A word is here. ".repeat(250))
}

#[test]
fn each_measure_counts_its_words() {
    let text = "Who asks, knows what it does; what? Whoever told Nobody, tells it's \"who\".";
    let counts = MEASURES.map(|measure| (measure.count)(text));
    assert_eq!(counts, [3, 2, 2, 2, 0]);
    assert_eq!(words("a 'quoted', well-known b_c – 9.7").count(), 6);
}

#[test]
fn an_area_over_a_limit_is_found_with_its_files() {
    assert_eq!(found("a", long("Who asks."), &[]), [""; 0]);
    let faults = found("a", long("Who asks. What is it?"), &[]);
    let expected = "a: bare who/what clauses: 2.0 in 1000, at most 1.0; most in file (2)";
    assert_eq!(faults, [expected]);
    assert_eq!(found("a", "Who asks.".to_owned(), &[]), [""; 0], "few words");
}

#[test]
fn it_counts_in_comments_and_long_sentences_in_pages() {
    let text = long(&"It is it. ".repeat(20));
    assert!(found("a", text.clone(), &[])[0].starts_with("a: it: "));
    assert_eq!(found("a.md", text, &[]), [""; 0]);
    let sentence = "word ".repeat(26) + "ends.\n\n";
    let text = sentence.repeat(10);
    assert!(found("a.md", text.clone(), &[])[0].starts_with("a.md: sentences with more than 25"));
    assert_eq!(found("a", text, &[]), [""; 0]);
}

#[test]
fn a_pending_area_is_free_until_it_keeps_the_limits() {
    let over = long("Who asks. What is it?");
    assert_eq!(found("a", over, &["a"]), [""; 0]);
    let faults = found("a", long(""), &["a", "b"]);
    assert!(faults[0].starts_with("a keeps the limits: "), "{faults:?}");
    assert!(faults[1].starts_with("b is gone: "), "{faults:?}");
}

#[test]
fn code_tables_and_links_of_a_page_do_not_count() {
    let page = "# Who calls\n\n```text\nwho calls\n```\n| who calls |\n\
                - `who calls` [what](who calls)\n\
                1. <https://example.org/who calls>\n[x]: who calls\n";
    assert_eq!(bare_clauses(&markdown(page)), 1, "{}", markdown(page));
    assert_eq!(sentences("# one two three\n\none two three. four five six\n\nseven").count(), 2);
}

#[test]
fn comments_and_messages_of_a_file_count() {
    let file = "//! who calls\n\n/// ```\n/// who calls\n/// ```\n/// what is\n// what is\n\
                #[error(\"who calls \\\n  what is\")]\nstruct A;\n\
                macro! { #[arg(help = \"who calls\")] }\n\
                const A: &str = \"who calls\"; // who calls\n";
    let prose = comments(file).unwrap();
    assert_eq!(bare_clauses(&prose), 6, "{prose}");
}
