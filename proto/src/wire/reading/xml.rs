//! XML: what a tree would be built of, counted in one pass over the text.
//!
//! The tree's parser compares each attribute of an element with all others and hands the names that an element
//! declares down to all below it. Both take time that grows with the square of what a text says, so it says little
//! of either. Where this pass confuses text and markup, the parser rejects the document.

use super::{UNWANTED, Wanted};
use crate::error::Invalid;

/// Most elements, comments and instructions.
pub const MAX_ELEMENTS: usize = 100_000;
/// Most attributes of an element: NCCL writes twenty.
pub const MAX_ATTRIBUTES: usize = 64;
/// Most attributes of all elements.
pub const MAX_ALL_ATTRIBUTES: usize = 400_000;
/// Deepest nesting: machines have four or five levels.
pub const MAX_DEPTH: usize = 64;
/// Elements between two looks at whether the document is still wanted.
const LOOK: usize = 256;

/// # Errors
/// Which limit the text breaks, and on which line.
pub(crate) fn check(text: &str, wanted: Wanted<'_>) -> Result<(), Invalid> {
    Counted { text, wanted, at: 0, elements: 0, depth: 0 }.run().map_err(|(at, why)| {
        let line = text.get(..at).unwrap_or_default().matches('\n').count() + 1;
        Invalid::field(format!("line {line}"), why)
    })
}

/// How far a text has been counted.
struct Counted<'a> {
    text: &'a str,
    wanted: Wanted<'a>,
    at: usize,
    elements: usize,
    depth: usize,
}

/// Where something is wrong, and what.
type Wrong = (usize, String);

impl Counted<'_> {
    fn run(mut self) -> Result<(), Wrong> {
        // The parser makes room for as many attributes as there are signs of them.
        if self.text.bytes().filter(|&byte| byte == b'=').count() > MAX_ALL_ATTRIBUTES {
            return Err((0, format!("has more than {MAX_ALL_ATTRIBUTES} attributes. Use a smaller file")));
        }
        while let Some(begin) = self.rest().find('<') {
            self.at += begin;
            self.elements += 1;
            if self.elements.is_multiple_of(LOOK) && !(self.wanted)() {
                return Err((self.at, UNWANTED.to_owned()));
            }
            if self.elements > 2 * MAX_ELEMENTS {
                return Err((self.at, format!("has more than {MAX_ELEMENTS} elements. Use a smaller file")));
            }
            let rest = self.rest();
            if rest.starts_with("<!--") {
                self.skip_behind("-->");
            } else if rest.starts_with("<![CDATA[") {
                self.skip_behind("]]>");
            } else if rest.starts_with("<?") {
                self.skip_behind("?>");
            } else if rest.starts_with("<!") {
                return Err((self.at, "has a document type declaration. Remove it".to_owned()));
            } else if rest.starts_with("</") {
                self.depth = self.depth.saturating_sub(1);
                self.skip_behind(">");
            } else {
                self.tag()?;
            }
        }
        Ok(())
    }

    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Behind the end of something; to the end of the text where it has none.
    fn skip_behind(&mut self, end: &str) {
        self.at = self.rest().find(end).map_or(self.text.len(), |found| self.at + found + end.len());
    }

    /// The tag that begins an element.
    fn tag(&mut self) -> Result<(), Wrong> {
        let begin = self.at;
        let (mut own, mut quote, mut before) = (0_usize, None, b'<');
        let mut end = self.text.len();
        for (offset, byte) in self.rest().bytes().enumerate().skip(1) {
            match (quote, byte) {
                (Some(open), _) if open == byte => quote = None,
                (Some(_), _) => {}
                (None, b'"' | b'\'') => {
                    quote = Some(byte);
                    own += 1;
                    if own > MAX_ATTRIBUTES {
                        return Err((
                            begin,
                            format!(
                                "has an element with more than {MAX_ATTRIBUTES} attributes. Use fewer attributes"
                            ),
                        ));
                    }
                }
                (None, b'>') => {
                    end = begin + offset + 1;
                    break;
                }
                (None, _) => {}
            }
            before = byte;
        }
        let tag = self.text.get(begin..end).unwrap_or_default();
        if tag.contains("xmlns") {
            return Err((
                begin,
                "declares an XML namespace (`xmlns`), which is not supported. Remove the declaration"
                    .to_owned(),
            ));
        }
        self.at = end;
        if before != b'/' {
            self.depth += 1;
        }
        if self.depth > MAX_DEPTH {
            return Err((begin, format!("has more than {MAX_DEPTH} nested elements. Use fewer levels")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::always;
    use super::*;

    fn refused(text: &str) -> String {
        check(text, &always).unwrap_err().to_string()
    }

    /// 300,000 attributes of one element took a parser half a minute.
    #[test]
    fn an_element_has_few_attributes_and_no_namespaces() {
        let attributes = |count: usize| (0..count).map(|index| format!(" a{index}='1'")).collect::<String>();
        assert_eq!(check(&format!("<a{}/>", attributes(MAX_ATTRIBUTES)), &always), Ok(()));
        assert!(refused(&format!("\n<a{}/>", attributes(MAX_ATTRIBUTES + 1))).starts_with("line 2: "));
        assert!(refused("<a xmlns:x='y'/>").contains("namespace"));
        let many = format!("<a>{}</a>", format!("<b{}/>", attributes(50)).repeat(10_000));
        assert!(refused(&many).contains("400000 attributes"));
    }

    #[test]
    fn nesting_and_numbers_of_elements_are_bounded() {
        let nested = |depth: usize| format!("{}{}", "<a>".repeat(depth), "</a>".repeat(depth));
        assert_eq!(check(&nested(MAX_DEPTH), &always), Ok(()));
        assert!(refused(&nested(MAX_DEPTH + 1)).contains("64 nested"));
        assert!(refused(&"<a/>".repeat(2 * MAX_ELEMENTS + 1)).contains("100000 elements"));
        assert!(refused("<!DOCTYPE a [<!ENTITY b 'c'>]><a/>").contains("document type"));
    }

    /// What looks like markup in comments, texts and attributes is none.
    #[test]
    fn only_tags_count() {
        let text = "<?xml version='1.0'?><!-- <a <a <a --><a b='>/' c=\"<'\"><![CDATA[<a><a>]]></a>";
        assert_eq!(check(text, &always), Ok(()));
        let closed = format!("<a>{}</a>", "<b c='/>'/>".repeat(1_000));
        assert_eq!(check(&closed, &always), Ok(()));
    }
}
