//! Writes CBOR (RFC 8949): the few kinds of items that a listing has.
//!
//! Programs of this stack only write listings, and the tools that read them use `ciborium`. A test
//! compares both writers.

/// Major types of items (RFC 8949, 3.1).
const UNSIGNED: u8 = 0;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const MAP: u8 = 5;

/// Bytes to which items are appended.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Appends the start of an item: its type, and its value or length in the fewest bytes.
    fn head(&mut self, major: u8, value: u64) {
        let major = major << 5;
        let bytes = value.to_be_bytes();
        match value {
            0..=23 => self.0.push(major | value as u8),
            24..=0xff => self.0.extend([major | 24, bytes[7]]),
            0x100..=0xffff => {
                self.0.push(major | 25);
                self.0.extend(&bytes[6..]);
            }
            0x1_0000..=0xffff_ffff => {
                self.0.push(major | 26);
                self.0.extend(&bytes[4..]);
            }
            _ => {
                self.0.push(major | 27);
                self.0.extend(bytes);
            }
        }
    }

    pub(super) fn number(&mut self, value: impl Into<u64>) {
        self.head(UNSIGNED, value.into());
    }

    pub(super) fn text(&mut self, text: &str) {
        self.head(TEXT, text.len() as u64);
        self.0.extend(text.as_bytes());
    }

    /// Appends a list, whose elements `each` writes.
    pub(super) fn list<T>(&mut self, list: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.head(ARRAY, list.len() as u64);
        list.iter().for_each(|element| each(self, element));
    }

    /// Appends a list of two elements.
    pub(super) fn pair(&mut self, first: impl FnOnce(&mut Self), second: impl FnOnce(&mut Self)) {
        self.head(ARRAY, 2);
        first(self);
        second(self);
    }

    /// Appends a map. `fields` writes its fields, and counts them.
    pub(super) fn map(&mut self, fields: impl FnOnce(&mut Fields)) {
        let mut map = Fields::default();
        fields(&mut map);
        self.head(MAP, map.count);
        self.0.extend(map.writer.0);
    }
}

/// The fields of a map: a name and a value each.
#[derive(Debug, Default)]
pub(super) struct Fields {
    count: u64,
    writer: Writer,
}

impl Fields {
    /// Appends a field, whose value `value` writes.
    pub(super) fn field(&mut self, name: &str, value: impl FnOnce(&mut Writer)) {
        self.count += 1;
        self.writer.text(name);
        value(&mut self.writer);
    }

    /// Appends a field, unless there is no value.
    pub(super) fn optional<T>(
        &mut self,
        name: &str,
        value: Option<T>,
        write: impl FnOnce(&mut Writer, T),
    ) {
        if let Some(value) = value {
            self.field(name, |writer| write(writer, value));
        }
    }
}
