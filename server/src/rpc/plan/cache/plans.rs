//! Plans as messages, as they were made before.

use std::collections::BTreeMap;
use std::sync::Arc;

use loadmaster_proto::name::{ModelName, PlanName};
use loadmaster_proto::plan::summary::SummaryModel;
use loadmaster_proto::wire::v1;
use loadmaster_recommend::NamedPlan;
use prost::Message as _;

use crate::rpc::error::ApiError;
use crate::rpc::messages::time;
use crate::rpc::plan::cache::CachedModel;
use crate::rpc::plan::export::judged;
use crate::rpc::plan::{Plans, message};
use crate::store::records::PlanRecord;
use crate::store::{PlanGlance, StoreError, labels_etag};

/// How much more a message takes than its bytes on the wire: strings and lists have room, numbers have all their bytes.
const IN_MEMORY: usize = 4;

impl Plans {
    /// A plan with its newest trials and reports. One small query tells whether there are any, and where there are
    /// none a plan that was shown before is known.
    pub(in crate::rpc) async fn whole(&self, name: &PlanName) -> Result<v1::Plan, ApiError> {
        self.at_a_glance(name, self.store.glance_at_plan(name).await?).await
    }

    /// The same of a plan that answers a question once more.
    pub(in crate::rpc::plan) async fn asked_again(&self, name: &PlanName) -> Result<v1::Plan, ApiError> {
        self.at_a_glance(name, self.store.ask_plan_again(name).await?).await
    }

    async fn at_a_glance(&self, name: &PlanName, glance: PlanGlance) -> Result<v1::Plan, ApiError> {
        let plan = self.without_labels(name, &glance).await?;
        let etag = labels_etag(&glance.labels);
        Ok(v1::Plan { labels: glance.labels.into_iter().collect(), etag, ..plan })
    }

    /// Labels change: they are kept with no plan.
    async fn without_labels(&self, name: &PlanName, glance: &PlanGlance) -> Result<v1::Plan, ApiError> {
        if glance.is_trained {
            return self.with_trials(&self.store.get_plan(name).await?).await;
        }
        let create_time = Some(time(glance.create_time));
        let known = self.memory.0.plans.get(&name.id().to_owned());
        // One that was deleted and is found again has another time.
        match known.filter(|plan| plan.create_time == create_time) {
            Some(plan) => Ok((*plan).clone()),
            None => self.untrained(&self.store.get_plan(name).await?).await,
        }
    }

    /// Stores a plan with those that it names.
    pub(in crate::rpc::plan) async fn stored(
        &self,
        others: Vec<NamedPlan>,
        plan: NamedPlan,
    ) -> Result<v1::Plan, ApiError> {
        let mut all = others;
        all.push(plan);
        let stored = self.store.put_plans(&all).await?;
        let (Some((name, content)), Some(put)) = (all.pop(), stored.last()) else {
            return Err(StoreError::Internal("the database did not return a stored plan".to_owned()).into());
        };
        if put.is_new {
            let record = PlanRecord { name, content, create_time: put.create_time };
            Ok(v1::Plan { etag: labels_etag(&BTreeMap::new()), ..self.untrained(&record).await? })
        } else {
            self.whole(&name).await
        }
    }

    /// A plan that no one trained, which is kept.
    async fn untrained(&self, record: &PlanRecord) -> Result<v1::Plan, ApiError> {
        let model = self.cached_model(&record.content.model).await?;
        let plan = message::plan(record, &model.layer_names, &[]);
        let subject = match record.content.asked.framework {
            Some(_) => Some(self.store.get_subject(&record.content.model).await?),
            None => None,
        };
        let plan = judged(plan, record, subject.as_ref(), &model.summary);
        let weight = IN_MEMORY.saturating_mul(plan.encoded_len());
        self.memory.0.plans.put(record.name.id().to_owned(), Arc::new(plan.clone()), weight);
        Ok(plan)
    }

    /// The names of a model's layers, and its sizes.
    pub(in crate::rpc::plan) async fn cached_model(
        &self,
        model: &ModelName,
    ) -> Result<Arc<CachedModel>, ApiError> {
        let kept = &self.memory.0.models;
        let id = model.id().to_owned();
        if let Some(known) = kept.get(&id) {
            return Ok(known);
        }
        let subject = self.store.get_subject(model).await?;
        let summary = SummaryModel::of(subject.model().ok(), &id);
        let cached = Arc::new(CachedModel { layer_names: subject.layer_names(), summary });
        let names = cached.layer_names.iter().map(|name| name.len() + size_of::<String>());
        kept.put(id, Arc::clone(&cached), size_of::<CachedModel>() + names.sum::<usize>());
        Ok(cached)
    }
}
