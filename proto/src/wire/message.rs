//! A message as the domain type that has the same fields.

/// Converts a message field by field, with [`FromWire`](crate::wire::FromWire) and [`ToWire`](crate::wire::ToWire),
/// and so makes it a field of others: `TryFrom` and `From`, as anybody expects of two types.
///
/// | in the list | means |
/// |---|---|
/// | `layer` | the field has this name on both sides |
/// | `asked = asked_bytes` | it has the second one in the message |
/// | `: required` | a message without it is refused |
/// | `: or(1)` | a message that does not say means this |
/// | `check f` | what was read is given to `f`, which may refuse it |
///
/// `<=>` converts both ways, `=>` is for what is only sent and `<=` for what is only read. Each field of either side is
/// in the list: one that is missing, or is of another type, does not compile, and neither does another modifier.
///
/// ```
/// use loadmaster_proto::wire::v1;
///
/// #[derive(Debug, PartialEq)]
/// struct Range {
///     first: usize,
///     last: usize,
/// }
///
/// loadmaster_proto::message! {
///     Range <=> v1::LayerRange { first = first_layer, last = last_layer: or(7) }
/// }
///
/// let wire = v1::LayerRange { first_layer: 3, last_layer: 0 };
/// assert_eq!(Range::try_from(wire).unwrap(), Range { first: 3, last: 7 });
/// let wrong = v1::LayerRange { first_layer: -1, last_layer: 0 };
/// assert_eq!(Range::try_from(wrong).unwrap_err().violations()[0].field, "first_layer");
/// ```
///
/// A field that is left out, and a modifier that there is not:
///
/// ```compile_fail
/// # use loadmaster_proto::wire::v1;
/// # struct Range { first: usize, last: usize }
/// loadmaster_proto::message! { Range <=> v1::LayerRange { first = first_layer } }
/// ```
/// ```compile_fail
/// # use loadmaster_proto::wire::v1;
/// # struct Range { first: usize, last: usize }
/// loadmaster_proto::message! { Range <=> v1::LayerRange { first = first_layer, last = last_layer: maybe } }
/// ```
///
/// Where reading a message is a decision, `TryFrom` and `From` are written by hand, and `message! { T <=> v1::M }` makes
/// it a field of others.
#[macro_export]
macro_rules! message {
    ($type:ident <=> $wire:ty { $($fields:tt)* } $(check $check:path)?) => {
        $crate::message! { @next read ($type, $wire, $($check)?) [] $($fields)*, }
        $crate::message! { @next sent ($type, $wire) [] $($fields)*, }
        $crate::message! { $type <=> $wire }
    };
    ($type:ident <= $wire:ty { $($fields:tt)* } $(check $check:path)?) => {
        $crate::message! { @next read ($type, $wire, $($check)?) [] $($fields)*, }
        $crate::message! { $type <= $wire }
    };
    ($type:ident => $wire:ty { $($fields:tt)* }) => {
        $crate::message! { @next sent ($type, $wire) [] $($fields)*, }
        $crate::message! { $type => $wire }
    };

    // Written by hand: a field of others.
    ($type:ident <=> $wire:ty) => {
        $crate::message! { $type <= $wire }
        $crate::message! { $type => $wire }
    };
    ($type:ident <= $wire:ty) => {
        impl $crate::wire::FromWire<$wire> for $type {
            fn from_wire(wire: $wire) -> Result<Self, $crate::error::Invalid> {
                wire.try_into()
            }
        }
    };
    ($type:ident => $wire:ty) => {
        impl $crate::wire::ToWire<$wire> for $type {
            fn to_wire(&self) -> $wire {
                self.into()
            }
        }

        impl From<$type> for $wire {
            fn from(value: $type) -> Self {
                Self::from(&value)
            }
        }
    };

    // One field after the other becomes {its name, its name in the message, its modifier}.
    (@next $way:ident $types:tt [$($done:tt)*] $field:ident = $name:ident $(: $how:ident $(($or:expr))?)?, $($rest:tt)*) => {
        $crate::message! { @next $way $types [$($done)* {$field $name $($how $(($or))?)?}] $($rest)* }
    };
    (@next $way:ident $types:tt [$($done:tt)*] $field:ident $(: $how:ident $(($or:expr))?)?, $($rest:tt)*) => {
        $crate::message! { @next $way $types [$($done)* {$field $field $($how $(($or))?)?}] $($rest)* }
    };

    // All fields are known. A comma may be left over.
    (@next read ($type:ident, $wire:ty, $($check:path)?) [$({$field:ident $name:ident $($how:tt)*})*] $(,)?) => {
        impl TryFrom<$wire> for $type {
            type Error = $crate::error::Invalid;

            fn try_from(wire: $wire) -> Result<Self, Self::Error> {
                type Wire = $wire;
                let Wire { $($name),* } = wire;
                let read = Self { $($field: $crate::message!(@read $name $($how)*)),* };
                $(let read = $check(read)?;)?
                Ok(read)
            }
        }
    };
    (@next sent ($type:ident, $wire:ty) [$({$field:ident $name:ident $($how:tt)*})*] $(,)?) => {
        impl From<&$type> for $wire {
            fn from(value: &$type) -> Self {
                let $type { $($field),* } = value;
                Self { $($name: $crate::message!(@sent $field $($how)*)),* }
            }
        }
    };

    (@read $name:ident) => { $crate::wire::field(stringify!($name), $name)? };
    (@read $name:ident required) => {
        $crate::wire::field(stringify!($name), $crate::error::required(stringify!($name), $name)?)?
    };
    (@read $name:ident or ($or:expr)) => {
        $crate::wire::field::<Option<_>, _>(stringify!($name), $name)?.unwrap_or($or)
    };
    (@sent $field:ident) => { $crate::wire::ToWire::to_wire($field) };
    (@sent $field:ident required) => { Some($crate::wire::ToWire::to_wire($field)) };
    (@sent $field:ident or ($or:expr)) => { $crate::wire::ToWire::to_wire(&Some(ToOwned::to_owned($field))) };
}
