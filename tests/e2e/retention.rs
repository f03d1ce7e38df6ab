//! Old resources are purged from the command line or by a schedule, and references of the others are named.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use loadmaster_tests::{Planner, binary, cli, json, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::lists::scene::{Scene, content};

/// Moves all plans and profiles into the past.
async fn grow_old(scene: &Scene) {
    let statement = "UPDATE plan_facts SET asked_time = now() - interval '100 days',
                                           create_time = now() - interval '100 days'";
    sqlx::query(statement).execute(scene.store.pool()).await.expect("plans grow old");
}

#[tokio::test(flavor = "multi_thread")]
async fn old_resources_are_purged_and_references_are_named() {
    let scene = Scene::new().await;
    let (profile, model) = (scene.profile("first", Vec::new()).await, scene.model(10).await);
    for (id, sizes) in [("idle", &[10, 20]), ("kept", &[15, 15]), ("seen", &[20, 10])] {
        scene.plan(id, &content(&profile, &model, "cpu", sizes)).await;
    }
    let planner = &scene.planner;
    json(planner, &["plan", "label", "kept", "keep=yes"]);
    let report = json(planner, &["plan", "report", "seen", "--iteration-time", "1s"]);
    grow_old(&scene).await;
    scene.plan("young", &content(&profile, &model, "cpu", &[5, 25])).await;

    let rule =
        ["history", "purge", "--older-than", "90d", "--filter", "NOT labels:keep", "--collections", "plans"];
    // A dry run, also under the verb's old name.
    let dry_run = json(planner, &[&["history", "prune"][..], &rule[2..], &["--dry-run"]].concat());
    let of = &dry_run["collections"][0];
    assert_eq!((&dry_run["dryRun"], &of["collection"]), (&true.into(), &"plans".into()), "{dry_run}");
    assert_eq!((&of["purgeCount"], &of["referencedCount"]), (&"1".into(), &"1".into()));
    assert_eq!(
        (&of["purgeSample"][0], &of["referencedSample"][0]["name"]),
        (&"plans/idle".into(), &"plans/seen".into())
    );
    assert_eq!(of["referencedSample"][0]["referrers"][0], report["name"]);
    let shown = cli(planner, &rule);
    assert!(
        shown.code == 0 && shown.stderr.contains("nothing was deleted. Use --force to delete"),
        "{shown:?}"
    );
    assert!(shown.stdout.contains(report["name"].as_str().expect("a report has a name")), "{shown:?}");
    assert_eq!(cli(planner, &["plan", "show", "idle"]).code, 0, "a dry run deletes nothing");

    let done = cli(planner, &[&rule[..], &["--force", "-o", "name"]].concat());
    assert_eq!((done.code, done.stdout.as_str()), (0, "plans/idle\n"), "{done:?}");
    assert_eq!(cli(planner, &["plan", "show", "idle"]).code, 3);
    for stays in ["kept", "seen", "young"] {
        assert_eq!(cli(planner, &["plan", "show", stays]).code, 0, "{stays}");
    }
    // A purge is an operation like others.
    let operations = json(planner, &["operation", "list", "--filter", "state = succeeded"]);
    let purge = &operations["operations"][0];
    assert_eq!(
        purge["metadata"]["@type"], "type.googleapis.com/loadmaster.v1.PurgeHistoryMetadata",
        "{purge}"
    );
    assert_eq!(
        (
            &purge["metadata"]["purgeCount"],
            &purge["metadata"]["candidateCount"],
            &purge["metadata"]["request"]["force"]
        ),
        (&"1".into(), &"2".into(), &true.into())
    );
    let name = purge["name"].as_str().expect("an operation has a name");
    let shown = cli(planner, &["operation", "show", name]);
    assert!(shown.stdout.contains("1 deleted, 1 referenced"), "{shown:?}");
    assert_eq!(cli(planner, &["operation", "delete", name]).code, 0);

    // Mistakes are named by the options of the command line.
    let young = cli(planner, &["history", "purge", "--older-than", "12h"]);
    assert!(
        young.code == 2 && young.stderr.contains("--older-than: 0.500 days is out of range"),
        "{young:?}"
    );
    let typo = cli(planner, &["history", "purge", "--older-than", "9d", "--filter", "lables:keep"]);
    assert!(
        typo.code == 2 && typo.stderr.contains("--filter: of plans:") && typo.stderr.contains("labels"),
        "{typo:?}"
    );
    let other = cli(
        planner,
        &["history", "purge", "--older-than", "9d", "--filter", "solver = x", "--collections", "runs"],
    );
    assert!(other.code == 2 && other.stderr.contains("--filter: of runs:"), "{other:?}");
}

/// Off unless it is asked for; then at once, and every so often.
#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_does_the_same() {
    let scene = Scene::new().await;
    let (profile, model) = (scene.profile("first", Vec::new()).await, scene.model(10).await);
    scene.plan("idle", &content(&profile, &model, "cpu", &[10, 20])).await;
    scene.plan("seen", &content(&profile, &model, "cpu", &[20, 10])).await;
    json(&scene.planner, &["plan", "report", "seen", "--iteration-time", "1s"]);
    grow_old(&scene).await;
    let url = scene.database_url();
    let mut scheduled = Planner::start_with(&[
        "--database-url",
        &url,
        "--purge-older-than",
        "90d",
        "--purge-filter",
        "NOT labels:keep",
    ]);
    wait_until("the plan to be purged", || {
        (cli(&scheduled, &["plan", "show", "idle"]).code == 3).then_some(())
    });
    assert_eq!(cli(&scheduled, &["profile", "show", "first"]).code, 0, "it is being measured");
    // Nobody was there to be answered: the log names what went, and what stays for whom.
    wait_until("the log to say what went", || {
        let log = scheduled.program().output();
        (log.contains("deleted: plans/idle")
            && log.contains("kept: plans/seen, referenced by plans/seen/reports/"))
        .then_some(())
    });

    for (arguments, told) in [
        (["--purge-older-than", "1h", "--purge-filter", ""], "Use 1 day to 1,000 years"),
        (["--purge-older-than", "9d", "--purge-filter", "no_such_field = 1"], "no_such_field"),
    ] {
        let mut serve = Command::new(binary("loadmaster"));
        serve.args(["serve", "--listen", "127.0.0.1:0", "--database-url", &url]).args(arguments);
        let refused = serve.output().expect("the program can be started");
        let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && stderr.contains(told), "{stderr}");
    }
}

/// A list that goes on prints what is new, once, until it is interrupted.
#[tokio::test(flavor = "multi_thread")]
async fn a_watched_list_tells_what_is_new() {
    let scene = Scene::new().await;
    let (profile, model) = (scene.profile("first", Vec::new()).await, scene.model(10).await);
    scene.plan("old", &content(&profile, &model, "cpu", &[10, 20])).await;
    let mut list = Command::new(binary("loadmaster"))
        .args(["plan", "list", "-w", "-o", "name"])
        .env("LOADMASTER_ADDRESS", scene.planner.address())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    let (send, lines) = mpsc::channel();
    let stdout = BufReader::new(list.stdout.take().expect("it is piped"));
    std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
    let next = || lines.recv_timeout(Duration::from_secs(60)).expect("a line comes");
    assert_eq!(next(), "plans/old");
    scene.plan("new", &content(&profile, &model, "cpu", &[15, 15])).await;
    assert_eq!(next(), "plans/new");
    json(&scene.planner, &["plan", "label", "old", "team=vision"]);
    assert_eq!(next(), "plans/old", "its label is new");
    let pid = Pid::from_raw(i32::try_from(list.id()).expect("a process id"));
    kill(pid, Signal::SIGINT).expect("it runs");
    assert_eq!(list.wait().expect("it ends").code(), Some(130));
    assert!(lines.recv_timeout(Duration::from_secs(5)).is_err(), "nothing is told twice");
}
