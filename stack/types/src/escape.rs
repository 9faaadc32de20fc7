//! Text of other processes and of peers, for terminals and logs.
//!
//! A terminal executes control characters: they move the cursor, change the title, or hide text.
//! Characters that change the direction of text make a line look like another one. A line feed
//! forges a line of a log. All such text passes [`Escaped`] or an [`EscapingWriter`], which write
//! these characters as `\u001b`. This form is also an escape in a string of JSON (RFC 8259), so
//! escaped JSON has the same value.

use std::fmt::{self, Write as _};
use std::io;
use std::str;

/// Text whose special characters are escaped, line feeds and tabs included.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<T>(pub T);

impl<T: fmt::Display> fmt::Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Adapter(f), "{}", self.0)
    }
}

/// Escapes what is written to a formatter.
struct Adapter<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for Adapter<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        escape(text, &[], |part| self.0.write_str(part))
    }
}

/// The characters that lay out the output of a program.
const LAYOUT: [char; 2] = ['\n', '\t'];

/// A writer that escapes special characters except line feeds and tabs, and replaces bytes that are
/// not UTF-8 by U+FFFD.
#[derive(Debug)]
pub struct EscapingWriter<W> {
    inner: W,
    /// The start of a character whose other bytes are not written yet.
    incomplete: Vec<u8>,
}

impl<W: io::Write> EscapingWriter<W> {
    /// Makes a writer that writes to `inner`.
    pub const fn new(inner: W) -> Self {
        Self { inner, incomplete: Vec::new() }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Self { inner, incomplete } = self;
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            escape(chunk.valid(), &LAYOUT, |part| inner.write_all(part.as_bytes()))?;
            let may_go_on = chunks.peek().is_none();
            match str::from_utf8(chunk.invalid()) {
                Ok(_) => {}
                Err(error) if may_go_on && error.error_len().is_none() => {
                    incomplete.extend(chunk.invalid());
                }
                Err(_) => inner.write_all(char::REPLACEMENT_CHARACTER.to_string().as_bytes())?,
            }
        }
        Ok(())
    }
}

impl<W: io::Write> io::Write for EscapingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.incomplete.is_empty() {
            self.put(bytes)?;
        } else {
            let mut joined = std::mem::take(&mut self.incomplete);
            joined.extend_from_slice(bytes);
            self.put(&joined)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Passes `text` to `put` in parts, with escapes for special characters that are not `kept`.
fn escape<E>(
    text: &str,
    kept: &[char],
    mut put: impl FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    let mut start = 0;
    for (at, c) in text.char_indices().filter(|(_, c)| is_special(*c) && !kept.contains(c)) {
        put(&text[start..at])?;
        // All special characters have at most 16 bits.
        put(&format!("\\u{:04x}", u32::from(c)))?;
        start = at + c.len_utf8();
    }
    put(&text[start..])
}

/// Returns whether a terminal executes the character instead of showing it, or the character
/// changes how a terminal shows other ones.
const fn is_special(c: char) -> bool {
    matches!(
        c,
        // C0, DELETE, and C1, which begin a control sequence as ESC does.
        '\0'..='\x1f' | '\x7f'..='\u{9f}'
        // Marks, embeddings and isolates of directions (UAX #9).
        | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        // Separators of lines and paragraphs, and the byte order mark.
        | '\u{2028}' | '\u{2029}' | '\u{feff}'
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn characters_that_a_terminal_executes_are_escaped() {
        for (text, shown) in [
            ("ib_write_bw", "ib_write_bw"),
            ("żółć ✓ 🦀", "żółć ✓ 🦀"),
            ("\x1b[31m\x1b]0;own\x07x", "\\u001b[31m\\u001b]0;own\\u0007x"),
            ("a\rb\x08\x7f", "a\\u000db\\u0008\\u007f"),
            ("\u{9b}31m", "\\u009b31m"),
            ("file\u{202e}gnp.exe", "file\\u202egnp.exe"),
            ("one\nwarn: two\t3", "one\\u000awarn: two\\u00093"),
            ("", ""),
        ] {
            assert_eq!(Escaped(text).to_string(), shown);
        }
    }

    #[test]
    fn a_value_is_escaped_as_it_is_formatted() {
        let value = Escaped(format_args!("{}-{:?}", "\x1b", "\x07")).to_string();
        assert_eq!(value, "\\u001b-\"\\u{7}\"");
    }

    fn written(parts: &[&[u8]]) -> String {
        let mut writer = EscapingWriter::new(Vec::new());
        for part in parts {
            writer.write_all(part).unwrap();
        }
        writer.flush().unwrap();
        String::from_utf8(writer.inner).unwrap()
    }

    #[test]
    fn a_writer_keeps_lines_and_tabs_only() {
        assert_eq!(written(&[b"one\n\ttwo\r\x1b[2J\n"]), "one\n\ttwo\\u000d\\u001b[2J\n");
    }

    #[test]
    fn a_character_may_arrive_in_parts() {
        let crab = "🦀".as_bytes();
        assert_eq!(written(&[&crab[..1], &crab[1..3], &crab[3..], b"!"]), "🦀!");
        // The C1 character CSI, which a terminal executes as ESC [.
        assert_eq!(written(&[b"\xc2", b"\x9b31m"]), "\\u009b31m");
        assert_eq!(written(&[b"\xc2", b"a\xff"]), "\u{fffd}a\u{fffd}");
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        // A writer of JSON escapes only C0.
        let json = "{\"name\":\"\u{9b}31m\u{202e}\"}";
        assert_eq!(written(&[json.as_bytes()]), r#"{"name":"\u009b31m\u202e"}"#);
    }
}
