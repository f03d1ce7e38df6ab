//! Page sizes and page tokens.
//!
//! A token is the position of the last row, bound to the call that it belongs to: used with another
//! call or other arguments it is refused rather than answered with the wrong rows.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::layer::fingerprint;
use serde::{Deserialize, Serialize};

use crate::store::records::{Cursor, Page, PageRequest};

const DEFAULT_SIZE: u32 = 50;
const MAX_SIZE: u32 = 1_000;
/// Longest token that is read, bytes.
const MAX_TOKEN: usize = 2_048;

#[derive(Serialize, Deserialize)]
struct Token {
    /// Fingerprint of method and arguments.
    of: String,
    after: Cursor,
}

/// What a page token belongs to: the method and the arguments that choose and order its rows.
#[derive(Debug)]
pub(super) struct Listing {
    of: String,
}

impl Listing {
    /// A listing by `method` with `arguments`.
    pub(super) fn new(method: &str, arguments: &[&str]) -> Self {
        Self { of: fingerprint(&(method, arguments)) }
    }

    /// The page that a caller asks for.
    ///
    /// # Errors
    /// A negative size, or a token that is not of this listing.
    pub(super) fn request(&self, page_size: i32, page_token: &str) -> Result<PageRequest, Invalid> {
        let size = match u32::try_from(page_size) {
            Ok(0) => DEFAULT_SIZE,
            Ok(size) => size.min(MAX_SIZE),
            Err(_) => return Err(Invalid::field("page_size", format!("is {page_size}, must be 0 or more"))),
        };
        let after = match page_token {
            "" => None,
            text => Some(self.decode(text).ok_or_else(|| {
                Invalid::field("page_token", "is not a token of this listing: start from the first page")
            })?),
        };
        Ok(PageRequest { size, after })
    }

    /// The token for the page after `page`; empty on the last one.
    pub(super) fn next_token<T>(&self, page: &Page<T>) -> String {
        page.next.as_ref().map_or_else(String::new, |after| {
            let token = Token { of: self.of.clone(), after: after.clone() };
            URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
        })
    }

    fn decode(&self, text: &str) -> Option<Cursor> {
        if text.len() > MAX_TOKEN {
            return None;
        }
        let token: Token = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        (token.of == self.of && token.after.is_of_a_row()).then_some(token.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor() -> Cursor {
        Cursor { time: "2026-01-02T03:04:05Z".parse().unwrap(), id: "a".to_owned() }
    }

    #[test]
    fn a_token_leads_back_to_its_row_and_to_no_other_listing() {
        let listing = Listing::new("ListRuns", &["operations/1"]);
        let page = Page { rows: vec![()], next: Some(cursor()) };
        let token = listing.next_token(&page);
        assert_eq!(listing.request(0, &token).unwrap().after, Some(cursor()));
        for other in
            [Listing::new("ListRuns", &["operations/2"]), Listing::new("ListPlans", &["operations/1"])]
        {
            let error = other.request(0, &token).unwrap_err();
            assert_eq!(error.violations()[0].field, "page_token");
        }
        assert!(listing.request(0, "nonsense").is_err());
    }

    /// Whoever makes a token up gets an answer about the token, not about the database that cannot read it.
    #[test]
    fn a_token_with_a_position_that_no_row_has_is_refused() {
        let listing = Listing::new("ListRuns", &[]);
        let token = |time: &str, id: &str| {
            let of = Listing::new("ListRuns", &[]).of;
            let after = serde_json::json!({"time": time, "id": id});
            URL_SAFE_NO_PAD.encode(serde_json::json!({"of": of, "after": after}).to_string())
        };
        assert!(listing.request(0, &token("2026-01-02T03:04:05Z", "runs/a/measurements/0-1")).is_ok());
        for (time, id) in [
            ("-009000-01-01T00:00:00Z", "a"),
            ("1969-12-31T23:59:59Z", "a"),
            ("9999-12-30T00:00:00Z", "a"),
            ("+010000-01-01T00:00:00Z", "a"),
            ("2026-01-02T03:04:05Z", "a\0"),
            ("2026-01-02T03:04:05Z", ""),
            ("2026-01-02T03:04:05Z", &"x".repeat(600)),
        ] {
            let error = listing.request(0, &token(time, id)).unwrap_err();
            assert_eq!(error.violations()[0].field, "page_token", "{time} {id:?}");
        }
        assert!(listing.request(0, &"a".repeat(1 << 20)).is_err());
    }

    #[test]
    fn sizes_are_defaulted_and_capped_and_never_negative() {
        let listing = Listing::new("ListPlans", &[]);
        assert_eq!(listing.request(0, "").unwrap().size, 50);
        assert_eq!(listing.request(5_000, "").unwrap().size, 1_000);
        assert_eq!(listing.request(-1, "").unwrap_err().violations()[0].field, "page_size");
        assert_eq!(listing.next_token(&Page::<()> { rows: vec![], next: None }), "");
    }
}
