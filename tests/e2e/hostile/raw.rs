//! A caller that can leave out or hold back whatever HTTP/2 lets it.

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::Request;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tonic::Status;
use tonic_types::StatusExt;

/// The window that HTTP/2 has unless somebody says otherwise.
const USUAL_WINDOW: u32 = 65_535;

/// One connection.
pub(crate) struct Peer {
    requests: SendRequest<Bytes>,
    ended: JoinHandle<()>,
}

/// A call that began.
pub(crate) struct Call {
    answer: ResponseFuture,
    /// Dropping it would take the call back.
    _request: SendStream<Bytes>,
}

/// `http://HOST:PORT` without its scheme.
pub(crate) fn socket(address: &str) -> &str {
    address.trim_start_matches("http://")
}

/// A message as gRPC frames it.
pub(crate) fn framed(message: &impl prost::Message) -> Vec<u8> {
    let message = message.encode_to_vec();
    let mut framed = vec![0];
    framed.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    framed.extend(message);
    framed
}

impl Peer {
    pub(crate) async fn connect(address: &str) -> Self {
        Self::with_window(address, USUAL_WINDOW).await
    }

    /// A peer that takes this many bytes of each answer and no more.
    pub(crate) async fn with_window(address: &str, window: u32) -> Self {
        let stream = TcpStream::connect(socket(address)).await.expect("the planner accepts connections");
        stream.set_nodelay(true).unwrap();
        let (requests, connection) =
            Builder::new().initial_window_size(window).handshake(stream).await.expect("HTTP/2 begins");
        let ended = tokio::spawn(async move {
            let _ = connection.await;
        });
        Self { requests, ended }
    }

    /// Begins a call with the first bytes of its request, and ends the request or not. None where the connection
    /// takes no more calls.
    pub(crate) async fn open(&self, path: &str, begin: &[u8], end: bool) -> Option<Call> {
        self.open_with(path, begin, end, None).await
    }

    pub(crate) async fn open_with(
        &self,
        path: &str,
        begin: &[u8],
        end: bool,
        timeout: Option<&str>,
    ) -> Option<Call> {
        let mut request = Request::post(format!("http://planner{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        if let Some(timeout) = timeout {
            request = request.header("grpc-timeout", timeout);
        }
        let mut ready = self.requests.clone().ready().await.ok()?;
        let (answer, mut body) = ready.send_request(request.body(()).unwrap(), false).ok()?;
        // A planner may have answered, and want no more, before that is sent: the answer tells.
        let _ = body.send_data(Bytes::copy_from_slice(begin), end);
        Some(Call { answer, _request: body })
    }

    /// Whether the planner has closed the connection.
    pub(crate) fn is_closed(&self) -> bool {
        self.ended.is_finished()
    }

    /// Resolves once the planner has closed the connection.
    pub(crate) async fn closed(self) {
        // Otherwise it would end by itself.
        let _requests = self.requests;
        let _ = self.ended.await;
    }
}

impl Call {
    /// The beginning of the answer, and the rest unread; none where the call was reset.
    pub(crate) async fn begin(self) -> Option<(http::HeaderMap, RecvStream)> {
        let (parts, body) = self.answer.await.ok()?.into_parts();
        Some((parts.headers, body))
    }

    /// How a call without an answer was refused.
    pub(crate) async fn refusal(self) -> Status {
        let (headers, _) = self.begin().await.expect("an answer");
        Status::from_header_map(&headers).expect("a refusal comes with the headers")
    }
}

/// The reason of a refusal, and whether it says when to come again.
pub(crate) fn reason(status: &Status) -> (String, bool) {
    let info = status.get_details_error_info().unwrap_or_else(|| panic!("no reason: {status}"));
    (info.reason, status.get_details_retry_info().is_some())
}
