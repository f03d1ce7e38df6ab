//! Clusters are stored once, found again, and listed without being read whole.

use loadmaster::store::records::{PageRequest, RequestKey};
use loadmaster::store::{StoreError, fields};
use loadmaster_filter::Query;
use loadmaster_proto::cluster::Cluster;
use loadmaster_proto::cluster::import::{ClusterFormat, ImportOptions, import};
use loadmaster_proto::name::ClusterName;
use uuid::Uuid;

use crate::support::samples::plan;
use crate::support::{execute, store};

const EXAMPLE: &str = include_str!("../../../deploy/clusters/two-kinds.yaml");

fn example() -> Cluster {
    import(ClusterFormat::Loadmaster, EXAMPLE, &ImportOptions::default()).unwrap()
}

fn other() -> Cluster {
    let text = EXAMPLE.replace("400Gb/s", "200Gb/s");
    import(ClusterFormat::Loadmaster, &text, &ImportOptions::default()).unwrap()
}

fn name(id: &str) -> ClusterName {
    ClusterName::from_id(id).unwrap()
}

#[tokio::test]
async fn a_name_belongs_to_one_cluster() {
    let store = store().await;
    let first = store.put_cluster(&name("prod"), example(), None).await.unwrap();
    assert_eq!(first.cluster, example());
    assert_eq!(store.put_cluster(&name("prod"), example(), None).await.unwrap(), first);
    let taken = store.put_cluster(&name("prod"), other(), None).await.unwrap_err();
    assert!(matches!(taken, StoreError::AlreadyExists { what } if what == "clusters/prod"));
    assert!(matches!(store.get_cluster(&name("none")).await, Err(StoreError::NotFound { .. })));
}

/// The content is replaced under the name, by a caller that has read the newest one. The same content again changes nothing.
#[tokio::test]
async fn a_cluster_is_updated_where_its_etag_is_known() {
    let store = store().await;
    let first = store.put_cluster(&name("prod"), example(), None).await.unwrap();
    assert_eq!(first.create_time, first.update_time);
    let same = store.update_cluster(&name("prod"), example(), Some(&first.digest)).await.unwrap();
    assert_eq!(same, first);
    let changed = store.update_cluster(&name("prod"), other(), Some(&first.digest)).await.unwrap();
    assert_eq!((changed.cluster.clone(), changed.create_time), (other(), first.create_time));
    assert!(changed.update_time > first.update_time && changed.digest == other().id());
    let revisions = async || store.revisions(&[], Some("prod")).await.unwrap();
    let before = revisions().await;
    let late = store.update_cluster(&name("prod"), example(), Some(&first.digest)).await.unwrap_err();
    assert!(
        matches!(&late, StoreError::EtagMismatch { stored, .. } if stored.trim_matches('"') == changed.digest),
        "{late}"
    );
    store.update_cluster(&name("prod"), example(), None).await.unwrap();
    assert_ne!(revisions().await, before, "what was read of it is read again");
    let none = store.update_cluster(&name("none"), example(), None).await;
    assert!(matches!(none, Err(StoreError::NotFound { .. })));
}

/// Plans and placements reference a cluster by name: they are named by the refusal, and stay when it is deleted all the same.
#[tokio::test]
async fn a_cluster_is_deleted_where_nothing_references_it_or_by_force() {
    let store = store().await;
    store.put_cluster(&name("prod"), example(), None).await.unwrap();
    let (plan, content) = plan(&store).await;
    store.put_plan(&plan, &content).await.unwrap();
    execute(
        &store,
        "INSERT INTO plans (id, profile_id, model_id, content)
         SELECT 'on-it' || number, profile_id, model_id, content || '{\"asked\": {\"cluster\": \"clusters/prod\"}}'
         FROM plans, generate_series(1, 4) AS number",
    )
    .await;
    execute(
        &store,
        "INSERT INTO placements (id, plan_id, content, nodes) VALUES ('b', 'on-it1', '{\"cluster\": \"clusters/prod\"}', '{}')",
    )
    .await;
    let refused = store.delete_cluster(&name("prod"), "", false).await.unwrap_err();
    let StoreError::InUse { by, count, .. } = &refused else { panic!("{refused}") };
    assert_eq!((by.len(), *count), (5, 5));
    assert!(by.iter().any(|of| of.name == "placements/b" && of.kind == "PLACEMENT"), "{by:?}");
    let text = refused.to_string();
    assert!(
        text.contains("plans/on-it1, plans/on-it2, plans/on-it3 and 2 more reference it")
            && text.contains("`force`"),
        "{text}"
    );
    let mismatch = store.delete_cluster(&name("prod"), "\"0\"", true).await.unwrap_err();
    assert!(matches!(mismatch, StoreError::EtagMismatch { .. }), "{mismatch}");
    let etag = format!("\"{}\"", example().id());
    store.delete_cluster(&name("prod"), &etag, true).await.unwrap();
    assert!(matches!(store.delete_cluster(&name("prod"), "", true).await, Err(StoreError::NotFound { .. })));
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM plan_facts WHERE cluster_id = 'prod'")
        .fetch_one(store.pool())
        .await
        .unwrap();
    assert_eq!(left, 4, "plans keep its name");
    // The id can be used again.
    store.put_cluster(&name("prod"), other(), None).await.unwrap();
    store.put_cluster(&name("spare"), other(), None).await.unwrap();
    store.delete_cluster(&name("spare"), "", false).await.unwrap();
}

#[tokio::test]
async fn a_retried_call_finds_the_first_calls_cluster() {
    let store = store().await;
    let key = |fingerprint: &str| RequestKey { id: Uuid::from_u128(7), fingerprint: fingerprint.to_owned() };
    let first = store.put_cluster(&name("a"), example(), Some(&key("x"))).await.unwrap();
    // A second discovery may find other workers; the same call has the same answer.
    let again = store.put_cluster(&name("b"), other(), Some(&key("x"))).await.unwrap();
    assert_eq!(again, first);
    let reused = store.put_cluster(&name("b"), other(), Some(&key("y"))).await;
    assert!(matches!(reused, Err(StoreError::RequestIdReused)));
    assert!(matches!(store.get_cluster(&name("b")).await, Err(StoreError::NotFound { .. })));
}

#[tokio::test]
async fn a_list_has_numbers_and_kinds_and_pages() {
    let store = store().await;
    for id in ["a", "b", "c"] {
        store.put_cluster(&name(id), example(), None).await.unwrap();
    }
    let page = store.list_clusters(&Query::default(), &PageRequest { size: 2, after: None }).await.unwrap();
    let ids: Vec<&str> = page.rows.iter().map(|row| row.name.id()).collect();
    assert_eq!(ids, ["c", "b"]);
    let row = &page.rows[0];
    assert_eq!((row.node_count, row.device_count, row.summary.kinds.len()), (12, 80, 2));
    assert_eq!((row.summary.tiers.len(), &row.digest), (2, &example().id()));
    let last =
        store.list_clusters(&Query::default(), &PageRequest { size: 2, after: page.next }).await.unwrap();
    assert_eq!((last.rows.len(), last.next), (1, None));
}

#[tokio::test]
async fn clusters_are_found_by_their_kinds_of_devices_and_their_source() {
    let store = store().await;
    store.put_cluster(&name("both"), example(), None).await.unwrap();
    let kinds: Vec<String> = example().kinds().iter().map(|kind| kind.name.clone()).collect();
    let [one, other] = kinds.as_slice() else { panic!("two kinds: {kinds:?}") };
    for (filter, is_found) in [
        (format!("device_kind:\"{one}\" AND device_kind:\"{other}\" AND source = written"), true),
        (format!("device_kind = \"{one}\""), false),
        ("source = nvidia-smi".to_owned(), false),
    ] {
        let query = Query::parse(fields::CLUSTERS, &filter, "").unwrap();
        let page = store.list_clusters(&query, &PageRequest { size: 2, after: None }).await.unwrap();
        assert_eq!(page.rows.len() == 1, is_found, "{filter}");
    }
}

/// What is stored is checked again when it is read: a cluster is valid wherever it comes from.
#[tokio::test]
async fn a_damaged_cluster_is_reported() {
    let store = store().await;
    store.put_cluster(&name("a"), example(), None).await.unwrap();
    execute(&store, "UPDATE clusters SET cluster = jsonb_set(cluster, '{nodes,0,name}', '\"h02\"')").await;
    let damaged = store.get_cluster(&name("a")).await.unwrap_err();
    assert!(matches!(damaged, StoreError::Corrupt { .. }), "{damaged}");
}
