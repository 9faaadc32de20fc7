//! A window has one owner, whose handle counts its keys and whose drop ends it.
use urxe::MemoryWindow;

fn twice(window: &MemoryWindow) -> MemoryWindow {
    MemoryWindow::clone(window)
}

fn main() {}
