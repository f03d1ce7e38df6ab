//! `ResumeProfile`: what an incomplete profile lacks, with the software that it began with.

use loadmaster_proto::name::ProfileName;
use loadmaster_proto::wire::longrunning::Operation;
use loadmaster_proto::wire::v1;

use super::{Profiles, software};
use crate::profile::StoredProfile;
use crate::rpc::error::ApiError;
use crate::rpc::request_key::request_key;

impl Profiles {
    pub(super) async fn resume(&self, mut request: v1::ResumeProfileRequest) -> Result<Operation, ApiError> {
        let id = std::mem::take(&mut request.request_id);
        let key = request_key(&id, &request)?;
        if let Some(first) = self.store.find_request(key.as_ref()).await? {
            return self.started(&first).await;
        }
        let name = ProfileName::parse("name", &request.name)?;
        let record = self.store.get_profile(&name).await?;
        if let Err(refused) = record.check_resumable() {
            // A twin of this call may have resumed it a moment ago.
            return match self.store.find_request(key.as_ref()).await? {
                Some(first) => self.started(&first).await,
                None => Err(refused.into()),
            };
        }
        let stored = StoredProfile::of(&self.store, &record).await?;
        let software = software::of_workers(&self.workers().await?, &stored.settings.device_kind)?;
        if let Some(software) = &software {
            software::check_same(&name, &stored.environments(), software)?;
        }
        let attempts = self.store.profile_attempts(&name).await?;
        let prepared = self.prepare(&stored.settings, stored.model, attempts, software).await?;
        let operation = self.store.resume_profile(&name, prepared.runs, &prepared.reused, key).await?;
        self.started(&operation).await
    }
}
