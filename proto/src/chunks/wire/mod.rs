//! Chunks as messages.

mod question;
mod stage;
