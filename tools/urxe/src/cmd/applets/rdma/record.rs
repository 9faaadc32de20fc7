//! One device of the output, as text and as JSON.
//!
//! As text, a record is a line of keys and values, each followed by a blank. As JSON, it is an
//! object of a list. Indented JSON has the form of iproute2, which differs from that of serde:
//!
//! ```text
//! [ {
//!         "ifname": "rxe0",
//!         "caps": [ "XRC","SRQ_RESIZE" ]
//!     } ]
//! ```

use std::fmt::Display;
use std::io::{self, Write};

use serde_json::{Map, Value};

/// The form of the output.
#[derive(Clone, Copy, Debug, Default)]
pub struct Format {
    pub json: bool,
    /// Indented, if it is JSON.
    pub pretty: bool,
}

/// A device.
#[derive(Debug, Default)]
pub struct Record {
    text: String,
    json: Map<String, Value>,
}

impl Record {
    /// Returns a record of `link`: with the beginning `link NAME/1`.
    pub fn of_link(index: usize, name: &str) -> Self {
        Self::default()
            .hidden("ifindex", index)
            .hidden("ifname", name)
            .hidden("port", 1)
            .text(&format!("link {name}/1 "))
    }

    /// Returns a record of `dev`: with the beginning `INDEX: NAME:`.
    pub fn of_device(index: usize, name: &str) -> Self {
        Self::default()
            .hidden("ifindex", index)
            .hidden("ifname", name)
            .text(&format!("{index}: {name}: "))
    }

    /// Adds a key and its value.
    pub fn key(self, key: &str, value: impl Display + Into<Value>) -> Self {
        let text = format!("{key} {value} ");
        self.text(&text).hidden(key, value)
    }

    /// Adds a key and its value, if there is one.
    pub fn optional(self, key: &str, value: Option<impl Display + Into<Value>>) -> Self {
        match value {
            Some(value) => self.key(key, value),
            None => self,
        }
    }

    /// Adds a key to the JSON only.
    pub fn hidden(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.json.insert(key.to_owned(), value.into());
        self
    }

    /// Adds to the text only.
    pub fn text(mut self, text: &str) -> Self {
        self.text.push_str(text);
        self
    }
}

impl Format {
    /// Prints the records.
    pub fn print(self, out: &mut dyn Write, records: &[Record]) -> io::Result<()> {
        if !self.json {
            return records.iter().try_for_each(|record| writeln!(out, "{}", record.text));
        }
        let objects: Vec<String> = records.iter().map(|record| self.object(record)).collect();
        let gap = if self.pretty { " " } else { "" };
        match &objects[..] {
            [] => writeln!(out, "[{gap}]"),
            objects => writeln!(out, "[{gap}{}{gap}]", objects.join(",")),
        }
    }

    fn object(self, record: &Record) -> String {
        if !self.pretty {
            return Value::from(record.json.clone()).to_string();
        }
        let fields = record.json.iter().map(|(key, value)| {
            let value = match value {
                Value::Array(items) => {
                    let items: Vec<String> = items.iter().map(Value::to_string).collect();
                    format!("[ {} ]", items.join(","))
                }
                other => other.to_string(),
            };
            format!("        {}: {value}", Value::from(key.as_str()))
        });
        format!("{{\n{}\n    }}", fields.collect::<Vec<_>>().join(",\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(json: bool, pretty: bool, records: &[Record]) -> String {
        let mut out = Vec::new();
        Format { json, pretty }.print(&mut out, records).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_forms_are_those_of_iproute2() {
        let device = |index, name| {
            Record::of_device(index, name)
                .key("node_type", "ca")
                .hidden("caps", vec!["XRC", "SRQ_RESIZE"])
        };
        let two = [device(0, "rxe0"), device(1, "rxe2")];
        assert_eq!(printed(false, true, &two), "0: rxe0: node_type ca \n1: rxe2: node_type ca \n");
        assert_eq!(
            printed(true, false, &two[..1]),
            "[{\"ifindex\":0,\"ifname\":\"rxe0\",\"node_type\":\"ca\",\
             \"caps\":[\"XRC\",\"SRQ_RESIZE\"]}]\n"
        );
        let object = |index, name| {
            format!(
                "{{\n        \"ifindex\": {index},\n        \"ifname\": \"{name}\",\n        \
                 \"node_type\": \"ca\",\n        \"caps\": [ \"XRC\",\"SRQ_RESIZE\" ]\n    }}"
            )
        };
        let expected = format!("[ {},{} ]\n", object(0, "rxe0"), object(1, "rxe2"));
        assert_eq!(printed(true, true, &two), expected);
        let parsed: Value = serde_json::from_str(&expected).unwrap();
        assert_eq!(parsed[1]["caps"][1], "SRQ_RESIZE");
        assert_eq!(
            (printed(true, false, &[]), printed(true, true, &[])),
            ("[]\n".into(), "[ ]\n".into())
        );
    }
}
