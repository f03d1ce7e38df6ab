//! The private Postgres: it starts, stops, survives its planner, and is nobody else's.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use loadmaster::embedded::{EmbeddedError, EmbeddedOptions, EmbeddedPostgres};
use loadmaster::store::{ConnectOptions, Store};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};

use crate::support::samples::{model, zoo};
use crate::support::scratch_folder;

const DATA_DIR: &str = "LOADMASTER_TEST_DATA_DIR";

fn data_dir(name: &str) -> PathBuf {
    scratch_folder().join(name)
}

async fn connect(postgres: &EmbeddedPostgres) -> Store {
    Store::connect(&ConnectOptions::new(postgres.url())).await.unwrap()
}

fn postmaster(data_dir: &Path) -> Pid {
    let text = fs::read_to_string(data_dir.join("postgres/postmaster.pid")).unwrap();
    Pid::from_raw(text.lines().next().unwrap().trim().parse().unwrap())
}

/// The owner of a process, while it lives.
fn owner(pid: Pid) -> Option<u32> {
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok().filter(|command| !command.is_empty())?;
    assert!(String::from_utf8_lossy(&command).contains("postgres"));
    Some(fs::metadata(format!("/proc/{pid}")).unwrap().uid())
}

fn eventually(what: &str, done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what} never happened");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Not a test: the planner of the tests that kill one. Prints the URL and waits for its end.
#[test]
#[ignore = "started by other tests"]
fn planner() {
    let Some(data_dir) = std::env::var_os(DATA_DIR) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let postgres = EmbeddedPostgres::start(Path::new(&data_dir)).await.unwrap();
        let store = connect(&postgres).await;
        store.migrate().await.unwrap();
        model(&store).await;
        println!("\nready");
        std::future::pending::<()>().await;
    });
}

/// A planner in a process of its own, ready to be killed.
fn spawn_planner(data_dir: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "embedded::planner", "--nocapture"])
        .env(DATA_DIR, data_dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "ready"), "the planner ended early");
    child
}

async fn assert_model_is_there(data_dir: &Path) {
    let postgres = EmbeddedPostgres::start(data_dir).await.unwrap();
    let store = connect(&postgres).await;
    let model = zoo().build().unwrap();
    let name = loadmaster_proto::name::ModelName::from_id(model.id()).unwrap();
    assert_eq!(store.get_model(&name).await.unwrap().model, model);
    store.close().await;
    postgres.stop().await;
}

#[tokio::test]
async fn it_starts_stops_and_starts_again_with_what_was_stored() {
    // A path that a URL must escape.
    let data_dir = data_dir("a b%c");
    let postgres = EmbeddedPostgres::start(&data_dir).await.unwrap();
    let store = connect(&postgres).await;
    store.migrate().await.unwrap();
    model(&store).await;
    let settings: Vec<(String, String)> = sqlx::query_as(
        "SELECT name, setting FROM pg_settings
         WHERE name IN ('data_checksums', 'fsync', 'listen_addresses', 'server_encoding') ORDER BY name",
    )
    .fetch_all(store.pool())
    .await
    .unwrap();
    let settings: Vec<(&str, &str)> = settings.iter().map(|(n, s)| (n.as_str(), s.as_str())).collect();
    assert_eq!(
        settings,
        [("data_checksums", "on"), ("fsync", "on"), ("listen_addresses", ""), ("server_encoding", "UTF8")]
    );
    let begin = Instant::now();
    // With connections open: a stop does not wait for them.
    postgres.stop().await;
    assert!(begin.elapsed() < Duration::from_secs(10));
    assert!(!data_dir.join("postgres/postmaster.pid").exists());
    assert_model_is_there(&data_dir).await;
}

#[tokio::test]
async fn only_its_user_can_reach_it_and_root_is_not_its_user() {
    let data_dir = data_dir("private");
    let postgres = EmbeddedPostgres::start(&data_dir).await.unwrap();
    let socket_folder = data_dir.join("run");
    for folder in [&socket_folder, &data_dir.join("postgres")] {
        let about = fs::metadata(folder).unwrap();
        assert_eq!(about.permissions().mode() & 0o077, 0, "{}", folder.display());
        assert_eq!(Some(about.uid()), owner(postmaster(&data_dir)));
    }
    assert!(fs::metadata(data_dir.join("postgres.log")).unwrap().permissions().mode() & 0o077 == 0);
    let running_as = owner(postmaster(&data_dir)).unwrap();
    if Uid::effective().is_root() {
        assert_ne!(running_as, 0);
    } else {
        assert_eq!(running_as, Uid::effective().as_raw());
    }
    // Even as the right user of the system, only as the right role.
    let other = postgres.url().replacen("loadmaster@", "postgres@", 1);
    assert!(Store::connect(&ConnectOptions::new(other)).await.is_err());
    postgres.stop().await;
}

#[tokio::test]
async fn a_killed_planner_takes_its_server_along_and_nothing_is_lost() {
    let data_dir = data_dir("killed");
    let mut planner = spawn_planner(&data_dir);
    let server = postmaster(&data_dir);
    planner.kill().unwrap();
    planner.wait().unwrap();
    eventually("the end of the server", || owner(server).is_none());
    assert_model_is_there(&data_dir).await;
}

#[tokio::test]
async fn a_planner_that_was_killed_with_its_server_leaves_nothing_in_the_way() {
    let data_dir = data_dir("crashed");
    let mut planner = spawn_planner(&data_dir);
    let server = postmaster(&data_dir);
    kill(server, Signal::SIGKILL).unwrap();
    planner.kill().unwrap();
    planner.wait().unwrap();
    assert!(data_dir.join("postgres/postmaster.pid").exists(), "a crash leaves it");
    assert_model_is_there(&data_dir).await;
}

#[tokio::test]
async fn a_server_that_outlived_its_planner_is_stopped_by_the_next() {
    let data_dir = data_dir("outlived");
    let mut planner = spawn_planner(&data_dir);
    let server = postmaster(&data_dir);
    // It cannot hear that its planner is gone.
    kill(server, Signal::SIGSTOP).unwrap();
    planner.kill().unwrap();
    planner.wait().unwrap();
    let wake = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        kill(server, Signal::SIGCONT).unwrap();
    });
    assert_model_is_there(&data_dir).await;
    wake.join().unwrap();
    assert_eq!(owner(server), None);
}

/// A frozen server refuses nothing and answers nothing: whoever waits for it waits for ever.
#[tokio::test]
async fn a_server_that_is_frozen_is_started_again_with_what_was_stored() {
    let data_dir = data_dir("frozen");
    let options = EmbeddedOptions { patience: Duration::from_secs(6), ..EmbeddedOptions::default() };
    let mut postgres = EmbeddedPostgres::start_with(&data_dir, &options).await.unwrap();
    let store = connect(&postgres).await;
    store.migrate().await.unwrap();
    let stored = model(&store).await;
    let server = postmaster(&data_dir);
    kill(server, Signal::SIGSTOP).unwrap();
    // Its backends too, or those that the pool has would go on answering.
    for entry in fs::read_dir("/proc").unwrap() {
        let process = entry.unwrap();
        let folder = fs::read_link(process.path().join("cwd"));
        if folder.is_ok_and(|folder| folder == data_dir.join("postgres").canonicalize().unwrap()) {
            let pid: i32 = process.file_name().to_str().unwrap().parse().unwrap();
            kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
        }
    }
    let answered = async {
        let limit = Duration::from_secs(5);
        while !tokio::time::timeout(limit, store.get_model(&stored)).await.is_ok_and(|found| found.is_ok()) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // While it is kept: a pool may reach a server that is not yet known to have started, which ends with its start.
        (postmaster(&data_dir), owner(server))
    };
    let (new, old_owner) = tokio::select! {
        given_up = postgres.keep() => panic!("{given_up}"),
        answered = tokio::time::timeout(Duration::from_secs(120), answered) => answered.unwrap(),
    };
    assert_ne!(new, server);
    assert_eq!(old_owner, None);
    store.close().await;
    postgres.stop().await;
}

#[tokio::test]
async fn a_second_planner_is_told_who_has_the_data_directory() {
    let data_dir = data_dir("shared-by-two");
    let postgres = EmbeddedPostgres::start(&data_dir).await.unwrap();
    let refused = EmbeddedPostgres::start(&data_dir).await.unwrap_err();
    let own = std::process::id().cast_signed();
    assert!(matches!(&refused, EmbeddedError::InUse { pid: Some(pid), .. } if *pid == own), "{refused}");
    assert!(refused.to_string().contains(&own.to_string()), "{refused}");
    connect(&postgres).await.ping().await.unwrap();
    postgres.stop().await;
    EmbeddedPostgres::start(&data_dir).await.unwrap().stop().await;
}

#[tokio::test]
async fn data_of_another_major_version_is_left_alone() {
    let data_dir = data_dir("old");
    fs::create_dir_all(data_dir.join("postgres")).unwrap();
    fs::write(data_dir.join("postgres/PG_VERSION"), "9.6\n").unwrap();
    let refused = EmbeddedPostgres::start(&data_dir).await.unwrap_err();
    assert!(matches!(&refused, EmbeddedError::WrongVersion { data, .. } if data == "9.6"), "{refused}");
    let message = refused.to_string();
    assert!(message.contains("PostgreSQL 9.6") && message.contains("pg_upgrade"), "{message}");
}

#[tokio::test]
async fn a_half_made_cluster_is_made_anew() {
    let data_dir = data_dir("half-made");
    fs::create_dir_all(data_dir.join("postgres.unfinished/base")).unwrap();
    EmbeddedPostgres::start(&data_dir).await.unwrap().stop().await;
    assert!(!data_dir.join("postgres.unfinished").exists());
}

#[tokio::test]
async fn a_server_that_cannot_start_shows_its_log() {
    let data_dir = data_dir("broken");
    EmbeddedPostgres::start(&data_dir).await.unwrap().stop().await;
    fs::write(data_dir.join("postgres/postgresql.conf"), "no such setting = 1\n").unwrap();
    let refused = EmbeddedPostgres::start(&data_dir).await.unwrap_err();
    let message = refused.to_string();
    assert!(message.contains("postgres.log") && message.contains("syntax error"), "{message}");
}

/// The database's user owns the cluster, and others may own what is around it: what they make links of must
/// not lead root to write to files that they could not write themselves.
#[tokio::test]
async fn links_in_its_folders_are_not_followed() {
    let data_dir = data_dir("links");
    EmbeddedPostgres::start(&data_dir).await.unwrap().stop().await;
    let precious = scratch_folder().join("precious");
    fs::write(&precious, "precious").unwrap();
    let unchanged = || assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");

    for name in ["pg_hba.new", "pg_hba.conf.new", "pg_ident.new", "pg_ident.conf.new"] {
        symlink(&precious, data_dir.join("postgres").join(name)).unwrap();
    }
    EmbeddedPostgres::start(&data_dir).await.unwrap().stop().await;
    unchanged();
    assert!(!fs::symlink_metadata(data_dir.join("postgres/pg_hba.conf")).unwrap().is_symlink());

    for name in ["lock", "postgres.log"] {
        let path = data_dir.join(name);
        fs::remove_file(&path).unwrap();
        symlink(&precious, &path).unwrap();
        let refused = EmbeddedPostgres::start(&data_dir).await.unwrap_err().to_string();
        assert!(refused.contains(name), "{refused}");
        fs::remove_file(&path).unwrap();
        fs::hard_link(&precious, &path).unwrap();
        let refused = EmbeddedPostgres::start(&data_dir).await.unwrap_err().to_string();
        assert!(refused.contains(name) && refused.contains("Remove the file"), "{refused}");
        fs::remove_file(&path).unwrap();
        unchanged();
    }
    EmbeddedPostgres::start(&data_dir).await.unwrap().stop().await;
}

#[tokio::test]
async fn a_dropped_server_stops() {
    let data_dir = data_dir("dropped");
    let postgres = EmbeddedPostgres::start(&data_dir).await.unwrap();
    let server = postmaster(&data_dir);
    drop(postgres);
    assert_eq!(owner(server), None);
    assert!(!data_dir.join("postgres/postmaster.pid").exists());
}

#[tokio::test]
async fn a_start_that_takes_too_long_is_given_up() {
    let options = EmbeddedOptions { start_timeout: Duration::ZERO, ..EmbeddedOptions::default() };
    let data_dir = data_dir("slow");
    let refused = EmbeddedPostgres::start_with(&data_dir, &options).await.unwrap_err();
    assert!(matches!(refused, EmbeddedError::TooSlow { .. }), "{refused}");
    eventually("the end of the server", || !data_dir.join("postgres/postmaster.pid").exists());
}

#[tokio::test]
async fn root_is_told_which_folder_its_server_cannot_pass() {
    if !Uid::effective().is_root() {
        return;
    }
    let closed = data_dir("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).unwrap();
    let refused = EmbeddedPostgres::start(&closed.join("data")).await.unwrap_err();
    assert!(
        matches!(&refused, EmbeddedError::NotTraversable { folder, .. } if *folder == closed),
        "{refused}"
    );
    assert!(refused.to_string().contains("chmod o+x"), "{refused}");
}
