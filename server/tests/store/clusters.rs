//! Clusters are stored once, found again, and listed without being read whole.

use loadmaster::store::records::{PageRequest, RequestKey};
use loadmaster::store::{StoreError, fields};
use loadmaster_filter::Query;
use loadmaster_proto::cluster::Cluster;
use loadmaster_proto::cluster::import::{ClusterFormat, ImportOptions, import};
use loadmaster_proto::name::ClusterName;
use uuid::Uuid;

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
