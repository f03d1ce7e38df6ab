//! Rows as JSON, put into the tables of today by their names.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use sqlx::{AssertSqlSafe, PgConnection, query, query_scalar};

/// Puts the rows in, whatever refers to what.
pub(crate) async fn put(database: &mut PgConnection) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/kept/data/given.jsonl");
    let text = std::fs::read_to_string(file).unwrap();
    query("SET session_replication_role = replica").execute(&mut *database).await.unwrap();
    let mut columns: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in text.lines() {
        let (table, row) = line.split_once(' ').unwrap();
        let fields: Value = serde_json::from_str(row).unwrap();
        if !columns.contains_key(table) {
            columns.insert(table.to_owned(), stored_columns(database, table).await);
        }
        // A column that came later has its default.
        let known: Vec<&str> =
            columns[table].iter().map(String::as_str).filter(|column| fields.get(column).is_some()).collect();
        let known = known.join(", ");
        // The text as it is: numbers keep each of their digits.
        let sql = format!(
            "INSERT INTO {table} ({known}) OVERRIDING SYSTEM VALUE
             SELECT {known} FROM json_populate_record(NULL::{table}, $1::json)"
        );
        query(AssertSqlSafe(sql)).bind(row).execute(&mut *database).await.unwrap();
    }
    query("SET session_replication_role = origin").execute(&mut *database).await.unwrap();
}

/// The columns of a table that are not computed from others.
async fn stored_columns(database: &mut PgConnection, table: &str) -> Vec<String> {
    let sql = "SELECT column_name::text FROM information_schema.columns
               WHERE table_schema = 'public' AND table_name = $1 AND is_generated = 'NEVER'
               ORDER BY ordinal_position";
    query_scalar(sql).bind(table).fetch_all(database).await.unwrap()
}
