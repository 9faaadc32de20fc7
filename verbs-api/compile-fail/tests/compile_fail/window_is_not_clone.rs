//! A window has one owner, which tracks its keys and deallocates the window when dropped.
use urxe::MemoryWindow;

fn twice(window: &MemoryWindow) -> MemoryWindow {
    MemoryWindow::clone(window)
}

fn main() {}
