//! `ExportPlan` and `ListFrameworks`.

use jiff::Timestamp;
use loadmaster_filter::{Field, Value};
use loadmaster_launchers::{
    Added, Allocation, AskedDevices, Export, ExportQuestion, Exporter, Manifest, ManifestSettings, NodeGroup,
    Proof, RankPlace, Refusal, StageMemory, Target, Variant, Verified, Version, Wrapping, export, exporters,
    manifests, variants, wrap,
};
use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::choice::Choice;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::model::Model;
use loadmaster_proto::model::import::ROTARY_NOTE;
use loadmaster_proto::name::{PlacementName, PlanName};
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::plan::placement::Placement;
use loadmaster_proto::plan::summary::{self, StagePeak, SummaryModel};
use loadmaster_proto::profile::document::Subject;
use loadmaster_proto::warning::{WarningCode, sent};
use loadmaster_proto::wire::{field, v1};

use super::Plans;
use super::message::number;
use crate::rpc::error::ApiError;
use crate::rpc::page::Listing;
use crate::store::StoreError;
use crate::store::fields;
use crate::store::records::{Cursor, PlanRecord, Positioned};

impl Plans {
    pub(super) async fn exported(
        &self,
        request: v1::ExportPlanRequest,
    ) -> Result<v1::ExportPlanResponse, ApiError> {
        let name = PlanName::parse("name", &request.name)?;
        let named: Option<Framework> = field("framework", request.framework)?;
        let variant: Option<Variant> = field("variant", request.variant)?;
        let manifest: Option<Manifest> = field("manifest", request.manifest)?;
        let settings = settings(request.manifest_options.unwrap_or_default());
        let mut wrapping = Wrapping::of(manifest.unwrap_or_default(), &name, settings)?;
        let mut record = self.store.get_plan(&name).await?;
        let placement = Some(request.placement.as_str()).filter(|placement| !placement.is_empty());
        if let Some(placement) = placement {
            let placement = PlacementName::parse("placement", placement)?;
            let bound = self.store.get_placement(&placement).await?.content;
            put_on(&mut record.content, &name, &placement, bound)?;
            wrapping = wrapping.on_placement()?;
        }
        let (target, named) = target(&record, named, &request.framework_version)?;
        let subject = self.store.get_subject(&record.content.model).await?;
        let model = match &subject {
            Subject::Known(model) => Some(model),
            Subject::Opaque(_) => None,
        };
        let variant = variant.unwrap_or_default();
        let question = ExportQuestion { name: &name, plan: &record.content, model, target, named, variant };
        let made =
            export(&question).and_then(|made| wrap(made, &wrapping)).map_err(ApiError::NotExportable)?;
        let ledger = record.content.ledger;
        let mut answer = message(&name, made, ledger);
        let left_out = self.left_out(&record.content, model).await?;
        answer
            .warnings
            .extend(left_out.into_iter().map(|why| WarningCode::ModelSourceIncomplete.says(why).into()));
        Ok(v1::ExportPlanResponse { placement: request.placement, ..answer })
    }

    /// What the source of a plan's model says and the model leaves out, human-readable; of what the model keeps exports warn themselves.
    async fn left_out(&self, plan: &Plan, model: Option<&Model>) -> Result<Vec<String>, ApiError> {
        let Some(model) = model else { return Ok(Vec::new()) };
        let mut notes = match self.store.get_model(&plan.model).await {
            Ok(record) => record.source.notes(),
            // It was deleted meanwhile.
            Err(StoreError::NotFound { .. } | StoreError::Conflict) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        notes.retain(|note| model.numerics().rotary_scaling.is_none() || !note.starts_with(ROTARY_NOTE));
        Ok(notes)
    }

    /// Why the framework that a plan was recommended for cannot run it all the same: frameworks know models of some kinds alone. None
    /// where it can, where none was named, or of a chain of layers that no framework is told.
    pub(super) async fn not_exportable(
        &self,
        name: &PlanName,
        plan: &Plan,
    ) -> Result<Option<String>, ApiError> {
        if plan.asked.framework.is_none() {
            return Ok(None);
        }
        let model = match self.store.get_subject(&plan.model).await {
            Ok(Subject::Known(model)) => model,
            // Of a profile that came with the request nothing may be stored.
            Ok(Subject::Opaque(_)) | Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let made = own_export(name, plan, Some(&model));
        Ok(made.and_then(Result::err).map(|refusal| refusal.to_string()))
    }
}

/// Adds the summary of a plan. Of one for a framework, it sets the verdict to that of the plan's own export, with the export's
/// warnings about memory. A plan that names no framework, or that its framework cannot run, keeps the verdict of its predicted bytes.
pub(super) fn judged(
    mut plan: v1::Plan,
    record: &PlanRecord,
    subject: Option<&Subject>,
    summary_model: &SummaryModel,
) -> v1::Plan {
    let PlanRecord { name, content, .. } = record;
    let model = match subject {
        Some(Subject::Known(model)) => Some(model),
        Some(Subject::Opaque(_)) | None => None,
    };
    let mut peaks = None;
    if let Some(Ok(made)) = own_export(name, content, model) {
        plan.verdict = v1::Verdict::from(made.verdict()).into();
        plan.warnings.extend(sent(&made.memory_warnings(content)));
        let peak = |(stage, of): (usize, &StageMemory)| StagePeak {
            stage,
            peak: of.total().to_wire(),
            high: of.most().map(Bytes::to_wire),
            capacity: of.capacity.map(Bytes::to_wire),
        };
        peaks = made.memory.map(|stages| stages.iter().enumerate().map(peak).collect());
    }
    plan.summary = Some(summary::of_plan(&plan, summary_model, peaks));
    plan
}

/// Exports a plan for the framework that it was recommended for, or says why that cannot run it; none where it names no framework
/// that exports are made for.
fn own_export(name: &PlanName, plan: &Plan, model: Option<&Model>) -> Option<Result<Export, Box<Refusal>>> {
    let framework = plan.asked.framework?;
    let target = known(framework, &plan.asked.framework_version).or_else(|_| known(framework, ""));
    let (target, named) = target.ok()?;
    let variant = Variant::default();
    Some(export(&ExportQuestion { name, plan, model, target, named, variant }))
}

/// Puts a plan on the devices of a placement.
///
/// # Errors
/// The placement is of another plan.
fn put_on(
    plan: &mut Plan,
    name: &PlanName,
    placement: &PlacementName,
    bound: Placement,
) -> Result<(), Invalid> {
    if bound.plan != *name {
        return Err(Invalid::field("placement", format!("{placement} belongs to {}", bound.plan)));
    }
    for (stage, devices) in plan.stages.iter_mut().zip(bound.stages) {
        let least = devices.iter().map(|device| device.capacity).filter(|&capacity| capacity > 0).min();
        stage.capacity = least.unwrap_or(stage.capacity);
        stage.devices = devices;
    }
    Ok(())
}

fn settings(options: v1::ManifestOptions) -> ManifestSettings {
    let v1::ManifestOptions {
        image,
        namespace,
        name,
        queue,
        required_topology,
        preferred_topology,
        stage_topology,
    } = options;
    ManifestSettings { image, namespace, name, queue, required_topology, preferred_topology, stage_topology }
}

/// The framework that is asked for or else the plan's, in a version that exports are known for; and the version that was named.
fn target(
    record: &PlanRecord,
    named: Option<Framework>,
    version: &str,
) -> Result<(Target, Option<Version>), Invalid> {
    let asked = &record.content.asked;
    let Some(framework) = named.or(asked.framework) else {
        let why = "required, because the plan was not recommended for a framework. Name the framework that will run \
                   the plan.";
        return Err(Invalid::field("framework", why));
    };
    let is_the_plans = asked.framework == Some(framework);
    if version.is_empty() && is_the_plans {
        // What a request for a plan named may be anything.
        return known(framework, &asked.framework_version).or_else(|_| known(framework, ""));
    }
    known(framework, version)
}

fn known(framework: Framework, version: &str) -> Result<(Target, Option<Version>), Invalid> {
    let named = Some(version).filter(|version| !version.is_empty());
    Ok((Target::of(framework, version)?, named.map(str::parse).transpose()?))
}

fn message(name: &PlanName, export: Export, ledger: Accounting) -> v1::ExportPlanResponse {
    let verdict = export.verdict();
    let Export {
        target,
        files,
        command,
        runs_once,
        environment,
        ranks,
        allocation,
        warnings,
        verified,
        proof,
        memory,
    } = export;
    let files = files.into_iter().map(|file| v1::ExportedFile {
        name: file.name,
        media_type: file.media_type.to_owned(),
        contents: file.contents,
    });
    v1::ExportPlanResponse {
        placement: String::new(),
        plan: name.to_string(),
        framework: target.framework.word().to_owned(),
        framework_version: target.version.to_string(),
        files: files.collect(),
        command,
        environment: environment.into_iter().collect(),
        ranks: ranks.into_iter().map(place).collect(),
        warnings: sent(&warnings),
        verified: v1::ExportVerified::from(verified).into(),
        proof: proof.map(proved_with),
        run_once: runs_once,
        allocation: Some(asked_of_schedulers(allocation)),
        stage_memory: memory
            .iter()
            .flatten()
            .zip(0..)
            .map(|(of, stage)| stage_memory(of, stage, ledger))
            .collect(),
        verdict: v1::Verdict::from(verdict).into(),
    }
}

fn proved_with(Proof { package, version, is_framework }: Proof) -> v1::ExportProof {
    v1::ExportProof {
        package_name: package.to_owned(),
        package_version: version.to_owned(),
        framework_package: is_framework,
    }
}

fn stage_memory(of: &StageMemory, stage: i32, ledger: Accounting) -> v1::ExportedStageMemory {
    let added = |Added { cause, bytes, counted }: &Added| v1::AddedMemory {
        cause: v1::AddedMemoryCause::from(*cause).into(),
        bytes: bytes.to_wire(),
        explanation: counted.clone(),
    };
    v1::ExportedStageMemory {
        stage,
        predicted_bytes: of.predicted.to_wire(),
        added_memory: of.added.iter().map(added).collect(),
        total_bytes: of.total().to_wire(),
        upper_bytes: of.most().map(Bytes::to_wire),
        capacity_bytes: of.capacity.map(Bytes::to_wire),
        verdict: v1::Verdict::from(of.verdict()).into(),
        accounting: v1::MemoryAccounting::from(ledger).into(),
    }
}

fn asked_of_schedulers(Allocation { nodes, localities }: Allocation) -> v1::Allocation {
    let devices = |AskedDevices { count, kind, capacity }| v1::DeviceGroup {
        count: number(count),
        capacity_bytes: Bytes(capacity).to_wire(),
        kind,
    };
    let nodes = nodes.into_iter().map(|NodeGroup { count, devices: of }| v1::NodeGroup {
        count: number(count),
        devices: of.into_iter().map(devices).collect(),
    });
    let localities = localities.into_iter().map(|of| v1::StageLocality {
        stage: number(of.stage),
        rank_count: number(of.ranks),
        locality: v1::Locality::from(of.within).into(),
    });
    v1::Allocation { nodes: nodes.collect(), localities: localities.collect() }
}

fn place(place: RankPlace) -> v1::RankPlace {
    v1::RankPlace {
        rank: number(place.rank),
        stage: number(place.stage),
        replica: number(place.replica),
        shard: number(place.shard),
        device: place.device.as_ref().map(Into::into),
    }
}

/// The frameworks and versions that exports are made for: those that are asked for.
pub(super) fn all(request: &v1::ListFrameworksRequest) -> Result<v1::ListFrameworksResponse, Invalid> {
    let asked = (request.filter.as_str(), request.order_by.as_str());
    let listing = Listing::of("ListFrameworks", &[], fields::EXPORTERS, asked)?;
    let page = listing.request(request.page_size, &request.page_token)?;
    let query = listing.query();
    let fits = |(_, of): &(usize, &Exporter)| {
        query.condition.as_ref().is_none_or(|asked| asked.holds(&|field, _| value(field, of)))
    };
    let rows = exporters().iter().enumerate().filter(fits).collect();
    let rows = query.sorted(rows, |(_, of), field| value(field, of));
    let (frameworks, next_page_token) = listing.answer(page.page_of_all(rows)?, |(_, of)| exporter(of));
    Ok(v1::ListFrameworksResponse { frameworks, next_page_token })
}

/// An exporter with its position among all.
impl Positioned for (usize, &Exporter) {
    fn cursor(&self) -> Cursor {
        Cursor { keys: Vec::new(), time: Timestamp::UNIX_EPOCH, id: self.0.to_string() }
    }
}

/// What a filter may ask of one.
fn value(field: &Field, of: &Exporter) -> Option<Value> {
    let text = |text: &str| Some(Value::Text(text.to_owned()));
    let words = |words: Vec<&str>| Some(words.join(",")).filter(|all| !all.is_empty()).map(Value::Text);
    let framework = of.target.framework;
    match field.name {
        "framework" => text(framework.word()),
        "first_version" => text(&of.target.version.to_string()),
        "description" => text(of.writes),
        "verified" => text(match of.verified {
            Verified::None => "none",
            Verified::Parsed => "parsed",
            Verified::Built => "built",
            Verified::Trained => "trained",
        }),
        "variants" => words(variants(framework).iter().map(|of| of.word()).collect()),
        "manifests" => words(manifests(framework).map(|of| of.word()).collect()),
        _ => None,
    }
}

fn exporter(of: &Exporter) -> v1::Framework {
    let framework = of.target.framework;
    v1::Framework {
        id: framework.word().to_owned(),
        first_version: of.target.version.to_string(),
        description: of.writes.to_owned(),
        verified: v1::ExportVerified::from(of.verified).into(),
        proof: of.proof.map(proved_with),
        variants: variants(framework).iter().map(|of| of.word().to_owned()).collect(),
        manifests: manifests(framework).map(|of| of.word().to_owned()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(filter: &str, order_by: &str) -> Result<Vec<(String, String)>, Invalid> {
        let mut request = v1::ListFrameworksRequest {
            filter: filter.to_owned(),
            order_by: order_by.to_owned(),
            page_size: 7,
            page_token: String::new(),
        };
        let named = |of: &v1::Framework| (of.id.clone(), of.first_version.clone());
        let mut found = Vec::new();
        loop {
            let page = all(&request)?;
            assert!(page.frameworks.len() <= 7);
            found.extend(page.frameworks.iter().map(named));
            request.page_token = page.next_page_token;
            if request.page_token.is_empty() {
                return Ok(found);
            }
        }
    }

    /// The ids that `--help` explains are those that this crate's planner has.
    #[test]
    fn manifests_and_variants_have_help() {
        use loadmaster_show::choice::{Ids, MANIFESTS, VARIANTS};

        let ids = |of: Ids| of.iter().map(|&(id, _)| id).collect::<Vec<_>>();
        assert_eq!(ids(MANIFESTS), Manifest::words().collect::<Vec<_>>());
        assert_eq!(ids(VARIANTS), Variant::words().collect::<Vec<_>>());
    }

    /// Exporters are asked for like everything else, and stay in their order where none is asked for.
    #[test]
    fn exporters_are_found_and_ordered_by_what_they_say() {
        let every = asked("", "").unwrap();
        assert_eq!(every.len(), exporters().len());
        let found = asked("framework = torchtitan", "").unwrap();
        let of_titan = |of: &&(String, String)| of.0 == "torchtitan";
        assert_eq!(found, every.iter().filter(of_titan).cloned().collect::<Vec<_>>());
        assert!(found.len() > 1, "{found:?}");
        assert_eq!(asked("NOT framework = torchtitan", "").unwrap().len(), every.len() - found.len());
        let newest = asked("framework = torchtitan", "first_version desc").unwrap();
        assert!(newest.is_sorted_by(|one, next| one.1 > next.1), "{newest:?}");
        let by_ray = asked("manifests:ray", "framework").unwrap();
        assert!(!by_ray.is_empty() && by_ray.len() < every.len(), "{by_ray:?}");
        let proved = asked("verified = trained OR verified = built", "").unwrap();
        assert!(!proved.is_empty() && proved.len() < every.len(), "{proved:?}");
        assert!(!asked("variants:hybrid", "").unwrap().is_empty());
        let wrong = |filter, order_by| asked(filter, order_by).unwrap_err().violations()[0].clone();
        let of_filter = wrong("framework = megatron AND version = 1", "");
        assert_eq!(of_filter.field, "filter");
        assert!(of_filter.description.contains("at character 26"), "{of_filter:?}");
        let of_order = wrong("", "framework, proof");
        assert_eq!(of_order.field, "order_by");
        assert!(of_order.description.contains("at character 12"), "{of_order:?}");
    }
}
