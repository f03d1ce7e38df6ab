//! One table for the words of each enum: what people and messages call its variants.

use std::fmt;
use std::str::FromStr;

use crate::error::Invalid;

/// An enum whose variants people choose by a word; [`choice!`](crate::choice!) makes one.
pub trait Choice: Copy + Eq + FromStr<Err = UnknownWord> + 'static {
    /// The enum's own name.
    const NAME: &'static str;

    /// Every variant, in the order of the table.
    fn all() -> &'static [Self];

    /// What people call it.
    fn word(self) -> &'static str;

    /// Every word, in the order of the table.
    fn words() -> impl Iterator<Item = &'static str> {
        Self::all().iter().map(|choice| choice.word())
    }

    /// The variant that people call so.
    ///
    /// # Errors
    /// No one does; lists the words.
    fn parse(word: &str) -> Result<Self, UnknownWord> {
        let found = Self::all().iter().find(|choice| choice.word() == word);
        found.copied().ok_or_else(|| UnknownWord { word: word.to_owned(), words: Self::words().collect() })
    }
}

/// A [`Choice`] that travels as a number, where 0 says nothing.
pub trait WireChoice: Choice {
    /// The number of a variant.
    fn number(self) -> i32;

    /// The variant of a number; none for 0.
    ///
    /// # Errors
    /// No release that this one knows has sent it.
    fn of_number(number: i32) -> Result<Option<Self>, Invalid>;

    /// Why a number is no variant.
    fn refused(number: i32) -> Invalid {
        invalid!(
            "",
            "{number} is not a known value. If the client is newer than the planner, update the planner"
        )
    }
}

/// A [`Choice`] that travels as its word, so that a newer planner can add one; an empty text is none.
pub trait TextChoice: Choice {}

/// A word that is none of an enum's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownWord {
    word: String,
    words: Vec<&'static str>,
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a valid value. Use {}", self.word, self.words.join(", "))
    }
}

impl std::error::Error for UnknownWord {}

/// How many bytes [`dashed`] makes of a name.
#[doc(hidden)]
pub const fn dashed_length(name: &str) -> usize {
    let (name, mut at, mut length) = (name.as_bytes(), 0, 0);
    while at < name.len() {
        length += if at > 0 && name[at].is_ascii_uppercase() { 2 } else { 1 };
        at += 1;
    }
    length
}

/// The name of a variant as a word: `MinCost` is `min-cost`.
#[doc(hidden)]
pub const fn dashed<const LENGTH: usize>(name: &str) -> [u8; LENGTH] {
    let (name, mut word) = (name.as_bytes(), [b'-'; LENGTH]);
    let (mut at, mut end) = (0, 0);
    while at < name.len() {
        if at > 0 && name[at].is_ascii_uppercase() {
            end += 1;
        }
        word[end] = name[at].to_ascii_lowercase();
        (at, end) = (at + 1, end + 1);
    }
    word
}

/// The words of an enum, and its enum in messages where it travels: `ALL`, `as_str`, `Display`, `FromStr` and
/// [`Choice`]; in messages [`WireChoice`], which makes it a field of them.
///
/// The word of a variant is its name in lower case with dashes, unless the table gives it another one. A variant that is
/// missing or wrong on either side does not compile. What is stored is serde's business, not this
/// table's.
///
/// ```
/// use loadmaster_proto::{choice, wire::v1};
///
/// #[derive(Debug, Clone, Copy, PartialEq, Eq)]
/// enum Way {
///     On,
///     Waiting,
/// }
///
/// choice! {
///     Way = v1::CommunicationOverlap {
///         On,
///         Waiting = "blocking" as Off,
///     }
/// }
///
/// assert_eq!("blocking".parse(), Ok(Way::Waiting));
/// assert_eq!(Way::Waiting.to_string(), "blocking");
/// assert_eq!(v1::CommunicationOverlap::from(Way::Waiting), v1::CommunicationOverlap::Off);
/// let error = "fast".parse::<Way>().unwrap_err();
/// assert_eq!(error.to_string(), r#""fast" is not a valid value. Use on, blocking"#);
/// ```
///
/// ```compile_fail
/// #[derive(Debug, Clone, Copy, PartialEq, Eq)]
/// enum Way {
///     Up,
///     Down,
/// }
///
/// loadmaster_proto::choice! { Way { Up = "up" } }
/// ```
///
/// An enum may say itself why a message has none of its variants, with `else "must be …"` behind its enum in messages.
#[macro_export]
macro_rules! choice {
    ($type:ident { $($variant:ident $(= $word:literal)?),+ $(,)? }) => {
        impl $type {
            /// Every variant, in the order of its words.
            pub const ALL: [Self; [$(stringify!($variant)),+].len()] = [$(Self::$variant),+];

            /// What people call it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $crate::choice!(@word $variant $($word)?),)+
                }
            }
        }

        impl $crate::choice::Choice for $type {
            const NAME: &'static str = stringify!($type);

            fn all() -> &'static [Self] {
                &Self::ALL
            }

            fn word(self) -> &'static str {
                self.as_str()
            }
        }

        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl ::std::str::FromStr for $type {
            type Err = $crate::choice::UnknownWord;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                <Self as $crate::choice::Choice>::parse(word)
            }
        }
    };
    ($type:ident = $wire:ty $(, else $why:literal)? {
        $($variant:ident $(= $word:literal)? $(as $sent:ident)?),+ $(,)?
    }) => {
        $crate::choice! { $type { $($variant $(= $word)?),+ } }

        impl From<$type> for $wire {
            fn from(choice: $type) -> Self {
                match choice {
                    $($type::$variant => $crate::choice!(@sent $wire, $variant $($sent)?),)+
                }
            }
        }

        impl $crate::choice::WireChoice for $type {
            fn number(self) -> i32 {
                <$wire>::from(self).into()
            }

            fn of_number(number: i32) -> Result<Option<Self>, $crate::error::Invalid> {
                match <$wire>::try_from(number) {
                    Ok(<$wire>::Unspecified) => Ok(None),
                    $(Ok($crate::choice!(@sent $wire, $variant $($sent)?)) => Ok(Some(Self::$variant)),)+
                    Err(_) => Err(Self::refused(number)),
                }
            }

            $(
                fn refused(_: i32) -> $crate::error::Invalid {
                    $crate::error::Invalid::field("", $why)
                }
            )?
        }
    };
    (@word $variant:ident $word:literal) => { $word };
    (@word $variant:ident) => {{
        const WORD: [u8; $crate::choice::dashed_length(stringify!($variant))] =
            $crate::choice::dashed(stringify!($variant));
        match ::std::str::from_utf8(&WORD) {
            Ok(word) => word,
            Err(_) => stringify!($variant),
        }
    }};
    (@sent $wire:ty, $variant:ident) => { <$wire>::$variant };
    (@sent $wire:ty, $variant:ident $sent:ident) => { <$wire>::$sent };
}
