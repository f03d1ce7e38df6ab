//! Labels of nodes that say which GPUs these have.

use std::collections::BTreeMap;

use loadmaster_proto::cluster::device::CPU_KIND;

use super::pods::Pod;
use crate::StageRefusal;
use crate::question::Refused;

/// The label that NVIDIA's feature discovery gives nodes.
pub(super) const PRODUCT: &str = "nvidia.com/gpu.product";

/// Longest value of a label, characters.
const MAX_VALUE: usize = 63;

/// The label's value for each kind of GPU.
///
/// # Errors
/// A kind that has none, or two that have the same: pods of one would get nodes of the other.
pub(super) fn products(pods: &[Pod]) -> Result<BTreeMap<&str, String>, Refused> {
    let mut products: BTreeMap<&str, String> = BTreeMap::new();
    for kind in pods.iter().map(|pod| pod.kind.as_str()) {
        // The plan says nothing of these nodes, or they need no GPU.
        if kind.is_empty() || kind == CPU_KIND || products.contains_key(kind) {
            continue;
        }
        let product = product(kind);
        let same = products.iter().find(|(_, of)| **of == product);
        let why = if product.is_empty() {
            format!("has devices of kind {kind:?}, which has no letter or digit for a Kubernetes label")
        } else if let Some((other, _)) = same {
            format!(
                "has device kinds {other:?} and {kind:?}, which have the same Kubernetes label, {product:?}"
            )
        } else {
            products.insert(kind, product);
            continue;
        };
        let why = format!(
            "{why}. Rename the device kinds in the cluster, or request a plan for one kind of device"
        );
        return Err(vec![StageRefusal::of_plan(why)]);
    }
    Ok(products)
}

/// What to know of kinds whose label no one gives by himself: discovery puts hyphens for spaces, and labels that the
/// API refuses for other signs or their length are on no node.
pub(super) fn warning(products: &BTreeMap<&str, String>) -> Option<String> {
    let others = products.iter().filter(|(kind, product)| kind.replace(' ', "-") != **product);
    let named: Vec<String> = others
        .map(|(kind, product)| format!("{PRODUCT}={product} on nodes with GPUs of kind {kind:?}"))
        .collect();
    (!named.is_empty()).then(|| {
        format!(
            "the pods select nodes by labels that GPU feature discovery does not set. Add these labels: {}",
            named.join(", ")
        )
    })
}

/// A kind as a label's value, without the signs that those cannot have; empty where nothing is left.
fn product(kind: &str) -> String {
    let is_within = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
    let is_no_end = |c: char| !c.is_ascii_alphanumeric();
    let said: String = kind.replace(' ', "-").chars().filter(is_within).collect();
    let most: String = said.trim_start_matches(is_no_end).chars().take(MAX_VALUE).collect();
    most.trim_end_matches(is_no_end).to_owned()
}
