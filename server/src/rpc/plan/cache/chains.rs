//! Profiles with their predictors, as they were read before.

use std::sync::Arc;

use loadmaster_predict::choose::PredictorKind;
use loadmaster_proto::name::ProfileName;
use loadmaster_recommend::ProfiledChain;
use tokio::sync::OnceCell;

use super::Revisions;
use crate::rpc::error::ApiError;
use crate::rpc::plan::Plans;

/// A profile's id, and the predictor that was asked for.
pub(super) type ChainKey = (String, Option<&'static str>);

/// What a profile weighs before it is read.
const UNREAD: usize = 1 << 10;

/// A profile at a revision. Whoever comes first reads it, and the others wait.
#[derive(Clone)]
pub(super) struct ChainEntry {
    revision: String,
    chain: Arc<OnceCell<(Arc<ProfiledChain>, usize)>>,
}

impl Plans {
    /// The profile of a request with its predictor: as it was read before, unless it has changed since. Where nothing is
    /// said of its revision it is read, and not kept.
    pub(in crate::rpc::plan) async fn chain(
        &self,
        name: ProfileName,
        kind: Option<PredictorKind>,
        revisions: &Revisions,
    ) -> Result<Arc<ProfiledChain>, ApiError> {
        let Some(revision) = revisions.of(&name) else {
            // Missing or unfinished: whoever reads it says which.
            return Ok(Arc::new(self.read_chain(name, kind).await?.0));
        };
        let chains = &self.memory.0.chains;
        let key = (name.id().to_owned(), kind.map(PredictorKind::as_str));
        let known = chains.get_or(
            &key,
            |known| known.revision == revision,
            UNREAD,
            || ChainEntry { revision: revision.to_owned(), chain: Arc::default() },
        );
        let read = || async {
            let (chain, bytes) = self.read_chain(name, kind).await?;
            Ok::<_, ApiError>((Arc::new(chain), bytes))
        };
        let (chain, bytes) = known.chain.get_or_try_init(read).await?;
        // The first question adds nothing to what it remembers; each later one is weighed with those before it.
        chains.weigh(&key, UNREAD + bytes + chain.predictor.remembered_bytes() + chain.known.bytes());
        Ok(Arc::clone(chain))
    }
}
