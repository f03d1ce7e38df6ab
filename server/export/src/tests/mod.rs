//! Exports against files that were written by hand and taken by the launchers themselves, and random plans.

mod golden;
mod random;
mod refused;
