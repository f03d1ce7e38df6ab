//! Pages that could not be made.

use askama::Template;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tonic::{Code, Status};

use crate::pages::{Page, html};

/// Why a page could not be made.
#[derive(Debug)]
pub(crate) struct HttpError {
    status: StatusCode,
    message: String,
}

#[derive(Template)]
#[template(path = "fault.html")]
struct FaultPage<'a> {
    page: Page,
    message: &'a str,
}

impl HttpError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// What to tell of it, for people.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The reader asked for something that there cannot be.
    pub(crate) fn is_readers(&self) -> bool {
        self.status == StatusCode::BAD_REQUEST
    }
}

impl From<Status> for HttpError {
    fn from(status: Status) -> Self {
        let code = match status.code() {
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::InvalidArgument | Code::OutOfRange => StatusCode::BAD_REQUEST,
            Code::FailedPrecondition | Code::Aborted | Code::AlreadyExists => StatusCode::CONFLICT,
            Code::PermissionDenied => StatusCode::FORBIDDEN,
            Code::Unauthenticated => StatusCode::UNAUTHORIZED,
            Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            Code::Unavailable | Code::ResourceExhausted => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { status: code, message: status.message().to_owned() }
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let title = match self.status.canonical_reason() {
            Some(reason) => reason.to_owned(),
            None => "Fault".to_owned(),
        };
        let page = FaultPage { page: Page::still(title), message: &self.message };
        let mut response = html(&page).into_response();
        *response.status_mut() = self.status;
        response
    }
}
