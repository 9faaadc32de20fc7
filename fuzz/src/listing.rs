//! Any bytes as the listing of another process, as `urxe link show --connections` reads and prints
//! it.
//!
//! Properties: nothing panics. A listing is written and read back. The output has one line for each
//! identifier and for each table of counts, and its size is limited by that of the listing. The
//! other process's text neither begins a line nor reaches a terminal unescaped. The output as JSON
//! has the same value.

use urxe_stack::escape::Escaped;
use urxe_stack::listing::Listing;
use urxe_tools::untrusted::print_listing;

/// Bytes of the output for each byte of the text of a listing, when each is escaped.
const ESCAPED: usize = 6;
/// Bytes of the longest line without texts.
const LINE: usize = 400;
/// Bytes of the output for a count, without its name.
const COUNT: usize = 24;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let listing = match Listing::from_cbor(bytes) {
        Ok(listing) => listing,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let again = listing.to_cbor();
    assert_eq!(Listing::from_cbor(&again).as_ref(), Ok(&listing), "read back");
    check_lines(&listing);
    check_json(&listing);
}

fn check_lines(listing: &Listing) {
    let printed = String::from_utf8(print_listing(listing, false)).expect("the output is UTF-8");
    let tables = [&listing.communications, &listing.counters];
    let tables_shown = tables.iter().filter(|table| !table.is_empty()).count();
    assert_eq!(printed.lines().count(), listing.ids.len() + tables_shown, "{printed:?}");
    let unescaped = |c: char| c != '\n' && Escaped(c).to_string() != c.to_string();
    assert!(!printed.contains(unescaped), "{printed:?}");
    let texts = listing
        .ids
        .iter()
        .flat_map(|id| [Some(&id.qp_type), Some(&id.state), id.cm_state.as_ref(), Some(&id.ps)]);
    let names = tables.iter().flat_map(|table| table.keys());
    let counts = tables.iter().map(|table| table.len()).sum::<usize>();
    let text_len: usize = texts.flatten().chain(names).map(String::len).sum();
    let most = (listing.ids.len() + tables_shown) * LINE + counts * COUNT + text_len * ESCAPED;
    assert!(printed.len() <= most, "{} bytes for {most}", printed.len());
}

fn check_json(listing: &Listing) {
    let printed = print_listing(listing, true);
    let value: serde_json::Value = serde_json::from_slice(&printed).expect("the output is JSON");
    assert_eq!(value, serde_json::to_value(listing).expect("a listing has a value"));
}
