//! `ServerService`: versions, limits and enabled features of this planner.

use std::time::Duration;

use jiff::Timestamp;
use loadmaster_predict::choose::PredictorKind;
use loadmaster_proto::choice::Choice as _;
use loadmaster_proto::wire::v1::server_service_server::ServerService;
use loadmaster_proto::wire::{ToWire, v1};
use loadmaster_proto::{MAX_MESSAGE_BYTES, WORKER_PROTOCOL_VERSION};
use tonic::{Request, Response, Status};

use super::limits::{
    DEFAULT_PAGE_ROWS, MAX_LONG_SEARCH_TIME, MAX_OPERATION_WAIT, MAX_PAGE_BYTES, MAX_PAGE_ROWS,
    MAX_SEARCH_TIME,
};
use super::messages::{count, time};
use super::transport::timeout::CALL_TIMEOUT;
use super::transport::{Limits, searches};

/// Settings of the planner's process that clients may read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    /// The database is a private server in the data directory.
    pub embedded_database: bool,
    /// Pages for browsers are served.
    pub web: bool,
    /// A schedule deletes old rows.
    pub retention: bool,
}

/// Returns information about this planner.
#[derive(Debug, Clone)]
pub(super) struct StatusService {
    info: v1::ServerInfo,
}

impl StatusService {
    /// Of a planner that starts now.
    pub(super) fn new(settings: Settings, reflection: bool, limits: Limits) -> Self {
        let Settings { embedded_database, web, retention } = settings;
        let features = [
            ("embedded-database", embedded_database),
            ("reflection", reflection),
            ("retention", retention),
            ("web", web),
        ];
        let database = if embedded_database {
            v1::server_info::Database::Embedded
        } else {
            v1::server_info::Database::External
        };
        let predictors = PredictorKind::all().iter().map(|&kind| v1::PredictorVersion {
            kind: kind.to_wire(),
            version: kind.versioned_name().to_owned(),
        });
        let info = v1::ServerInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            api_version: "v1".to_owned(),
            worker_protocol_version: WORKER_PROTOCOL_VERSION,
            start_time: Some(time(Timestamp::now())),
            database: database.into(),
            limits: Some(server_limits(limits)),
            features: features
                .iter()
                .filter(|(_, is_on)| *is_on)
                .map(|(name, _)| (*name).to_owned())
                .collect(),
            predictors: predictors.collect(),
        };
        Self { info }
    }
}

fn server_limits(limits: Limits) -> v1::ServerLimits {
    let bytes = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
    let number = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    let duration = |duration: Duration| prost_types::Duration::try_from(duration).ok();
    v1::ServerLimits {
        message_bytes: bytes(MAX_MESSAGE_BYTES),
        default_page_size: count(DEFAULT_PAGE_ROWS),
        max_page_size: count(MAX_PAGE_ROWS),
        page_bytes: bytes(MAX_PAGE_BYTES),
        call_deadline: duration(CALL_TIMEOUT),
        operation_wait: duration(MAX_OPERATION_WAIT),
        search_time: duration(MAX_SEARCH_TIME),
        long_search_time: duration(MAX_LONG_SEARCH_TIME),
        concurrent_search_limit: number(searches()),
        concurrent_call_limit: number(limits.calls),
    }
}

#[tonic::async_trait]
impl ServerService for StatusService {
    async fn get_server_info(
        &self,
        _: Request<v1::GetServerInfoRequest>,
    ) -> Result<Response<v1::ServerInfo>, Status> {
        Ok(Response::new(self.info.clone()))
    }
}
