//! Calls that are begun and not ended.

use futures_util::future::join_all;
use loadmaster_proto::wire::longrunning::WaitOperationRequest;
use loadmaster_proto::wire::worker_v1;
use loadmaster_proto::wire::worker_v1::planner_message::Message as FromPlanner;
use loadmaster_proto::wire::worker_v1::session_service_client::SessionServiceClient;
use loadmaster_proto::wire::worker_v1::worker_message::Message as FromWorker;
use loadmaster_tests::{Planner, hello};
use tonic::Code;
use tonic_types::StatusExt;

use super::meter::Others;
use super::raw::{Peer, framed, reason};

const GET_PLAN: &str = "/loadmaster.v1.PlanService/GetPlan";
const CONNECT: &str = "/loadmaster.worker.v1.SessionService/Connect";
const WAIT: &str = "/google.longrunning.Operations/WaitOperation";

/// 2,000 requests that never end, eight times what is answered at once, from the address of everybody else.
#[tokio::test(flavor = "multi_thread")]
async fn half_sent_calls_lock_nobody_out_and_end_with_a_reason() {
    let planner = Planner::start();
    let others = Others::of(&planner);
    let mut held = Vec::new();
    let mut peers = Vec::new();
    for _ in 0..40 {
        let peer = Peer::connect(planner.address()).await;
        for number in 0..50 {
            // Nothing but headers, or the beginning of a message.
            let begin: &[u8] = if number % 2 == 0 { &[] } else { &[0, 0, 0, 0, 100, 10] };
            held.push(peer.open(GET_PLAN, begin, false).await.expect("the connection takes 50 calls"));
        }
        peers.push(peer);
    }
    assert_eq!(held.len(), 2_000);
    others.were_served("2,000 calls are half sent").await;
    for status in join_all(held.into_iter().map(|call| call.refusal())).await {
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        assert_eq!(reason(&status), ("REQUEST_INCOMPLETE".to_owned(), false), "{status}");
    }
    Others::of(&planner).were_served("they were refused").await;
}

/// Streams that never introduce themselves: the connection's share of them waits, the rest learns at once.
#[tokio::test(flavor = "multi_thread")]
async fn streams_without_a_hello_lock_no_worker_out_and_end_with_a_reason() {
    let planner = Planner::start();
    let others = Others::of(&planner);
    let mut held = Vec::new();
    let mut peers = Vec::new();
    for _ in 0..100 {
        let peer = Peer::connect(planner.address()).await;
        for _ in 0..20 {
            held.push(peer.open(CONNECT, &[0, 0, 0, 0, 100], false).await.expect("a stream begins"));
        }
        peers.push(peer);
    }
    others.were_served("2,000 streams say nothing").await;

    let first = worker_v1::WorkerMessage { message: Some(FromWorker::Hello(hello("polite", 1))) };
    let mut worker = SessionServiceClient::new(planner.channel().await);
    let mut answers = worker.connect(tokio_stream::iter([first])).await.unwrap().into_inner();
    let welcome = answers.message().await.unwrap().unwrap().message.unwrap();
    assert!(matches!(welcome, FromPlanner::Welcome(_)), "{welcome:?}");

    let mut waited = 0;
    for status in join_all(held.into_iter().map(|call| call.refusal())).await {
        match reason(&status) {
            (reason, false) if reason == "HANDSHAKE_MISSING" => waited += 1,
            (reason, retry) => {
                assert_eq!((reason.as_str(), retry), ("TOO_MANY_CALLS", true), "{status}");
                assert_eq!(status.code(), Code::ResourceExhausted);
            }
        }
    }
    assert!((1..=400).contains(&waited), "four streams of a connection wait at most: {waited}");
}

/// A hello that is begun and grows without end must not take the planner's memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_hello_that_grows_without_end_is_refused() {
    let planner = Planner::start();
    let others = Others::of(&planner);
    let peer = Peer::connect(planner.address()).await;
    // Announces 15 MiB and sends 4 of them.
    let mut begin = vec![0, 0, 0xf0, 0, 0];
    begin.resize(4 << 20, 0);
    let call = peer.open(CONNECT, &begin, false).await.unwrap();
    let status = call.refusal().await;
    assert_eq!(reason(&status), ("TOO_MANY_REQUEST_BYTES".to_owned(), true), "{status}");
    others.were_served("a hello was too long").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_not_one_message_are_refused_with_a_reason() {
    let planner = Planner::start();
    let peer = Peer::connect(planner.address()).await;
    for (request, code, expected) in [
        (&[][..], Code::InvalidArgument, "MALFORMED_REQUEST"),
        (&[0, 0, 0], Code::InvalidArgument, "MALFORMED_REQUEST"),
        (&[0, 0, 0, 0, 9, 10], Code::InvalidArgument, "MALFORMED_REQUEST"),
        (&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0], Code::InvalidArgument, "MALFORMED_REQUEST"),
        // The message is whole, and its first field is not.
        (&[0, 0, 0, 0, 3, 10, 100, b'm'], Code::InvalidArgument, "MALFORMED_REQUEST"),
        (&[0, 255, 0, 0, 0, 1], Code::ResourceExhausted, "MESSAGE_TOO_LARGE"),
    ] {
        let status = peer.open(GET_PLAN, request, true).await.unwrap().refusal().await;
        assert_eq!((status.code(), reason(&status).0.as_str()), (code, expected), "{request:?}: {status}");
    }
    for path in ["/loadmaster.v1.PlanService/Nothing", "/nothing.at.All/GetPlan", "/"] {
        let status = peer.open(path, &[0; 5], true).await.unwrap().refusal().await;
        assert_eq!(reason(&status).0, "METHOD_UNKNOWN", "{path}: {status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn negative_waits_are_refused_by_name_and_are_not_the_longest() {
    let planner = Planner::start();
    let peer = Peer::connect(planner.address()).await;
    let timeout = Some(prost_types::Duration { seconds: -1, nanos: 0 });
    let request = framed(&WaitOperationRequest { name: "operations/none".to_owned(), timeout });
    let wait = peer.open(WAIT, &request, true).await.unwrap().refusal().await;
    let call = peer.open_with(GET_PLAN, &[0; 5], true, Some("-1S")).await.unwrap().refusal().await;
    for (status, field) in [(wait, "timeout"), (call, "grpc-timeout")] {
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert_eq!(reason(&status).0, "INVALID_FIELD", "{status}");
        assert_eq!(status.get_details_bad_request().unwrap().field_violations[0].field, field);
    }
}
