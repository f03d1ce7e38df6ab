//! The resources that a call concerns, for the log: names that stand in its request or in its answer.
//!
//! They are strings of the outermost message or of one that is directly in it, so they are found without knowing its type. Only the first piece
//! of a message is looked at: names come first, and long messages arrive in many pieces.

use std::sync::{Arc, Mutex, PoisonError};

/// Collections whose resources are told.
const COLLECTIONS: [&str; 7] = ["plans", "profiles", "models", "clusters", "workers", "operations", "runs"];
/// Most names of a call, and the longest one, bytes.
const MOST: usize = 6;
const LONGEST: usize = 160;
/// Bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// The names of one call, each once, in the order in which they were seen.
#[derive(Debug, Clone, Default)]
pub(in crate::rpc) struct Names(Arc<Mutex<Vec<String>>>);

impl Names {
    /// Looks for names in the first bytes of a stream of messages.
    pub(in crate::rpc) fn look_at(&self, bytes: &[u8]) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let with_inner = |(_, text): (u64, &str)| {
            let inner = Texts(text.as_bytes()).map(|(_, text)| text.to_owned()).collect::<Vec<_>>();
            std::iter::once(text.to_owned()).chain(inner)
        };
        for text in Texts::of(bytes).flat_map(with_inner).filter(|text| is_name(text)) {
            if names.len() < MOST && !names.contains(&text) {
                names.push(text);
            }
        }
    }

    /// All of them.
    pub(super) fn joined(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).join(" ")
    }
}

fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.');
    let known = |collection: &str| COLLECTIONS.contains(&collection);
    text.len() <= LONGEST
        && text.split_once('/').is_some_and(|(collection, id)| known(collection) && !id.is_empty())
        && text.chars().all(plain)
}

/// The length-delimited fields of a message that are text, each with its number, up to the first thing that is cut off or no
/// field.
pub(in crate::rpc) struct Texts<'a>(&'a [u8]);

impl<'a> Texts<'a> {
    /// Of the first bytes of a stream of messages; none of a compressed one.
    pub(in crate::rpc) fn of(bytes: &'a [u8]) -> Self {
        match bytes.split_first_chunk::<PREFIX>() {
            Some((&[0, ..], message)) => Self(message),
            _ => Self(&[]),
        }
    }
}

impl<'a> Iterator for Texts<'a> {
    type Item = (u64, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let key = self.number()?;
            let skipped = match key & 7 {
                0 => {
                    self.number()?;
                    continue;
                }
                1 => 8,
                2 => usize::try_from(self.number()?).ok()?,
                // The fields of a group stand between its marks.
                3 | 4 => continue,
                5 => 4,
                _ => return None,
            };
            let (field, rest) = self.0.split_at_checked(skipped)?;
            self.0 = rest;
            if let Ok(text) = std::str::from_utf8(field) {
                return Some((key >> 3, text));
            }
        }
    }
}

impl Texts<'_> {
    /// A variable-length number.
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::wire::v1;
    use prost::Message;

    use super::*;

    fn names(message: &impl Message) -> String {
        let mut bytes = vec![0; PREFIX];
        message.encode(&mut bytes).unwrap();
        let names = Names::default();
        names.look_at(&bytes);
        // What is cut anywhere is read as far as it goes, and nothing is made up.
        for end in 0..bytes.len() {
            let part = Names::default();
            part.look_at(&bytes[..end]);
            assert!(names.joined().starts_with(&part.joined()));
        }
        names.joined()
    }

    #[test]
    fn names_are_found_whatever_the_message() {
        let asked = v1::RecommendPlanRequest {
            problem: Some(v1::Problem {
                profile: "profiles/p".to_owned(),
                cluster: "clusters/c".to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        };
        assert_eq!(names(&asked), "profiles/p clusters/c");
        let plan = v1::Plan { name: "plans/7f3c".to_owned(), ..Default::default() };
        assert_eq!(names(&plan), "plans/7f3c");
        assert_eq!(names(&v1::GetPlanRequest { name: "plans/a\nb".to_owned(), ..Default::default() }), "");
        assert_eq!(names(&v1::GetPlanRequest { name: "plans/".to_owned(), ..Default::default() }), "");
        assert_eq!(
            names(&v1::GetPlanRequest {
                name: format!("plans/{}", "a".repeat(LONGEST)),
                ..Default::default()
            }),
            ""
        );
    }

    #[test]
    fn garbage_has_no_names() {
        for bytes in [vec![], vec![0; 4], vec![1; 40], vec![0xff; 40], vec![0, 0, 0, 0, 1, 0x0a, 0xff]] {
            let names = Names::default();
            names.look_at(&bytes);
            assert_eq!(names.joined(), "");
        }
    }
}
