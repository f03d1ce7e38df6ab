//! Answers of a planner for people. Pure: a message in, a text or a picture out; the command line and the web pages show the same.
//!
//! * [`text`]: numbers with units, safe and fitting strings, and what a terminal can show.
//! * [`choice`]: words for the values of enums.
//! * [`table`]: a message as a table of facts.
//! * [`picture`]: a plan as pictures, for terminals, as SVG and as a page.
//! * [`json`]: a message as JSON or YAML.
//! * [`Show`]: what a message needs so that all of these take it.

use prost::Message;

use crate::text::terminal_abilities::Look;

pub mod choice;
pub mod devices;
pub mod json;
pub mod picture;
pub mod table;
pub mod text;

/// A message that the program prints.
pub trait Show: Message + Sized {
    /// The message's full name in the protocol.
    const TYPE: &'static str;

    /// The names of the resources in it, in order.
    fn names(&self) -> Vec<String>;

    /// For people.
    fn table(&self, look: Look) -> String;

    /// The bytes to translate: the message without what this program cannot translate.
    fn translatable(&self) -> Vec<u8> {
        self.encode_to_vec()
    }
}

/// A resource with the function that makes its table, or a list of resources with the one that makes theirs.
macro_rules! show {
    ($message:ident as $table:path) => {
        show!(@ $message, self, look,
            vec![self.name.clone()],
            $table(self, look));
    };
    ($message:ident of $rows:ident as $table:path) => {
        show!(@ $message, self, look,
            self.$rows.iter().map(|row| row.name.clone()).collect(),
            $table(&self.$rows, look));
    };
    (@ $message:ident, $self:ident, $look:ident, $names:expr, $table:expr) => {
        impl crate::Show for loadmaster_proto::wire::v1::$message {
            const TYPE: &'static str = concat!("loadmaster.v1.", stringify!($message));

            fn names(&$self) -> Vec<String> {
                $names
            }

            fn table(&$self, $look: crate::text::terminal_abilities::Look) -> String {
                $table
            }
        }
    };
}

pub(crate) use show;
