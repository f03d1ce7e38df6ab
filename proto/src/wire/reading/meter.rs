//! How much of a document has been read, and how much may be.

use std::cell::{Cell, RefCell};

use super::{UNWANTED, Wanted};

/// Values between two looks at whether the document is still wanted.
const LOOK: usize = 4_096;

/// What a document may have at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Values of any kind, references unfolded.
    pub values: usize,
    /// Maps: the most expensive values.
    pub maps: usize,
    /// Keys of one map.
    pub keys: usize,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of one text.
    pub text_bytes: usize,
    /// Bytes of all texts and keys, references unfolded.
    pub all_bytes: usize,
    /// Values within values.
    pub depth: usize,
}

impl Limits {
    /// Of documents that are built as values before anything is made of them: models and clusters.
    ///
    /// A map takes some 700 bytes of memory and any other value 64, so that the largest document takes about 200 MiB
    /// while it is read.
    pub const BUILT: Self = Self {
        values: 800_000,
        maps: 200_000,
        keys: 20_000,
        key_bytes: 1_024,
        text_bytes: 1 << 20,
        all_bytes: 8 << 20,
        depth: 32,
    };

    /// Of documents that are read straight into their types: profiles. Maps are records there, and lists of numbers
    /// (allocation traces) are long.
    pub const TYPED: Self = Self {
        values: 4_000_000,
        maps: 400_000,
        keys: 64,
        key_bytes: 128,
        text_bytes: 64 << 10,
        all_bytes: 15 << 20,
        depth: 32,
    };
}

/// Counts what is read of one document.
pub(crate) struct Meter<'a> {
    limits: &'a Limits,
    wanted: Wanted<'a>,
    values: Cell<usize>,
    maps: Cell<usize>,
    bytes: Cell<usize>,
    refused: RefCell<Option<String>>,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(limits: &'a Limits, wanted: Wanted<'a>) -> Self {
        let (values, maps, bytes) = (Cell::new(0), Cell::new(0), Cell::new(0));
        Self { limits, wanted, values, maps, bytes, refused: RefCell::new(None) }
    }

    /// Why the document was refused; none where its text is what is wrong.
    pub(crate) fn refused(&self) -> Option<String> {
        self.refused.borrow().clone()
    }

    /// One value more.
    pub(super) fn value(&self, depth: usize) -> Result<(), String> {
        let Limits { values, depth: deepest, .. } = *self.limits;
        let count = self.values.get() + 1;
        self.values.set(count);
        if count > values {
            return Err(self.refuse(format!(
                "the document has more than {values} values after YAML aliases are \
                expanded. Use a smaller document"
            )));
        }
        if depth > deepest {
            return Err(self.refuse(format!(
                "has more than {deepest} nested levels of lists and maps. Use fewer \
                levels"
            )));
        }
        if count.is_multiple_of(LOOK) && !(self.wanted)() {
            return Err(self.refuse(UNWANTED.to_owned()));
        }
        Ok(())
    }

    /// One map more.
    pub(super) fn map(&self) -> Result<(), String> {
        let most = self.limits.maps;
        self.maps.set(self.maps.get() + 1);
        if self.maps.get() > most {
            return Err(self.refuse(format!(
                "the document has more than {most} maps after YAML aliases are expanded. \
                Use a smaller document"
            )));
        }
        Ok(())
    }

    /// A map has this many keys.
    pub(super) fn keys(&self, count: usize) -> Result<(), String> {
        let most = self.limits.keys;
        if count > most {
            return Err(self.refuse(format!("has more than {most} keys. Remove some")));
        }
        Ok(())
    }

    /// A key of a map.
    pub(super) fn key(&self, key: &str) -> Result<(), String> {
        let most = self.limits.key_bytes;
        if key.len() > most {
            return Err(self.refuse(format!("has a key of {} bytes. Use at most {most}", key.len())));
        }
        self.take(key)
    }

    /// A text.
    pub(super) fn text(&self, text: &str) -> Result<(), String> {
        let most = self.limits.text_bytes;
        if text.len() > most {
            return Err(self.refuse(format!("has {} bytes. Use at most {most}", text.len())));
        }
        self.take(text)
    }

    fn take(&self, text: &str) -> Result<(), String> {
        let most = self.limits.all_bytes;
        self.bytes.set(self.bytes.get().saturating_add(text.len()));
        if self.bytes.get() > most {
            return Err(self.refuse(format!(
                "the document has more than {most} bytes of text after YAML aliases are \
                expanded. Use a smaller document"
            )));
        }
        if text.contains('\0') {
            return Err(self.refuse("has a NUL character, which cannot be stored. Remove it".to_owned()));
        }
        Ok(())
    }

    /// Notes why the document is refused.
    pub(super) fn refuse(&self, why: String) -> String {
        *self.refused.borrow_mut() = Some(why.clone());
        why
    }
}
