//! Questions are answered as they were.
//!
//! | file | is |
//! |---|---|
//! | `data/given.jsonl` | rows of a planner's database, one on each line: models, clusters, workers, and what was measured |
//! | `data/questions.txt` | questions that make plans or predictions, with their answers |
//!
//! Answers are compared field by field and to the last digit; a failure names each field that changed. Left out of them is what
//! is new in each run (`NEW`).
//!
//! `KEPT=write cargo nextest run -p loadmaster-tests kept::` writes the answers anew; it asks the requests that
//! stand in `questions.txt`, so a new question is a header without an answer. **A changed answer is a changed
//! promise**: names of plans are content ids that stored plans, trials and other people's notes refer to.
//!
//! Requests and answers are built from the descriptors, and rows are inserted by their names in the tables, so these
//! tests know no type of the program.

mod answers;
mod call;
mod rows;

use answers::Kept;
use loadmaster::embedded::EmbeddedPostgres;
use loadmaster_tests::{Planner, binary};
use sqlx::{Connection, PgConnection};
use tempfile::TempDir;

/// What differs between two runs of a question that makes something: times of the clock, and a token that has one.
const NEW: [&str; 3] = ["createTime", "searchSeconds", "nextPageToken"];

/// A planner on a database that has the given rows.
struct Scene {
    planner: Planner,
    postgres: EmbeddedPostgres,
    _folder: TempDir,
}

impl Scene {
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let postgres = EmbeddedPostgres::start(&folder.path().join("postgres")).await.unwrap();
        let url = postgres.url();
        let migrated = std::process::Command::new(binary("loadmaster"))
            .args(["migrate", "--database-url", &url])
            .output()
            .unwrap();
        assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
        let mut database = PgConnection::connect(&url).await.unwrap();
        rows::put(&mut database).await;
        database.close().await.unwrap();
        // Nobody renews what the rows hold.
        let planner = Planner::start_with(&["--database-url", &url, "--lease-duration", "3600s"]);
        Self { planner, postgres, _folder: folder }
    }

    async fn end(self) {
        let Self { planner, postgres, _folder } = self;
        drop(planner);
        postgres.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_are_answered_as_before() {
    let scene = Scene::new().await;
    let mut kept = Kept::read("questions.txt", &NEW);
    let channel = scene.planner.channel().await;
    for (method, request) in kept.requests() {
        let answer = call::ask(&channel, &method, &request).await;
        kept.add(&method, &request, &answer);
    }
    scene.end().await;
    kept.compare();
}
