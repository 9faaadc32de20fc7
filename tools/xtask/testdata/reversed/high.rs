//! May use `low`.

use crate::low::Low;

pub struct High(pub Low);
