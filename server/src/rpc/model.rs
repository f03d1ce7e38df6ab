//! `ModelService`.

use jiff::Timestamp;
use loadmaster_proto::chunks::question::ChunkQuestion;
use loadmaster_proto::error::{Invalid, required};
use loadmaster_proto::model::Model;
use loadmaster_proto::model::import::ModelSource;
use loadmaster_proto::name::ModelName;
use loadmaster_proto::wire::v1::compute_chunk_layout_request::Subject;
use loadmaster_proto::wire::v1::model_service_server::ModelService;
use loadmaster_proto::wire::{field, v1};
use loadmaster_search::Stop;
use tonic::{Request, Response, Status};

use super::blocking::blocking;
use super::error::ApiError;
use super::imports::Imports;
use super::limits::MAX_PAGE_MODELS;
use super::messages::time;
use super::page::{Listing, View, listing};
use crate::store::records::{ModelRecord, PageRequest};
use crate::store::{Store, fields};

/// What failed where a model cannot be made a message, which is done beside the calls: one may have 10,000 layers.
const SHOWING: &str = "a model cannot be shown";

/// Stores, lists and lays out models.
#[derive(Debug, Clone)]
pub(super) struct Models {
    pub(super) store: Store,
    pub(super) imports: Imports,
}

impl Imports {
    /// A model from its source as a request has it.
    ///
    /// # Errors
    /// Names the field below `source`, or too many documents are read already.
    pub(super) async fn model(&self, source: v1::ModelSource) -> Result<(ModelSource, Model), ApiError> {
        self.run("a model cannot be built", move |stop| {
            build(source, stop).map_err(|invalid| invalid.under("source"))
        })
        .await
    }
}

/// The model of a source, unless no one waits for it any more.
fn build(source: v1::ModelSource, stop: &Stop) -> Result<(ModelSource, Model), Invalid> {
    let source = ModelSource::try_from(source)?;
    let model = source.build_while(&|| !stop.is_requested())?;
    Ok((source, model))
}

impl Models {
    async fn lay_out(
        &self,
        request: v1::ComputeChunkLayoutRequest,
    ) -> Result<v1::ComputeChunkLayoutResponse, ApiError> {
        // Before a model is read or built for it.
        let question: ChunkQuestion = field("spec", request.spec.unwrap_or_default())?;
        let subject = required("model", request.subject)
            .map_err(|_| Invalid::field("model", "required, unless `source` is set"))?;
        let model = match subject {
            Subject::Model(name) => self.store.get_model(&ModelName::parse("model", &name)?).await?.model,
            Subject::Source(source) => self.imports.model(source).await?.1,
        };
        blocking("the chunks of a model cannot be computed", move || {
            let answer = question.answer(&model).map_err(|invalid| invalid.under("spec"))?;
            Ok::<_, Invalid>(answer.message(&question, &model))
        })
        .await
    }
}

fn message(record: &ModelRecord) -> v1::Model {
    v1::Model {
        name: record.name.to_string(),
        source: Some((&record.source).into()),
        create_time: Some(time(record.create_time)),
        notes: record.source.notes(),
        ..(&record.model).into()
    }
}

/// A model without its layers and without the text that it was imported from, as lists show it: a page of
/// them must fit into a message.
fn row(record: &ModelRecord) -> v1::Model {
    let model = message(record);
    let source = model.source.filter(|_| matches!(record.source, ModelSource::Zoo(_)));
    v1::Model { layers: Vec::new(), notes: Vec::new(), source, ..model }
}

fn in_view(view: View, record: &ModelRecord) -> v1::Model {
    match view {
        View::Basic => row(record),
        View::Full => message(record),
    }
}

#[tonic::async_trait]
impl ModelService for Models {
    async fn create_model(
        &self,
        request: Request<v1::CreateModelRequest>,
    ) -> Result<Response<v1::Model>, Status> {
        let request = request.into_inner();
        let source = required("source", request.source).map_err(ApiError::from)?;
        let (source, model) = self.imports.model(source).await?;
        let stored = match request.validate_only {
            true => None,
            false => Some(self.store.put_model(&model, &source).await.map_err(ApiError::from)?),
        };
        let shown = blocking(SHOWING, move || {
            // The same model may have been stored from another source.
            let notes = source.notes();
            let record = match stored {
                Some(record) => record,
                None => {
                    let name = ModelName::from_id(model.id())?;
                    ModelRecord { name, model, source, create_time: Timestamp::now() }
                }
            };
            Ok::<_, Invalid>(v1::Model { notes, ..message(&record) })
        });
        Ok(Response::new(shown.await?))
    }

    async fn get_model(&self, request: Request<v1::GetModelRequest>) -> Result<Response<v1::Model>, Status> {
        let v1::GetModelRequest { name, view } = request.into_inner();
        let name = ModelName::parse("name", &name).map_err(ApiError::from)?;
        let view = View::of_one(view).map_err(ApiError::from)?;
        let record = self.store.get_model(&name).await.map_err(ApiError::from)?;
        Ok(Response::new(blocking(SHOWING, move || Ok::<_, ApiError>(in_view(view, &record))).await?))
    }

    async fn list_models(
        &self,
        request: Request<v1::ListModelsRequest>,
    ) -> Result<Response<v1::ListModelsResponse>, Status> {
        let request = request.into_inner();
        let (listing, page) = listing!(request, "ListModels", &[], MODELS);
        let page = PageRequest { size: page.size.min(MAX_PAGE_MODELS), ..page };
        let (view, page) = View::of_list(request.view, page).map_err(ApiError::from)?;
        let page = self.store.list_models(listing.query(), &page).await.map_err(ApiError::from)?;
        let shown = blocking(SHOWING, move || {
            Ok::<_, ApiError>(listing.answer(page, |record| in_view(view, record)))
        });
        let (models, next_page_token) = shown.await?;
        Ok(Response::new(v1::ListModelsResponse { models, next_page_token }))
    }

    async fn delete_model(&self, request: Request<v1::DeleteModelRequest>) -> Result<Response<()>, Status> {
        let name = ModelName::parse("name", &request.into_inner().name).map_err(ApiError::from)?;
        self.store.delete_model(&name).await.map_err(ApiError::from)?;
        Ok(Response::new(()))
    }

    async fn compute_chunk_layout(
        &self,
        request: Request<v1::ComputeChunkLayoutRequest>,
    ) -> Result<Response<v1::ComputeChunkLayoutResponse>, Status> {
        Ok(Response::new(self.lay_out(request.into_inner()).await?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever left waits for no model, wherever it comes from.
    #[test]
    fn a_model_that_nobody_waits_for_is_not_built() {
        use v1::model_source::Source;

        let zoo = v1::ZooModel { family: "vgg11".to_owned(), ..v1::ZooModel::default() };
        let layer_list = v1::LayerList { document: "family: x".to_owned() };
        let config = v1::HuggingFaceConfig { config: "{}".to_owned(), ..Default::default() };
        for source in [Source::Zoo(zoo), Source::LayerList(layer_list), Source::HuggingFace(config)] {
            let stop = Stop::default();
            stop.request();
            let refused = build(v1::ModelSource { source: Some(source) }, &stop).unwrap_err();
            assert!(refused.to_string().contains("was cancelled"), "{refused}");
        }
    }
}
