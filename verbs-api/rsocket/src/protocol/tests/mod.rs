mod captured;
mod messages;
mod two_ends;
