//! `CreatePlacement`, `GetPlacement` and `ListPlacements`.

use std::collections::BTreeSet;
use std::sync::Arc;

use loadmaster_predict::choose::PredictorKind;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::Cluster;
use loadmaster_proto::error::{Invalid, in_range};
use loadmaster_proto::name::{ClusterName, PlacementName, PlanName, ProfileName};
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::placement::Placement;
use loadmaster_proto::plan::scheduler_nodes::GivenNodes;
use loadmaster_proto::warning::WarningCode;
use loadmaster_proto::wire::v1;
use loadmaster_recommend::{Placement as RankOrder, PlacementProblem, ProfiledChain, usual_kinds};
use loadmaster_search::fleet::{GivenFleet, described, of_given};

use super::Plans;
use super::search::SearchTerms;
use crate::rpc::error::ApiError;
use crate::rpc::messages::time;
use crate::rpc::page::{Listing, View, listing, read_each};
use crate::store::records::{PlacementRecord, PlacementRow};
use crate::store::{StoreError, fields};

/// Seconds that nodes are put in order for, where the call allows as many.
const SECONDS: f64 = 10.0;

/// Most idle devices that are named.
const MOST_IDLE: usize = 1_000;

/// Most profiles of other kinds of devices.
const MAX_PROFILES: usize = 32;

/// What describes the nodes of a request.
enum Describes {
    /// A cluster.
    Stored(ClusterName, Arc<loadmaster_search::fleet::PlannedFleet>),
    /// The request itself.
    Request(Cluster),
}

impl Plans {
    /// Puts a plan on the nodes of a request.
    pub(super) async fn bind(
        &self,
        request: v1::CreatePlacementRequest,
        terms: &SearchTerms,
    ) -> Result<v1::Placement, ApiError> {
        let v1::CreatePlacementRequest { plan, nodes, node_list, cluster, other_profiles, validate_only } =
            request;
        let name = PlanName::parse("plan", &plan)?;
        let given = GivenNodes::of(nodes, &node_list)?;
        let asked = Some(cluster.as_str()).filter(|cluster| !cluster.is_empty());
        let asked = asked.map(|cluster| ClusterName::parse("cluster", cluster)).transpose()?;
        let others = other_names(&other_profiles)?;
        let plan = self.store.get_plan(&name).await?.content;
        let describes = self.describes(&plan, &given, asked).await?;
        let (chains, unread) = self.chains_of(&plan, others).await?;
        let work = move |stop: &_| {
            let cluster = match &describes {
                Describes::Stored(_, fleet) => fleet.cluster(),
                Describes::Request(cluster) => Some(cluster),
            };
            let kinds = usual_kinds(&plan);
            let kinds: Vec<&str> = kinds.keys().copied().collect();
            let Some(cluster) = cluster else {
                return Err(ApiError::Defect { failed: "the plan cannot be placed".to_owned() });
            };
            let GivenFleet { fleet, others } =
                of_given(cluster, &given.nodes, &kinds).map_err(|invalid| given.told(invalid))?;
            // What a request says of nodes is not how they copy.
            let fleet = match &describes {
                Describes::Stored(..) => fleet.with_cluster(cluster.clone()),
                Describes::Request(_) => fleet,
            };
            let question = PlacementProblem { plan, chains, fleet };
            let bound = question.answer(stop).map_err(ApiError::NotBindable)?;
            let cluster = match describes {
                Describes::Stored(name, _) => Some(name),
                Describes::Request(_) => None,
            };
            Ok(placement(name, cluster, &question, bound, &others, unread))
        };
        let (placement, _) = self.searches.run(terms, terms.limit(SECONDS), work).await?;
        let name = placement.name()?;
        if validate_only {
            return Ok(v1::Placement { name: name.to_string(), ..(&placement).into() });
        }
        Ok(message(&self.store.put_placement(&name, &placement).await?))
    }

    /// One placement.
    pub(super) async fn placement(
        &self,
        request: &v1::GetPlacementRequest,
    ) -> Result<v1::Placement, ApiError> {
        let name = PlacementName::parse("name", &request.name)?;
        let view = View::of_one(request.view)?;
        let whole = message(&self.store.get_placement(&name).await?);
        Ok(match view {
            View::Basic => v1::Placement { stages: Vec::new(), idle_devices: Vec::new(), ..whole },
            View::Full => whole,
        })
    }

    /// A page of placements.
    pub(super) async fn placements(
        &self,
        request: v1::ListPlacementsRequest,
    ) -> Result<v1::ListPlacementsResponse, ApiError> {
        let plan = Some(request.plan.as_str()).filter(|plan| !plan.is_empty());
        let plan = plan.map(|plan| PlanName::parse("plan", plan)).transpose()?;
        let (listing, page) = listing!(request, "ListPlacements", &[&request.plan], PLACEMENTS);
        if let Some(plan) = &plan {
            // An empty list of a plan that does not exist would look like a plan that no one bound.
            self.store.get_plan(plan).await?;
        }
        let (view, page) = View::of_list(request.view, page)?;
        let page = self.store.list_placements(plan.as_ref(), listing.query(), &page).await?;
        let (placements, next_page_token) = match view {
            View::Basic => listing.answer(page, in_short),
            View::Full => read_each!(listing, page, |row| {
                let record = self.store.get_placement(&row.record.name).await;
                record.map(|record| message(&record)).map_err(ApiError::from)
            }),
        };
        Ok(v1::ListPlacementsResponse { placements, next_page_token })
    }

    /// What describes the nodes: the cluster that is named, else the plan's, else, and where a node says the kind of its devices,
    /// the request.
    async fn describes(
        &self,
        plan: &Plan,
        given: &GivenNodes,
        asked: Option<ClusterName>,
    ) -> Result<Describes, ApiError> {
        let is_plans_own = asked.is_none();
        let own_kind = given.nodes.iter().position(|node| node.kind.is_some());
        let cluster = match (asked, own_kind) {
            (Some(cluster), Some(index)) => {
                let why = format!(
                    "not valid together with {cluster}, which defines the device kinds. Remove this field, or \
                     `cluster`."
                );
                return Err(Invalid::field(format!("nodes[{index}].device_kind"), why).into());
            }
            (Some(cluster), None) => Some(cluster),
            (None, Some(_)) => None,
            (None, None) => plan.asked.cluster.clone(),
        };
        let Some(cluster) = cluster else {
            let usual: Vec<(&str, Option<Bytes>)> = usual_kinds(plan).into_iter().collect();
            let cluster = described(&given.nodes, &usual).map_err(|invalid| given.told(invalid))?;
            return Ok(Describes::Request(cluster));
        };
        if let Some(index) = given.nodes.iter().position(|node| node.memory.is_some()) {
            let why = format!(
                "not valid together with {cluster}, which defines the memory sizes. Remove this field, or set \
                 `device_kind` of the nodes and no `cluster`."
            );
            return Err(Invalid::field(format!("nodes[{index}].memory_bytes"), why).into());
        }
        let revisions = self.revisions(&[], Some(&cluster)).await?;
        let fleet = self.fleet(&cluster, &[], &revisions).await.map_err(|error| match error {
            ApiError::Store(StoreError::NotFound { .. }) if is_plans_own => {
                let why = format!(
                    "not set, and {cluster}, which the plan was made for, was deleted. Name another cluster, or set \
                     `device_kind` of each node."
                );
                Invalid::field("cluster", why).into()
            }
            error => error,
        })?;
        Ok(Describes::Stored(cluster, fleet))
    }

    /// The profiles that a plan's seconds follow from, or why they cannot be read: then it is bound without seconds. Those that a
    /// request names have to be there.
    async fn chains_of(
        &self,
        plan: &Plan,
        named: Vec<ProfileName>,
    ) -> Result<(Vec<Arc<ProfiledChain>>, Option<String>), ApiError> {
        let is_named = !named.is_empty();
        let others = if is_named { named } else { plan.other_profiles.clone() };
        // `component/4` is what the kind `component` made.
        let kind = plan.predictor.split('/').next().and_then(|kind| kind.parse::<PredictorKind>().ok());
        let mut names = vec![plan.profile.clone()];
        names.extend(others);
        let revisions = self.revisions(&names, None).await?;
        let mut chains = Vec::with_capacity(names.len());
        for (index, name) in names.into_iter().enumerate() {
            let (is_own, told) = (index == 0, name.to_string());
            let read = match self.chain(name, kind, &revisions).await {
                // What was never one of the profile's family stays what it is.
                Ok(chain) => Ok(self.for_model_of(plan, Arc::clone(&chain)).await.unwrap_or(chain)),
                Err(error) => Err(error),
            };
            match read {
                Ok(chain) if chain.model_name == plan.model => chains.push(chain),
                Ok(chain) if is_named && !is_own => {
                    let why = format!(
                        "is a profile of {}, but the plan is for {}. Use profiles of the plan's model.",
                        chain.model_name, plan.model
                    );
                    return Err(
                        Invalid::field(format!("other_profiles[{}]", index.saturating_sub(1)), why).into()
                    );
                }
                // Another than when the plan was made.
                Ok(chain) => return Ok((Vec::new(), Some(format!("{told} is now of {}", chain.model_name)))),
                Err(error) if is_named && !is_own => return Err(error),
                Err(error) => return Ok((Vec::new(), Some(format!("{told} cannot be read: {error}")))),
            }
        }
        Ok((chains, None))
    }
}

fn other_names(names: &[String]) -> Result<Vec<ProfileName>, Invalid> {
    in_range("other_profiles", names.len(), 0..=MAX_PROFILES)?;
    let name =
        |(index, name): (usize, &String)| ProfileName::parse(&format!("other_profiles[{index}]"), name);
    names.iter().enumerate().map(name).collect()
}

fn placement(
    plan: PlanName,
    cluster: Option<ClusterName>,
    question: &PlacementProblem,
    bound: RankOrder,
    others: &[String],
    unread: Option<String>,
) -> Placement {
    let PlacementProblem { plan: content, fleet, .. } = question;
    let taken: BTreeSet<u32> = bound.stages.iter().flatten().copied().collect();
    let names = fleet.names();
    let unranked =
        || (0_u32..).zip(&names).filter(|(device, _)| !taken.contains(device)).map(|(_, name)| name);
    let idle = || unranked().chain(others).cloned();
    let gap = bound.gap();
    let mut warnings = bound.notes;
    warnings.extend(unread.map(|why| WarningCode::ProfileUnreadable.says(why)));
    let left = idle().count();
    if left > 0 {
        let all = names.len().saturating_add(others.len());
        let why = format!("{left} of the {all} given devices have no rank");
        warnings.push(WarningCode::DevicesIdle.says(why));
    }
    Placement {
        plan,
        cluster,
        stages: bound
            .stages
            .iter()
            .map(|devices| devices.iter().map(|&device| fleet.placed(device)).collect())
            .collect(),
        idle: idle().take(MOST_IDLE).collect(),
        seconds: bound.seconds,
        planned: content.iteration_seconds(),
        least: bound.least,
        is_proven: bound.is_proven,
        gap,
        links: fleet.link_origins(),
        warnings,
    }
}

fn message(record: &PlacementRecord) -> v1::Placement {
    v1::Placement {
        name: record.name.to_string(),
        create_time: Some(time(record.create_time)),
        ..(&record.content).into()
    }
}

fn in_short(row: &PlacementRow) -> v1::Placement {
    v1::Placement {
        name: row.record.name.to_string(),
        create_time: Some(time(row.record.create_time)),
        nodes: row.nodes.clone(),
        ..row.record.content.in_short()
    }
}
