//! A private Postgres for the tests of one program, and an empty database for each test.
//!
//! The server is started by the first test and stopped by the end of the process, however it comes: the
//! kernel tells the server, and a small shell waits for the process to be gone and removes the folder.

pub(crate) mod samples;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use loadmaster::embedded::{EmbeddedOptions, EmbeddedPostgres};
use loadmaster::store::records::Fenced;
use loadmaster::store::{ConnectOptions, Store, StoreError};
use loadmaster_tests::prepare_cluster;
use sqlx::{Connection, PgConnection};
use tokio::sync::OnceCell;

static SERVER: OnceCell<String> = OnceCell::const_new();
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// A folder that is removed when this process has ended and no server works in it any more.
pub(crate) fn scratch_folder() -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER
        .get_or_init(|| {
            let folder = tempfile::Builder::new()
                .prefix("loadmaster-test-")
                // A server that was started by root runs as another user.
                .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o711))
                .tempdir()
                .unwrap()
                .keep();
            remove_at_the_end(&folder);
            folder
        })
        .clone()
}

/// The shell reads from a pipe that this process holds open until its end, also when it is killed.
fn remove_at_the_end(folder: &std::path::Path) {
    let script = r#"
        cat >/dev/null
        n=0
        while ls "$1"/*/postgres/postmaster.pid >/dev/null 2>&1 && [ $n -lt 300 ]; do sleep 0.1; n=$((n+1)); done
        rm -rf "$1""#;
    let cleaner = Command::new("sh")
        .args(["-c", script, "cleaner"])
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::mem::forget(cleaner);
}

/// The URL of the server's template database, which has the tables.
async fn server() -> &'static str {
    SERVER
        .get_or_init(|| async {
            // On a thread of its own: every test has its own runtime, which ends with it.
            let (send, receive) = tokio::sync::oneshot::channel();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let options = EmbeddedOptions { durable: false, ..EmbeddedOptions::default() };
                    let folder = scratch_folder().join("shared");
                    prepare_cluster(&folder).unwrap();
                    let postgres = EmbeddedPostgres::start_with(&folder, &options).await.unwrap();
                    let store = Store::connect(&ConnectOptions::new(postgres.url())).await.unwrap();
                    store.migrate().await.unwrap();
                    store.close().await;
                    send.send(postgres.url()).unwrap();
                    std::future::pending::<()>().await;
                });
            });
            receive.await.unwrap()
        })
        .await
}

/// The URL of a new database with the tables.
pub(crate) async fn database() -> String {
    let template = server().await;
    let name = format!("test_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
    let mut connection =
        PgConnection::connect(&template.replacen("/loadmaster?", "/postgres?", 1)).await.unwrap();
    let create = format!("CREATE DATABASE {name} TEMPLATE loadmaster");
    // One at a time: a template may not be in use, and copies of it count as use.
    sqlx::raw_sql("SELECT pg_advisory_lock(1)").execute(&mut connection).await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(create)).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    template.replacen("/loadmaster?", &format!("/{name}?"), 1)
}

/// A new database with the tables.
pub(crate) async fn store() -> Store {
    store_with(8).await
}

/// A new database with the tables, and so many connections.
pub(crate) async fn store_with(max_connections: u32) -> Store {
    let options = ConnectOptions {
        max_connections,
        acquire_timeout: Duration::from_secs(20),
        ..ConnectOptions::new(database().await)
    };
    Store::connect(&options).await.unwrap()
}

/// Runs a statement of the test's own, for what the store never does: moving time, damaging rows.
pub(crate) async fn execute(store: &Store, statement: &'static str) -> u64 {
    sqlx::query(statement).execute(store.pool()).await.unwrap().rows_affected()
}

/// The one number that a query of the test's own finds.
pub(crate) async fn count(store: &Store, query: &'static str) -> i64 {
    sqlx::query_scalar(query).fetch_one(store.pool()).await.unwrap()
}

/// The call changed something.
pub(crate) fn applied(fenced: Result<Fenced, StoreError>) {
    assert_eq!(fenced.unwrap(), Fenced::Applied);
}

/// Ends every back-off.
pub(crate) async fn end_back_off(store: &Store) {
    execute(store, "UPDATE runs SET not_before = now() WHERE state = 'queued'").await;
}

/// Lets every lease run out.
pub(crate) async fn end_leases(store: &Store) {
    let past = "UPDATE runs SET lease_expires_at = now() - interval '1 second' WHERE state = 'running'";
    execute(store, past).await;
}
