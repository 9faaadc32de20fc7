//! A key to the whole address space is a key to memory with other owners.
use urxe::ProtectionDomain;

fn everything(pd: &ProtectionDomain) {
    let _ = pd.local_dma_key();
}

fn main() {}
