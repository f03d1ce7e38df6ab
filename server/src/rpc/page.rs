//! Pages of lists: their limits in rows and bytes, and their tokens (AIP-158).
//!
//! Clients of gRPC accept messages of at most 4 MiB by default, so every page ends before 1 MiB, however many rows were
//! requested. Plans in lists come from a summary that the database stores (`plan_summary` in `migrations/0001_schema.sql`), and
//! devices travel as ranges. A token is the position of the last row, bound to its call: with another call or other arguments it
//! is rejected.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use loadmaster_filter::{Field, Query};
use loadmaster_proto::choice;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::model::layer::fingerprint;
use loadmaster_proto::wire::{field, v1};
use prost::Message;
use serde::{Deserialize, Serialize};

use super::error::ApiError;
use super::limits::{DEFAULT_PAGE_ROWS, MAX_PAGE_BYTES, MAX_PAGE_ROWS, MAX_PAGE_WHOLE, MAX_TOKEN_BYTES};
use crate::store::StoreError;
use crate::store::records::{Cursor, Page, PageRequest, Positioned};

/// Bytes of a page that are no rows: the token.
const TOKEN_ROOM: usize = 1 << 10;

/// How much of a resource a response contains (AIP-157).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// The fields that tell resources apart.
    Basic,
    /// All fields.
    Full,
}

choice! { View = v1::ResourceView { Basic, Full } }

impl View {
    /// The view that a Get request names.
    ///
    /// # Errors
    /// It is unknown.
    pub(super) fn of_one(number: i32) -> Result<Self, Invalid> {
        Ok(field::<Option<Self>, _>("view", number)?.unwrap_or(Self::Full))
    }

    /// The view that a List request names, and the page with as many rows as it allows.
    ///
    /// # Errors
    /// It is unknown.
    pub(super) fn of_list(number: i32, page: PageRequest) -> Result<(Self, PageRequest), Invalid> {
        Ok(match field::<Option<Self>, _>("view", number)?.unwrap_or(Self::Basic) {
            Self::Basic => (Self::Basic, page),
            Self::Full => (Self::Full, PageRequest { size: page.size.min(MAX_PAGE_WHOLE), ..page }),
        })
    }
}

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
    query: Query,
}

impl Listing {
    /// A listing by `method` with `arguments`, of a list with these fields: the rows that a filter leaves, in an order.
    ///
    /// # Errors
    /// Violations of `filter` and `order_by`.
    pub(super) fn of(
        method: &str,
        arguments: &[&str],
        fields: &'static [Field],
        (filter, order_by): (&str, &str),
    ) -> Result<Self, Invalid> {
        let query = Query::parse(fields, filter, order_by)?;
        Ok(Self { of: fingerprint(&(method, arguments, filter, order_by)), query })
    }

    /// What is asked of the list.
    pub(super) fn query(&self) -> &Query {
        &self.query
    }

    /// The page that a caller asks for.
    ///
    /// # Errors
    /// A negative size, or a token that is not of this listing.
    pub(super) fn request(&self, page_size: i32, page_token: &str) -> Result<PageRequest, Invalid> {
        let size = match u32::try_from(page_size) {
            Ok(0) => DEFAULT_PAGE_ROWS,
            Ok(size) => size.min(MAX_PAGE_ROWS),
            Err(_) => {
                return Err(Invalid::field("page_size", format!("{page_size} is negative. Use 0.")));
            }
        };
        let after = match page_token {
            "" => None,
            text => Some(self.decode(text).ok_or_else(|| {
                let why = "not a token of this list. Leave this field empty to start with the first page.";
                Invalid::field("page_token", why)
            })?),
        };
        Ok(PageRequest { size, after })
    }

    /// The messages of a page, as many as it has room for, and the token of the page that follows them: empty on
    /// the last one.
    pub(super) fn answer<T: Positioned, M: Message>(
        &self,
        page: Page<T>,
        message: impl Fn(&T) -> M,
    ) -> (Vec<M>, String) {
        let mut left = MAX_PAGE_BYTES - TOKEN_ROOM;
        let mut messages = Vec::with_capacity(page.rows.len());
        for (position, row) in page.rows.iter().enumerate() {
            let message = message(row);
            let size = size_in_page(&message);
            if size > left
                && let Some(last) = position.checked_sub(1).and_then(|last| page.cursor(last))
            {
                return (messages, self.token(&last));
            }
            left = left.saturating_sub(size);
            messages.push(message);
        }
        (messages, page.next.map_or_else(String::new, |after| self.token(&after)))
    }

    /// The same of messages that are read one by one.
    pub(super) fn whole<T: Positioned, M: Message>(&self, page: Page<T>) -> WholePage<'_, T, M> {
        WholePage {
            listing: self,
            page,
            position: 0,
            left: MAX_PAGE_BYTES - TOKEN_ROOM,
            messages: Vec::new(),
            is_full: false,
        }
    }

    /// The token of the page behind a row.
    pub(super) fn token(&self, after: &Cursor) -> String {
        let token = Token { of: self.of.clone(), after: after.clone() };
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
    }

    /// None where the token is not of this listing, or says what no row's position is.
    fn decode(&self, text: &str) -> Option<Cursor> {
        if text.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let Token { of, after } = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        (of == self.of && after.is_of_a_row(&self.query.order)).then_some(after)
    }
}

/// A page whose messages are read one by one, until it has no more room.
#[derive(Debug)]
pub(super) struct WholePage<'a, T, M> {
    listing: &'a Listing,
    page: Page<T>,
    /// Of the next row.
    position: usize,
    left: usize,
    messages: Vec<M>,
    is_full: bool,
}

impl<T: Positioned, M: Message> WholePage<'_, T, M> {
    /// The row whose message is to be read next.
    pub(super) fn next(&self) -> Option<&T> {
        self.page.rows.get(self.position).filter(|_| !self.is_full)
    }

    /// Takes the message of that row; one that was deleted meanwhile is left out.
    ///
    /// # Errors
    /// It could not be read.
    pub(super) fn put(&mut self, message: Result<M, ApiError>) -> Result<(), ApiError> {
        match message {
            Ok(message) => {
                let size = size_in_page(&message);
                if size > self.left && !self.messages.is_empty() {
                    self.is_full = true;
                    return Ok(());
                }
                self.left = self.left.saturating_sub(size);
                self.messages.push(message);
            }
            Err(ApiError::Store(StoreError::NotFound { .. })) => {}
            Err(error) => return Err(error),
        }
        self.position += 1;
        Ok(())
    }

    /// The messages, and the token of the page that follows them.
    pub(super) fn answer(self) -> (Vec<M>, String) {
        let last = self.position.checked_sub(1).filter(|_| self.is_full);
        let after = last.and_then(|last| self.page.cursor(last)).or(self.page.next);
        (self.messages, after.map_or_else(String::new, |after| self.listing.token(&after)))
    }
}

/// The list and the page that a request asks for.
macro_rules! listing {
    ($request:ident, $method:literal, $arguments:expr, $fields:ident) => {{
        let asked = ($request.filter.as_str(), $request.order_by.as_str());
        let listing = Listing::of($method, $arguments, fields::$fields, asked).map_err(ApiError::from)?;
        let page = listing.request($request.page_size, &$request.page_token).map_err(ApiError::from)?;
        (listing, page)
    }};
}
pub(super) use listing;

/// The messages of a page in FULL view, each read by itself, and the token of the page that follows them.
macro_rules! read_each {
    ($listing:ident, $page:ident, |$row:ident| $message:expr) => {{
        let mut whole = $listing.whole($page);
        while let Some($row) = whole.next() {
            let message = $message;
            whole.put(message)?;
        }
        whole.answer()
    }};
}
pub(super) use read_each;

/// Bytes that a message takes as one of the repeated field of its page: a tag, its length and itself.
fn size_in_page(message: &impl Message) -> usize {
    let bytes = message.encoded_len();
    1 + prost::length_delimiter_len(bytes) + bytes
}

#[cfg(test)]
mod tests {
    use loadmaster_filter::Value;

    use super::*;
    use crate::store::fields;

    fn listed(method: &str, arguments: &[&str]) -> Listing {
        Listing::of(method, arguments, &[], ("", "")).unwrap()
    }

    fn cursor() -> Cursor {
        Cursor { keys: Vec::new(), time: "2026-01-02T03:04:05Z".parse().unwrap(), id: "a".to_owned() }
    }

    /// A row of so many bytes of text.
    struct Row(usize);

    impl Positioned for Row {
        fn cursor(&self) -> Cursor {
            Cursor { id: self.0.to_string(), ..cursor() }
        }
    }

    fn answer(sizes: &[usize], next: Option<Cursor>) -> (Vec<String>, Option<String>) {
        let listing = listed("ListPlans", &[]);
        let page = Page { rows: sizes.iter().copied().map(Row).collect(), keys: Vec::new(), next };
        let (messages, token) = listing.answer(page, |row| "x".repeat(row.0));
        let after = (!token.is_empty()).then(|| listing.request(0, &token).unwrap().after.unwrap().id);
        (messages, after)
    }

    /// A page is cut before it is too long, and the next one starts behind what was sent, never behind what was not.
    #[test]
    fn a_page_ends_before_its_bytes_do() {
        let quarter = (MAX_PAGE_BYTES - TOKEN_ROOM) / 4 - 8;
        let (messages, after) = answer(&[quarter - 3, quarter - 2, quarter - 1, quarter, 7], None);
        assert_eq!((messages.len(), after), (4, Some(quarter.to_string())));
        let page = loadmaster_proto::wire::v1::ListModelsRequest {
            page_token: messages.concat(),
            ..Default::default()
        };
        assert!(page.encoded_len() <= MAX_PAGE_BYTES);
        assert_eq!(answer(&[1, 2, 3], None), (["x", "xx", "xxx"].map(str::to_owned).to_vec(), None));
        assert_eq!(answer(&[1, 2], Some(cursor())).1.as_deref(), Some("a"), "the store has more");
        assert_eq!(answer(&[], None), (vec![], None));
    }

    /// A page of whole messages ends before it is too long, leaves out what was deleted, and the next one starts behind what was sent.
    #[test]
    fn whole_messages_fill_a_page() {
        let listing = listed("ListPlans", &[]);
        let half = (MAX_PAGE_BYTES - TOKEN_ROOM) / 2 - 8;
        let rows = [half - 1, 7, half, half + 1].map(Row);
        let mut page = listing.whole(Page { rows: rows.into(), keys: Vec::new(), next: None });
        while let Some(row) = page.next() {
            let size = row.0;
            let gone = ApiError::Store(StoreError::NotFound { what: String::new() });
            page.put(if size == 7 { Err(gone) } else { Ok("x".repeat(size)) }).unwrap();
        }
        let (messages, token) = page.answer();
        assert_eq!(messages.iter().map(String::len).collect::<Vec<_>>(), [half - 1, half]);
        assert_eq!(listing.request(0, &token).unwrap().after.unwrap().id, half.to_string());
    }

    /// What is too long for any page is sent, alone: a list that stopped there would hide all that follows.
    #[test]
    fn a_row_that_no_page_holds_comes_alone() {
        let (messages, after) = answer(&[2 * MAX_PAGE_BYTES, 5], None);
        assert_eq!((messages.len(), after), (1, Some((2 * MAX_PAGE_BYTES).to_string())));
        let (messages, after) = answer(&[5, 2 * MAX_PAGE_BYTES], None);
        assert_eq!((messages.len(), after.as_deref()), (1, Some("5")));
    }

    /// Postgres has no such times and texts: they must not get as far as that.
    #[test]
    fn tokens_of_impossible_positions_are_refused() {
        let listing = listed("ListPlans", &[]);
        for (time, id) in [
            ("-009000-01-01T00:00:00Z", "a".to_owned()),
            ("9999-12-01T00:00:00Z", "a".to_owned()),
            ("1969-12-31T23:59:59Z", "a".to_owned()),
            ("2026-01-02T03:04:05Z", "a\0".to_owned()),
            ("2026-01-02T03:04:05Z", "a".repeat(600)),
            ("2026-01-02T03:04:05Z", "a".repeat(10 * MAX_TOKEN_BYTES)),
        ] {
            let token = listing.token(&Cursor { keys: Vec::new(), time: time.parse().unwrap(), id });
            assert_eq!(listing.request(0, &token).unwrap_err().violations()[0].field, "page_token", "{time}");
        }
    }

    #[test]
    fn a_token_leads_back_to_its_row_and_to_no_other_listing() {
        let listing = listed("ListRuns", &["operations/1"]);
        let token = listing.token(&cursor());
        assert_eq!(listing.request(0, &token).unwrap().after, Some(cursor()));
        for other in [listed("ListRuns", &["operations/2"]), listed("ListPlans", &["operations/1"])] {
            let error = other.request(0, &token).unwrap_err();
            assert_eq!(error.violations()[0].field, "page_token");
        }
        assert!(listing.request(0, "nonsense").is_err());
    }

    /// The rows of another filter and the places of another order are those of another list.
    #[test]
    fn a_token_belongs_to_its_filter_and_its_order() {
        let of = |filter, order_by| Listing::of("ListPlans", &[], fields::PLANS, (filter, order_by)).unwrap();
        let (filter, order_by) = ("solver:exact", "predicted_seconds desc, create_time");
        let time = Value::Time("2026-01-02T03:04:05Z".parse().unwrap());
        let place = Cursor { keys: vec![Some(Value::Real(0.1)), Some(time.clone())], ..cursor() };
        let listing = of(filter, order_by);
        let token = listing.token(&place);
        assert_eq!(listing.request(0, &token).unwrap().after, Some(place));
        for (filter, order_by) in
            [("", order_by), ("solver:other", order_by), (filter, ""), (filter, "create_time")]
        {
            let error = of(filter, order_by).request(0, &token).unwrap_err();
            assert_eq!(error.violations()[0].field, "page_token", "{filter} by {order_by}");
        }
        for keys in [
            vec![],
            vec![None],
            vec![None, None],
            vec![Some(time.clone()), None],
            vec![Some(Value::Text("0.1".to_owned())), Some(time.clone())],
            vec![None, Some(Value::Time("9999-12-30T00:00:00Z".parse().unwrap()))],
            vec![None, Some(time.clone()), None],
        ] {
            let forged = listing.token(&Cursor { keys: keys.clone(), ..cursor() });
            assert!(listing.request(0, &forged).is_err(), "{keys:?}");
        }
        let unset = listing.token(&Cursor { keys: vec![None, Some(time)], ..cursor() });
        assert!(listing.request(0, &unset).is_ok());
        let listing = of("", "solver");
        let forged = listing.token(&Cursor { keys: vec![Some(Value::Text("a\0".to_owned()))], ..cursor() });
        assert!(listing.request(0, &forged).is_err());
    }

    /// Whoever makes a token up gets an answer about the token, not about the database that cannot read it.
    #[test]
    fn a_token_with_a_position_that_no_row_has_is_refused() {
        let listing = listed("ListRuns", &[]);
        let token = |time: &str, id: &str| {
            let of = listed("ListRuns", &[]).of;
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
        let listing = listed("ListPlans", &[]);
        assert_eq!(listing.request(0, "").unwrap().size, 50);
        assert_eq!(listing.request(1, "").unwrap().size, 1);
        assert_eq!(listing.request(5_000, "").unwrap().size, 1_000);
        assert_eq!(listing.request(i32::MAX, "").unwrap().size, 1_000);
        for negative in [-1, i32::MIN] {
            assert_eq!(listing.request(negative, "").unwrap_err().violations()[0].field, "page_size");
        }
    }
}
