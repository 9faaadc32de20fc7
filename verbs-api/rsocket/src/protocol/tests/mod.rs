mod captured;
mod mappings;
mod messages;
mod two_ends;
