//! One connection, from dialling to its end.

use std::time::Duration;

use loadmaster_proto::wire::worker_v1;
use loadmaster_proto::{MAX_MESSAGE_BYTES, WORKER_PROTOCOL_VERSION};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Endpoint;
use worker_v1::planner_message::Message as FromPlanner;
use worker_v1::session_service_client::SessionServiceClient;
use worker_v1::worker_message::Message as ToPlanner;

use super::StreamEvent;
use super::refusal::{Ending, chain, classify};
use crate::state::Terms;

/// How long the planner may take to answer the hello.
const ANSWER: Duration = Duration::from_secs(15);

/// Dials, says hello, and passes on what the planner says until the connection ends.
pub(super) async fn hold(
    endpoint: &Endpoint,
    hello: worker_v1::Hello,
    to_send: mpsc::Receiver<worker_v1::WorkerMessage>,
    heard: &mpsc::Sender<StreamEvent>,
) -> Ending {
    let (mut messages, terms) = match timeout(ANSWER, greet(endpoint, hello, to_send)).await {
        Ok(Ok(greeted)) => greeted,
        Ok(Err(ending)) => return ending,
        Err(_) => {
            return Ending::lost(format!(
                "the planner did not respond to the worker's first message within {} s",
                ANSWER.as_secs()
            ));
        }
    };
    if heard.send(StreamEvent::Welcomed(terms)).await.is_err() {
        return Ending::lost("closed");
    }
    loop {
        let message = match messages.message().await {
            Ok(Some(worker_v1::PlannerMessage { message: Some(message) })) => message,
            // A message of a newer planner: not for us.
            Ok(Some(worker_v1::PlannerMessage { message: None })) => continue,
            Ok(None) => return Ending::lost("the planner ended the stream"),
            Err(status) => return classify(&status),
        };
        if heard.send(StreamEvent::Message(Box::new(message))).await.is_err() {
            return Ending::lost("closed");
        }
    }
}

async fn greet(
    endpoint: &Endpoint,
    hello: worker_v1::Hello,
    to_send: mpsc::Receiver<worker_v1::WorkerMessage>,
) -> Result<(Streaming<worker_v1::PlannerMessage>, Terms), Ending> {
    let channel = endpoint.connect().await.map_err(|error| Ending::lost(chain(&error)))?;
    let mut client = SessionServiceClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let hello = worker_v1::WorkerMessage { message: Some(ToPlanner::Hello(hello)) };
    let outgoing = tokio_stream::once(hello).chain(ReceiverStream::new(to_send));
    let mut messages = client.connect(outgoing).await.map_err(|status| classify(&status))?.into_inner();
    match messages.message().await.map_err(|status| classify(&status))? {
        Some(worker_v1::PlannerMessage { message: Some(FromPlanner::Welcome(welcome)) }) => {
            let terms = terms(&welcome)?;
            Ok((messages, terms))
        }
        Some(_) => Err(Ending::lost("the planner's first message is not a welcome message")),
        None => Err(Ending::lost("the planner ended the stream before its welcome message")),
    }
}

/// The planner's durations, where they make sense.
fn terms(welcome: &worker_v1::Welcome) -> Result<Terms, Ending> {
    if welcome.protocol_version != WORKER_PROTOCOL_VERSION {
        return Err(Ending::Refused {
            why: format!(
                "the planner uses version {} of the worker protocol, and this worker uses version \
                 {WORKER_PROTOCOL_VERSION}. Install the same release of both.",
                welcome.protocol_version
            ),
        });
    }
    Terms::checked(welcome.heartbeat_seconds, welcome.lease_seconds).ok_or_else(|| {
        Ending::lost(format!(
            "the planner sent a lease duration of {} s and a heartbeat interval of {} s. The interval can be \
             at most 3600 s. The lease duration must be longer, but at most 86400 s. See --lease-duration and \
             --heartbeat-interval of the planner.",
            welcome.lease_seconds, welcome.heartbeat_seconds
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn welcome(protocol_version: i32, heartbeat_seconds: f64, lease_seconds: f64) -> worker_v1::Welcome {
        worker_v1::Welcome { protocol_version, heartbeat_seconds, lease_seconds }
    }

    /// Pins that a planner cannot make the worker flood it or forget its leases.
    #[test]
    fn terms_that_make_no_sense_are_not_accepted() {
        assert!(terms(&welcome(WORKER_PROTOCOL_VERSION, 5.0, 15.0)).is_ok());
        for (heartbeat, lease) in
            [(0.0, 15.0), (f64::NAN, 15.0), (-1.0, 1.0), (20.0, 10.0), (5.0, f64::INFINITY)]
        {
            let ending = terms(&welcome(WORKER_PROTOCOL_VERSION, heartbeat, lease)).unwrap_err();
            assert!(matches!(ending, Ending::Lost { .. }), "{heartbeat} {lease}");
        }
        let ending = terms(&welcome(WORKER_PROTOCOL_VERSION + 1, 5.0, 15.0)).unwrap_err();
        assert!(matches!(ending, Ending::Refused { .. }));
    }
}
