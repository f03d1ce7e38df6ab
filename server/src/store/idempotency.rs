//! Doing once what a caller may ask for twice: whoever hears no answer sends the same call with the same key again.

use std::future::Future;

use loadmaster_proto::name::OperationName;

use super::Store;
use super::columns::name;
use super::error::{Result, StoreError, broken_constraint};
use super::records::RequestKey;

/// Keeps the keys of operations unique.
pub(super) const OPERATION_KEY: &str = "operations_request_id_key";

/// What the first call with a key made, or what `create` makes now.
///
/// Twins that come at the same moment both find nothing, and both create: the database lets one of them, and the other
/// one, refused in one of the ways that this can show, looks again.
pub(super) async fn once<T, F>(find: impl Fn() -> F, create: impl Future<Output = Result<T>>) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    if let Some(first) = find().await? {
        return Ok(first);
    }
    match create.await {
        Err(
            refused @ (StoreError::Conflict
            | StoreError::AlreadyExists { .. }
            | StoreError::NotResumable { .. }),
        ) => find().await?.ok_or(refused),
        done => done,
    }
}

/// The error of a statement that stores a request's key, which `key` keeps unique: a twin may have stored it.
pub(super) fn refused(error: sqlx::Error, key: &str) -> StoreError {
    if broken_constraint(&error) == Some(key) { StoreError::Conflict } else { error.into() }
}

impl Store {
    /// Queues so many runs with the operation that waits for them, once for each key. `create` stores them all, or
    /// none.
    pub(super) async fn queue_once(
        &self,
        request: Option<&RequestKey>,
        runs: usize,
        create: impl Future<Output = Result<OperationName>>,
    ) -> Result<OperationName> {
        let checked = async {
            self.check_room(runs).await?;
            create.await
        };
        once(|| self.find_request(request), checked).await
    }

    /// The operation of an earlier call with the same key.
    ///
    /// # Errors
    /// [`StoreError::RequestIdReused`] when that call asked for something else.
    pub async fn find_request(&self, request: Option<&RequestKey>) -> Result<Option<OperationName>> {
        const SQL: &str = "SELECT id, request_fingerprint FROM operations WHERE request_id = $1";
        self.find_first(SQL, request).await?.map(|id| name(OperationName::from_id(id))).transpose()
    }

    /// The id of what an earlier call with the same key made. `sql` selects it with its fingerprint by the key's id.
    pub(super) async fn find_first(
        &self,
        sql: &'static str,
        request: Option<&RequestKey>,
    ) -> Result<Option<String>> {
        let Some(request) = request else { return Ok(None) };
        let first: Option<(String, String)> =
            sqlx::query_as(sql).bind(request.id).fetch_optional(&self.pool).await?;
        match first {
            Some((_, fingerprint)) if fingerprint != request.fingerprint => Err(StoreError::RequestIdReused),
            first => Ok(first.map(|(id, _)| id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    async fn done<T>(of: T) -> Result<T> {
        Ok(of)
    }

    async fn refused<T>(with: StoreError) -> Result<T> {
        Err(with)
    }

    /// Finds nothing at first, and `then` afterwards.
    async fn after_a_look(looks: &Cell<u32>, then: Option<u32>) -> Result<Option<u32>> {
        looks.set(looks.get() + 1);
        Ok(if looks.get() > 1 { then } else { None })
    }

    #[tokio::test]
    async fn what_was_made_before_is_not_made_again() {
        let made = Cell::new(false);
        let create = async {
            made.set(true);
            Ok(2)
        };
        assert_eq!(once(|| done(Some(1)), create).await.unwrap(), 1);
        assert!(!made.get());
        assert_eq!(once(|| done(None), done(2)).await.unwrap(), 2);
    }

    #[tokio::test]
    async fn a_twin_that_was_faster_counts_and_without_one_the_refusal_stays() {
        let exists = || StoreError::AlreadyExists { what: "profiles/a".to_owned() };
        let looks = Cell::new(0);
        assert_eq!(once(|| after_a_look(&looks, Some(7)), refused(exists())).await.unwrap(), 7);
        let looks = Cell::new(0);
        let refusal = once(|| after_a_look(&looks, None), refused(exists())).await.unwrap_err();
        assert!(matches!(refusal, StoreError::AlreadyExists { .. }), "{refusal}");
        let looks = Cell::new(0);
        let full = once(|| after_a_look(&looks, Some(7)), refused(StoreError::QueueFull)).await.unwrap_err();
        assert!(matches!(full, StoreError::QueueFull) && looks.get() == 1, "no twin causes that: {full}");
    }
}
