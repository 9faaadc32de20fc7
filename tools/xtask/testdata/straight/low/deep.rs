//! Uses its parent, as its parent uses it.

use super::Low;

pub struct Deep(Option<Box<Low>>);
