//! Answers of a planner for people. Pure: a message in, a text or a picture out; the command line and the web pages show the same.
//!
//! * [`text`]: numbers with units, safe and fitting strings, and what a terminal can show.
//! * [`choice`]: words for the values of enums.
//! * [`table`]: a message as a table of facts.
//! * [`picture`]: a plan as pictures, for terminals, as SVG and as a page.
//! * [`json`]: a message as JSON or YAML.
//! * [`show`]: what a message needs so that all of these take it.

pub mod choice;
pub mod devices;
pub mod json;
pub mod picture;
pub mod show;
pub mod table;
pub mod text;
