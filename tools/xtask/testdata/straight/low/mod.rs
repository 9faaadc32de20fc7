//! A folder with a cycle inside, visible to the crate's root, tested with `high`.

mod deep;

pub(in crate::low) use deep::Deep;

pub struct Low(Deep);

#[cfg(test)]
mod tests {
    use crate::high::High;
}

#[cfg(all(test, not(loom)))]
fn tested(_: crate::High) {}
