//! Tables, for the preprocessor tbl.
//!
//! A terminal of 80 columns must suffice. If the cells need more, the widest columns are narrowed,
//! and their cells are text blocks, whose lines wrap. A page has no end in a terminal, so no part
//! of a table is kept together (`nokeep`).

use std::fmt::Write as _;

/// Columns of a terminal that a table may use: 78 of man(1), without the indentation.
const SPACE: usize = 70;
/// Columns between two columns of a table.
const GAP: usize = 2;

/// Letters behind which a line of a text block may break.
const BREAKS: [char; 3] = [' ', ',', '/'];

/// A cell.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// The text in roff, on one line.
    pub roff: String,
    /// The text that a reader sees.
    pub plain: String,
}

/// Returns a table, whose first row is its head.
pub fn roff(rows: &[Vec<Cell>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |width: fn(&str) -> usize| -> Vec<usize> {
        let of = |column: usize| rows.iter().filter_map(move |row| row.get(column));
        (0..columns)
            .map(|column| of(column).map(|cell| width(&cell.plain)).max().unwrap_or(0))
            .collect()
    };
    let natural = widest(|text| text.chars().count());
    let words = widest(|text| {
        text.split_inclusive(BREAKS).map(|word| word.trim_end().chars().count()).max().unwrap_or(0)
    });
    let gaps = GAP * columns.saturating_sub(1);
    let widths = widths(&natural, &words, SPACE.saturating_sub(gaps));
    let format = |key: &str| {
        let cell = |column: usize| match widths[column] < natural[column] {
            true => format!("{key}w({}n)", widths[column]),
            false => key.to_owned(),
        };
        let cells: Vec<String> = (0..columns).map(cell).collect();
        cells.join(&format!("{GAP} "))
    };
    let mut text = format!(".PP\n.TS\nnokeep;\n{}\n{}.\n", format("lb"), format("l"));
    for row in rows {
        let cells = row.iter().zip(&widths).zip(&natural).map(|((cell, width), natural)| {
            // A cell of one of these letters would be a line.
            let is_line = matches!(&*cell.roff, "_" | "=");
            match width < natural {
                true => format!("T{{\n{}\nT}}", breakable(&cell.roff)),
                false if is_line => format!("\\&{}", cell.roff),
                false => cell.roff.clone(),
            }
        });
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("\t"));
    }
    text + ".TE\n"
}

/// Adds places where a line may break.
fn breakable(roff: &str) -> String {
    BREAKS[1..]
        .iter()
        .fold(roff.to_owned(), |text, letter| text.replace(*letter, &format!("{letter}\\:")))
}

/// Shares the space among columns. A column gets its natural width, or an equal share of the space
/// that narrower columns leave, but at least its longest word.
fn widths(natural: &[usize], words: &[usize], space: usize) -> Vec<usize> {
    let mut given: Vec<Option<usize>> = vec![None; natural.len()];
    while let open @ 1.. = given.iter().filter(|width| width.is_none()).count() {
        let left = space.saturating_sub(given.iter().flatten().sum());
        let share = left / open;
        let columns = || (0..natural.len()).filter(|column| given[*column].is_none());
        if let Some(column) = columns().find(|column| natural[*column] <= share) {
            given[column] = Some(natural[column]);
        } else if let Some(column) = columns().find(|column| words[*column] > share) {
            given[column] = Some(words[column]);
        } else {
            given.iter_mut().for_each(|width| *width = width.or(Some(share)));
        }
    }
    given.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(texts: &[&str]) -> Vec<Cell> {
        let cell = |text: &&str| Cell { roff: (*text).to_owned(), plain: (*text).to_owned() };
        texts.iter().map(cell).collect()
    }

    #[test]
    fn a_narrow_table_has_no_text_blocks() {
        let text = roff(&[cells(&["a", "b"]), cells(&["1", "_"])]);
        assert_eq!(text, ".PP\n.TS\nnokeep;\nlb2 lb\nl2 l.\na\tb\n1\t\\&_\n.TE\n");
    }

    #[test]
    fn the_widest_column_of_a_wide_table_wraps() {
        let long = "word ".repeat(30);
        let text = roff(&[cells(&["a", "b"]), cells(&["1", &long])]);
        assert!(text.contains("l2 lw(67n).\n"), "{text}");
        assert!(text.contains(&format!("1\tT{{\n{long}\nT}}\n")), "{text}");
    }

    #[test]
    fn a_list_without_blanks_may_break() {
        assert_eq!(breakable("a,b/c d"), "a,\\:b/\\:c d");
    }

    #[test]
    fn no_column_is_narrower_than_its_longest_word() {
        assert_eq!(widths(&[10, 100, 100], &[10, 40, 5], 70), [10, 40, 20]);
        assert_eq!(widths(&[10, 30, 30], &[5, 5, 5], 70), [10, 30, 30]);
        assert_eq!(widths(&[100, 100], &[5, 5], 70), [35, 35]);
    }
}
