//! What an earlier release stored is read as it was meant, and what it answered is answered again.
//!
//! | file | is |
//! |---|---|
//! | `data/rows.jsonl` | rows of an earlier planner's database, one on each line |
//! | `data/stored.txt` | what is answered of these rows by every method that gets or lists |
//! | `data/questions.txt` | questions that make plans or predictions, with their answers |
//! | `data/made.sh` | how the rows came to be, with `more.sql` and `dump.sql` |
//!
//! Answers are compared field by field and to the last digit; a failure names each field that changed. Questions are
//! asked on a database that has no plan, operation, trial or observation of the rows (only models, clusters, workers
//! and what was measured), so that each plan is searched anew. Left out of their answers is what is new in each run
//! (`NEW`).
//!
//! `KEPT=write cargo nextest run -p loadmaster-tests kept::` writes the answers anew; it asks the requests that
//! stand in `questions.txt`, so a new question is a header without an answer. **A changed answer is a changed
//! promise**: names of plans are content ids that stored plans, trials and other people's notes refer to. Rows are
//! never written anew, they are what somebody has in a database. New tables and columns get new rows.
//!
//! Requests and answers are built from the descriptors, and rows are inserted by their names in the tables, so these
//! tests know no type of the program.

mod answers;
mod call;
mod rows;

use answers::Kept;
use loadmaster::embedded::EmbeddedPostgres;
use loadmaster_tests::{Planner, binary};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use tempfile::TempDir;

/// What differs between two runs of a question that makes something: times of the clock, and a token that has one.
const NEW: [&str; 3] = ["createTime", "searchSeconds", "nextPageToken"];

/// Tables of which rows are put into the database that questions are asked on: what is known before anybody asks.
const GIVEN: [&str; 9] = [
    "models",
    "clusters",
    "workers",
    "profiles",
    "documents",
    "operations",
    "runs",
    "measurements",
    "profile_runs",
];

/// A planner on a database that has rows of an earlier one.
struct Scene {
    planner: Planner,
    database: PgConnection,
    postgres: EmbeddedPostgres,
    _folder: TempDir,
}

impl Scene {
    async fn new(is_put: impl Fn(&str, &Value) -> bool) -> Self {
        let folder = TempDir::new().unwrap();
        let postgres = EmbeddedPostgres::start(&folder.path().join("postgres")).await.unwrap();
        let url = postgres.url();
        let migrated = std::process::Command::new(binary("loadmaster"))
            .args(["migrate", "--database-url", &url])
            .output()
            .unwrap();
        assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
        let mut database = PgConnection::connect(&url).await.unwrap();
        rows::put(&mut database, is_put).await;
        // Nobody renews what the rows hold.
        let planner = Planner::start_with(&["--database-url", &url, "--lease", "3600"]);
        Self { planner, database, postgres, _folder: folder }
    }

    async fn end(self) {
        let Self { planner, database, postgres, _folder } = self;
        drop((planner, database));
        postgres.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_rows_are_answered_as_before() {
    let mut scene = Scene::new(|_, _| true).await;
    // A planner sets heartbeats back that lie ahead of its clock.
    let mut kept = Kept::read("stored.txt", &["heartbeatTime"]);
    let channel = scene.planner.channel().await;
    for (method, request) in requests(&mut scene.database).await {
        let answer = call::ask(&channel, method, &request).await;
        kept.add(method, &request, &answer);
    }
    scene.end().await;
    kept.compare();
}

/// A request of each method that gets or lists, for each row that there is.
async fn requests(database: &mut PgConnection) -> Vec<(&'static str, Value)> {
    let mut requests = Vec::new();
    for (list, get, collection) in [
        ("ModelService.ListModels", "ModelService.GetModel", "models"),
        ("ClusterService.ListClusters", "ClusterService.GetCluster", "clusters"),
        ("ProfileService.ListProfiles", "ProfileService.GetProfile", "profiles"),
        ("ProfileService.ListRuns", "ProfileService.GetRun", "runs"),
        ("PlanService.ListPlans", "PlanService.GetPlan", "plans"),
        ("WorkerService.ListWorkers", "WorkerService.GetWorker", "workers"),
    ] {
        requests.push((list, json!({})));
        for id in rows::ids(database, collection).await {
            requests.push((get, json!({ "name": format!("{collection}/{id}") })));
        }
    }
    for id in rows::ids(database, "profiles").await {
        requests.push(("ProfileService.ListMeasurements", json!({ "parent": format!("profiles/{id}") })));
        requests.push(("ProfileService.ExportProfile", json!({ "name": format!("profiles/{id}") })));
    }
    for id in rows::ids(database, "plans").await.into_iter().step_by(4) {
        requests.push(("PlanService.SimulatePlan", json!({ "name": format!("plans/{id}") })));
        requests.push(("PlanService.PredictMemory", json!({ "plan": format!("plans/{id}") })));
    }
    for id in rows::ids(database, "operations").await {
        let name = json!({ "name": format!("operations/{id}") });
        requests.push(("google.longrunning.Operations.GetOperation", name));
        requests.push(("ProfileService.ListRuns", json!({ "operation": format!("operations/{id}") })));
    }
    requests.push(("google.longrunning.Operations.ListOperations", json!({ "name": "operations" })));
    requests.push(("ClusterService.ListLinkMeasurements", json!({})));
    requests.push(("PlanService.ListObservations", json!({ "plan": "plans/-" })));
    requests.push(("PlanService.ListPredictionErrors", json!({})));
    requests
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_are_answered_as_before() {
    // Operations of plans are left out with the plans; those of profiles have the runs that were measured.
    let is_given =
        |table: &str, row: &Value| GIVEN.contains(&table) && row["plan_id"].is_null() && !is_of_links(row);
    let scene = Scene::new(is_given).await;
    let mut kept = Kept::read("questions.txt", &NEW);
    let channel = scene.planner.channel().await;
    for (method, request) in kept.requests() {
        let answer = call::ask(&channel, &method, &request).await;
        kept.add(&method, &request, &answer);
    }
    scene.end().await;
    kept.compare();
}

fn is_of_links(row: &Value) -> bool {
    row["measures_links"] == true || !row["work"]["links"].is_null()
}
