//! `UpdateCluster`.

use loadmaster_proto::cluster::Cluster;
use loadmaster_proto::error::{Invalid, required};
use loadmaster_proto::name::ClusterName;
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::create_cluster_request::Subject;
use loadmaster_search::Stop;

use super::{Clusters, read, unstored, unstored_record, whole};
use crate::rpc::error::ApiError;
use crate::store::check_etag;

/// Fields that an update may name.
const FIELDS: [&str; 5] = ["kinds", "nodes", "tiers", "domains", "source"];

impl Clusters {
    /// Replaces the content of a cluster, or some of its fields.
    pub(super) async fn update(&self, request: v1::UpdateClusterRequest) -> Result<v1::Cluster, ApiError> {
        let v1::UpdateClusterRequest { cluster, update_mask, file, validate_only } = request;
        let mut given = required("cluster", cluster)?;
        let name = ClusterName::parse("cluster.name", &std::mem::take(&mut given.name))?;
        let etag = std::mem::take(&mut given.etag);
        let paths = update_mask.unwrap_or_default().paths;
        let fields = fields(&paths, &given, file.is_some())?;
        let stored = self.store.get_cluster(&name).await?;
        check_etag(&name, &stored.digest, &etag)?;
        // Of a partial update the rest must still be as it was read.
        let is_whole = fields.len() == FIELDS.len();
        let digest = (!is_whole || !etag.is_empty()).then(|| stored.digest.clone());
        let work = move |stop: &Stop| match file {
            Some(file) => read(Subject::File(file), stop),
            None => {
                let wire = merged((&stored.cluster).into(), given, &fields);
                let wanted = || !stop.is_requested();
                Cluster::from_wire_while(wire, &wanted).map_err(|invalid| invalid.under("cluster"))
            }
        };
        let cluster = self.imports.run("a cluster cannot be read", work).await?;
        if validate_only {
            return unstored(unstored_record(Some(name), cluster).await?).await;
        }
        whole(self.store.update_cluster(&name, cluster, digest.as_deref()).await?).await
    }
}

/// The fields that are replaced.
fn fields(paths: &[String], given: &v1::Cluster, is_file: bool) -> Result<Vec<&'static str>, Invalid> {
    let set: Vec<&str> = FIELDS.into_iter().filter(|field| is_set(given, field)).collect();
    if is_file && !set.is_empty() {
        let why = "only `name` and `etag` can be set together with `file`";
        return Err(Invalid::field("cluster", why));
    }
    let mut named = Vec::new();
    for path in paths {
        match FIELDS.into_iter().find(|field| field == path) {
            None if path == "*" => return Ok(FIELDS.to_vec()),
            Some(field) if named.contains(&field) => {}
            Some(field) => named.push(field),
            None => {
                let path: String = path.chars().take(80).collect();
                let why = format!("{path:?} cannot be changed. Use {} or *.", FIELDS.join(", "));
                return Err(Invalid::field("update_mask", why));
            }
        }
    }
    match (is_file, named.is_empty()) {
        (true, true) => Ok(FIELDS.to_vec()),
        (true, false) => {
            let why = "names fields, but `file` replaces all of them. Leave the mask empty, or use `*`.";
            Err(Invalid::field("update_mask", why))
        }
        (false, false) => Ok(named),
        (false, true) if set.is_empty() => {
            Err(Invalid::field("update_mask", "empty, and `cluster` has no content. Set one of them."))
        }
        (false, true) => Ok(set),
    }
}

fn is_set(of: &v1::Cluster, field: &str) -> bool {
    match field {
        "kinds" => !of.kinds.is_empty(),
        "nodes" => !of.nodes.is_empty(),
        "tiers" => !of.tiers.is_empty(),
        "domains" => !of.domains.is_empty(),
        _ => of.source != 0,
    }
}

/// A cluster with some fields of another one.
fn merged(stored: v1::Cluster, given: v1::Cluster, fields: &[&str]) -> v1::Cluster {
    let is_new = |field: &str| fields.contains(&field);
    v1::Cluster {
        kinds: if is_new("kinds") { given.kinds } else { stored.kinds },
        nodes: if is_new("nodes") { given.nodes } else { stored.nodes },
        tiers: if is_new("tiers") { given.tiers } else { stored.tiers },
        domains: if is_new("domains") { given.domains } else { stored.domains },
        source: if is_new("source") { given.source } else { stored.source },
        ..v1::Cluster::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_names_the_fields_that_are_replaced() {
        let paths = |of: &[&str]| of.iter().map(|&path| path.to_owned()).collect::<Vec<_>>();
        let kinds = v1::Cluster { kinds: vec![v1::DeviceKind::default()], ..v1::Cluster::default() };
        let none = v1::Cluster::default();
        assert_eq!(fields(&[], &kinds, false).unwrap(), ["kinds"]);
        assert_eq!(fields(&paths(&["tiers", "tiers"]), &kinds, false).unwrap(), ["tiers"]);
        assert_eq!(fields(&paths(&["*"]), &none, false).unwrap(), FIELDS);
        assert_eq!(fields(&[], &none, true).unwrap(), FIELDS);
        for (mask, cluster, is_file, field) in [
            (&[][..], &none, false, "update_mask"),
            (&["name"], &kinds, false, "update_mask"),
            (&["nodes"], &none, true, "update_mask"),
            (&[], &kinds, true, "cluster"),
        ] {
            let refused = fields(&paths(mask), cluster, is_file).unwrap_err();
            assert_eq!(refused.violations()[0].field, field, "{mask:?}");
        }
        let changed = merged(kinds.clone(), v1::Cluster::default(), &["nodes"]);
        assert_eq!(changed.kinds, kinds.kinds);
        assert!(merged(kinds, v1::Cluster::default(), &["kinds"]).kinds.is_empty());
    }
}
