//! Does.

use super::Low;

fn reversed() {
    let _low = Low;
    assert!(matches!(crate::High, _));
}
