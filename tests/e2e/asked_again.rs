//! What a planner keeps between calls: a request that was answered before is answered the same without a search, as long
//! as nothing has changed that its answer rests on, whoever changed it.
//!
//! Whether there was a search is told by its seconds: two searches never take the same number of nanoseconds.

use loadmaster_proto::wire::v1;
use loadmaster_tests::{Planner, call, chain};
use prost::Message as _;
use serde_json::json;
use tonic::transport::Channel;

use crate::lists::scene::Scene;

/// A table of equal layers whose passes take this long.
fn document(layers: usize, seconds: f64) -> String {
    let rows = json!({
        "first_layer": 0, "last_layer": layers - 1,
        "times": [{"micro_batch_size": 4, "tensor_degree": 1, "update_seconds": 1e-4,
                   "forward_seconds": seconds, "backward_seconds": 2.0 * seconds}],
        "bytes": [{"micro_batch_size": 4, "tensor_degree": 1, "parameter_bytes": 8 << 20,
                   "activation_bytes": 4 << 20, "input_bytes": 65_536, "output_bytes": 65_536}],
    });
    chain(layers, &[rows]).to_string()
}

/// A client of one planner.
struct Asker(Channel);

impl Asker {
    async fn new(planner: &Planner) -> Self {
        Self(planner.channel().await)
    }

    async fn import(&self, id: &str, document: String) {
        let request = v1::ImportProfileRequest { document, profile_id: id.to_owned(), ..Default::default() };
        call(&self.0, request).await.expect("the document is valid");
    }

    /// A node of this many devices.
    async fn create(&self, id: &str, devices: i32) {
        let device = |index| v1::ClusterDevice { index, kind: "gpu".to_owned(), ..Default::default() };
        let node = v1::ClusterNode {
            name: "node".to_owned(),
            devices: (0..devices).map(device).collect(),
            link: Some(v1::LinkSpeed { bytes_per_second: 1e11, ..Default::default() }),
            ..Default::default()
        };
        let kind = v1::DeviceKind { name: "gpu".to_owned(), memory_bytes: 1 << 30, ..Default::default() };
        let cluster = v1::Cluster { kinds: vec![kind], nodes: vec![node], ..Default::default() };
        let subject = Some(v1::create_cluster_request::Subject::Cluster(cluster));
        let request = v1::CreateClusterRequest { subject, cluster_id: id.to_owned(), ..Default::default() };
        call(&self.0, request).await.expect("the cluster is valid");
    }

    async fn ask(&self, request: &v1::RecommendPlanRequest) -> v1::Plan {
        let response = call(&self.0, request.clone()).await.expect("the request is valid");
        response.into_plan().expect("there is a plan")
    }

    async fn get(&self, name: &str) -> v1::Plan {
        let request = v1::GetPlanRequest { name: name.to_owned(), ..Default::default() };
        call(&self.0, request).await.expect("the plan is stored")
    }

    async fn report(&self, plan: &v1::Plan, iteration_seconds: f64) {
        let report = v1::Report { iteration_seconds, iteration_count: 10, ..Default::default() };
        let request =
            v1::CreateReportRequest { parent: plan.name.clone(), report: Some(report), ..Default::default() };
        call(&self.0, request).await.expect("the report is stored");
    }
}

fn on_devices(count: i32) -> v1::RecommendPlanRequest {
    let group = v1::DeviceGroup { count, capacity_bytes: 1 << 30, ..Default::default() };
    v1::RecommendPlanRequest {
        problem: Some(v1::Problem {
            profile: "profiles/table".to_owned(),
            devices: vec![group],
            ..Default::default()
        }),
        objective: Some(v1::ObjectiveOptions {
            kind: v1::Objective::MinIterationTime.into(),
            hourly_prices: ["gpu", "other", "third"].map(|kind| (kind.to_owned(), 2.0)).into(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn search_seconds(plan: &v1::Plan) -> f64 {
    plan.certificate.as_ref().expect("a search has a certificate").search_seconds
}

/// To the byte, and quickly; another request, or one that stores nothing, is searched for.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_request_is_answered_with_the_same_bytes_without_a_search() {
    let planner = Planner::start();
    let asker = Asker::new(&planner).await;
    asker.import("table", document(12, 1e-3)).await;
    let first = asker.ask(&on_devices(4)).await;
    assert!(search_seconds(&first) > 0.0 && !first.alternatives.is_empty(), "{first:?}");
    for _ in 0..3 {
        assert_eq!(asker.ask(&on_devices(4)).await.encode_to_vec(), first.encode_to_vec());
    }

    // The same plan, of another search.
    let seeded = loadmaster_proto::changed!(on_devices(4), search.seed = 7);
    let other = asker.ask(&seeded).await;
    assert_eq!(other.name, first.name);
    assert_ne!(search_seconds(&other), search_seconds(&first));
    let unstored = loadmaster_proto::changed!(on_devices(4), validate_only = true);
    let checked = asker.ask(&unstored).await;
    assert_ne!(search_seconds(&checked), search_seconds(&first));
    assert!(checked.alternatives.iter().all(|other| other.plan.is_empty()), "{checked:?}");
    let dry = loadmaster_proto::changed!(on_devices(3), validate_only = true);
    let dry = asker.ask(&dry).await;
    let missing = call(&asker.0, v1::GetPlanRequest { name: dry.name.clone(), ..Default::default() }).await;
    assert_eq!(missing.map(drop).unwrap_err().code(), tonic::Code::NotFound);
    assert_eq!(asker.ask(&on_devices(3)).await.name, dry.name);
    assert_eq!(asker.get(&dry.name).await.name, dry.name);

    // Only the seconds of its search are not part of a stored plan, which tells besides how it was trained.
    let mut stored = asker.get(&first.name).await;
    stored.certificate.as_mut().unwrap().search_seconds = search_seconds(&first);
    stored.training_summary = None;
    assert_eq!(stored.encode_to_vec(), first.encode_to_vec());

    // What was observed since stands in the answer, and nothing else has changed.
    asker.report(&first, 0.5).await;
    let mut observed = asker.ask(&on_devices(4)).await;
    assert_eq!(observed.reports.len(), 1);
    assert_eq!(asker.get(&first.name).await.reports, observed.reports);
    observed.reports.clear();
    assert_eq!(observed.encode_to_vec(), first.encode_to_vec());
}

/// Whoever comes next may have more time than a search that was stopped.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_stopped_search_found_answers_nobody_else() {
    let planner = Planner::start();
    let asker = Asker::new(&planner).await;
    asker.import("table", document(60, 1e-3)).await;
    let hurried = loadmaster_proto::changed!(
        on_devices(32),
        constraints.parallelism_layout = v1::ParallelismLayout::PerStageReplicas.into(),
        objective.kind = v1::Objective::Pareto.into(),
        search.time_limit = Some(prost_types::Duration { seconds: 0, nanos: 20_000_000 })
    );
    let mut seconds = Vec::new();
    for _ in 0..2 {
        match call(&asker.0, hurried.clone()).await {
            Ok(response) => {
                let plan = response.into_plan().expect("there is a plan");
                let certificate = plan.certificate.expect("a search has a certificate");
                assert!(certificate.deadline_reached, "the search should take longer: {certificate:?}");
                seconds.push(certificate.search_seconds);
            }
            // It had nothing yet.
            Err(status) => assert_eq!(status.code(), tonic::Code::DeadlineExceeded, "{status:?}"),
        }
    }
    assert!(seconds.windows(2).all(|pair| pair[0] != pair[1]), "{seconds:?}");
}

/// A factor that is learnt from new reports is another request's answer.
#[tokio::test(flavor = "multi_thread")]
async fn corrections_that_were_learnt_since_are_searched_with() {
    let planner = Planner::start();
    let asker = Asker::new(&planner).await;
    asker.import("table", document(12, 1e-3)).await;
    let corrected = loadmaster_proto::changed!(on_devices(4), problem.calibrate = true);
    let first = asker.ask(&corrected).await;
    assert!(first.calibrations.is_empty(), "{first:?}");
    assert_eq!(asker.ask(&corrected).await, first);
    for count in [1, 2, 3] {
        let plan = asker.ask(&on_devices(count)).await;
        let predicted = plan.iteration.as_ref().expect("a table has times").iteration_seconds;
        asker.report(&plan, 1.5 * predicted).await;
    }
    let second = asker.ask(&corrected).await;
    assert!(!second.calibrations.is_empty(), "{second:?}");
    assert_ne!(search_seconds(&second), search_seconds(&first));
    assert_eq!(asker.ask(&corrected).await, second);
}

/// A profile and a cluster that are deleted and stored anew under their names by another planner are read anew by the
/// one that knew them.
#[tokio::test(flavor = "multi_thread")]
async fn what_another_planner_changed_is_read_anew() {
    let scene = Scene::new().await;
    let other = Planner::start_with(&["--database-url", &scene.database_url()]);
    let (one, two) = (Asker::new(&scene.planner).await, Asker::new(&other).await);
    one.import("table", document(12, 1e-3)).await;
    one.create("nodes", 4).await;
    let request = loadmaster_proto::changed!(
        on_devices(4),
        problem.devices = Vec::new(),
        problem.cluster = "clusters/nodes".to_owned()
    );
    let first = one.ask(&request).await;
    assert_eq!(one.ask(&request).await, first);
    // Each planner knows what it searched for itself, and both name the plan alike.
    let of_two = two.ask(&request).await;
    assert_eq!(of_two.name, first.name);
    assert_eq!(two.ask(&request).await, of_two);
    assert_eq!(one.ask(&request).await, first);

    let delete = |tables: &'static [&'static str]| {
        let pool = scene.store.pool().clone();
        async move {
            for table in tables {
                let statement = sqlx::AssertSqlSafe(format!("DELETE FROM {table}"));
                sqlx::query(statement).execute(&pool).await.unwrap();
            }
        }
    };
    // The plan is gone, and all else is there: it is found again.
    delete(&["plans"]).await;
    let again = one.ask(&request).await;
    assert_eq!(again.name, first.name);
    assert_ne!(search_seconds(&again), search_seconds(&first));
    assert_eq!(one.get(&first.name).await.create_time, again.create_time);

    delete(&["plans", "documents", "operations", "profiles"]).await;
    two.import("table", document(12, 2e-3)).await;
    let slower = one.ask(&request).await;
    let seconds = |plan: &v1::Plan| plan.iteration.as_ref().expect("a table has times").closed_form_seconds;
    assert!(seconds(&slower) > 1.5 * seconds(&first), "{slower:?}");

    delete(&["clusters"]).await;
    two.create("nodes", 2).await;
    let smaller = one.ask(&request).await;
    assert_eq!(smaller.device_count, 2, "{smaller:?}");
}

/// Another question about a profile and a cluster that are known reads neither of them again: what they hold is out of
/// reach by then.
#[tokio::test(flavor = "multi_thread")]
async fn another_question_reads_neither_its_profile_nor_its_cluster_again() {
    let scene = Scene::new().await;
    let asker = Asker::new(&scene.planner).await;
    asker.import("table", document(12, 1e-3)).await;
    asker.create("nodes", 4).await;
    let request = loadmaster_proto::changed!(
        on_devices(4),
        problem.devices = Vec::new(),
        problem.cluster = "clusters/nodes".to_owned()
    );
    let first = asker.ask(&request).await;
    for hidden in ["clusters RENAME cluster", "documents RENAME document", "profiles RENAME settings"] {
        let statement = sqlx::AssertSqlSafe(format!("ALTER TABLE {hidden} TO hidden"));
        sqlx::query(statement).execute(scene.store.pool()).await.unwrap();
    }
    let other =
        asker.ask(&loadmaster_proto::changed!(request.clone(), problem.safety_margin = Some(0.2))).await;
    assert_ne!(search_seconds(&other), search_seconds(&first), "it was searched for");
    let largest = loadmaster_proto::changed!(
        request,
        problem.profile = String::new(),
        objective.candidate_profiles = vec!["profiles/table".to_owned()],
        objective.kind = v1::Objective::MaxModel.into()
    );
    assert_eq!(asker.ask(&largest).await.profile, "profiles/table");
}
