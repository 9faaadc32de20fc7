//! Uses `low` and the root.

use crate::{LIMIT, Low};

pub struct High(pub [Low; LIMIT]);
