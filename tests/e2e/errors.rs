//! Every error says why in a way that programs can rely on, also where no service of ours was reached.

use loadmaster_proto::reason::{DOCUMENTATION, DOMAIN, Reason};
use loadmaster_proto::wire::worker_v1;
use loadmaster_proto::wire::worker_v1::session_service_client::SessionServiceClient;
use loadmaster_tests::{Planner, raw_call};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;

/// What the planner says to these bytes.
async fn refusal(channel: &Channel, path: &str, bytes: Vec<u8>) -> Status {
    raw_call(channel, path, Request::new(bytes)).await.unwrap_err()
}

fn assert_reason(status: &Status, code: Code, reason: Reason) {
    let info = status.get_details_error_info().unwrap_or_else(|| panic!("no reason: {status}"));
    assert_eq!(
        (status.code(), info.reason.as_str(), info.domain.as_str()),
        (code, reason.as_str(), DOMAIN),
        "{status}"
    );
    let links = status.get_details_help().unwrap_or_else(|| panic!("no link: {status}")).links;
    assert_eq!(links[0].url, reason.link(DOCUMENTATION));
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_the_libraries_have_reasons_too() {
    const GET: &str = "/loadmaster.v1.PlanService/GetPlan";
    let planner = Planner::start();
    let channel = planner.channel().await;
    for path in ["/loadmaster.v1.PlanService/Nonsense", "/nonsense.v1.Nonsense/Nonsense"] {
        assert_reason(&refusal(&channel, path, Vec::new()).await, Code::Unimplemented, Reason::MethodUnknown);
    }
    let garbage = refusal(&channel, GET, vec![0xff; 40]).await;
    assert_reason(&garbage, Code::InvalidArgument, Reason::MalformedRequest);
    let long = refusal(&channel, GET, vec![0; 17 << 20]).await;
    assert_reason(&long, Code::ResourceExhausted, Reason::MessageTooLarge);
    let mut request = Request::new(Vec::new());
    request.metadata_mut().insert("grpc-encoding", "gzip".parse().unwrap());
    let compressed = raw_call(&channel, GET, request).await.unwrap_err();
    assert_reason(&compressed, Code::Unimplemented, Reason::EncodingUnsupported);

    let request = HealthCheckRequest { service: "nonsense".to_owned() };
    let unknown = HealthClient::new(planner.channel().await).check(request).await.unwrap_err();
    assert_reason(&unknown, Code::NotFound, Reason::NotFound);
    // A stream that breaks off has its reason in the trailers.
    let hello = worker_v1::Hello::default();
    let first = worker_v1::WorkerMessage { message: Some(worker_v1::worker_message::Message::Hello(hello)) };
    let stream = tokio_stream::iter([first]);
    let refused = SessionServiceClient::new(planner.channel().await).connect(stream).await.unwrap_err();
    assert!(refused.get_details_error_info().is_some(), "{refused}");
}

/// A stream that does not begin is told so; it takes up nothing of what other callers may have.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_says_nothing_is_told_so() {
    let planner = Planner::start_with(&["--max-calls", "1"]);
    let mut workers = SessionServiceClient::new(planner.channel().await);
    let silent = tokio::spawn(async move { workers.connect(tokio_stream::pending()).await.unwrap_err() });
    let channel = planner.channel().await;
    for _ in 0..20 {
        let status = refusal(&channel, "/loadmaster.v1.PlanService/GetPlan", Vec::new()).await;
        assert_reason(&status, Code::InvalidArgument, Reason::InvalidField);
    }
    assert_reason(&silent.await.unwrap(), Code::DeadlineExceeded, Reason::HandshakeMissing);
}
