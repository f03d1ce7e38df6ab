//! What makes a message printable. Each implementation lies beside the message's table.

use prost::Message;

use crate::text::terminal_abilities::Look;

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
        crate::show::show!(@ $message, self, look,
            vec![self.name.clone()],
            $table(self, look));
    };
    ($message:ident of $rows:ident as $table:path) => {
        crate::show::show!(@ $message, self, look,
            self.$rows.iter().map(|row| row.name.clone()).collect(),
            $table(&self.$rows, look));
    };
    (@ $message:ident, $self:ident, $look:ident, $names:expr, $table:expr) => {
        impl crate::show::Show for loadmaster_proto::wire::v1::$message {
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
