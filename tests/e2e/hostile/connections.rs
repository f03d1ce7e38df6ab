//! Connections that are there and do nothing.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use loadmaster_tests::{Planner, processor_seconds, wait_until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::meter::{Called, Others};
use super::raw::{Peer, socket};

async fn silent(planner: &Planner) -> TcpStream {
    TcpStream::connect(socket(planner.address())).await.expect("the planner accepts connections")
}

/// Reads until the planner closes the connection.
async fn closed(mut stream: TcpStream) {
    let mut buffer = [0; 1_024];
    while matches!(stream.read(&mut buffer).await, Ok(1..)) {}
}

/// 800 of them: silent ones, ones that begin to speak HTTP/2, and ones that speak it and have nothing to say.
#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_are_closed_and_open_streams_are_not() {
    let planner = Planner::start_with(&["--idle-timeout", "2s"]);
    let mut health = HealthClient::new(planner.channel().await);
    let mut watch = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    watch.message().await.unwrap().unwrap();

    let others = Others::of(&planner);
    let mut streams = Vec::new();
    let mut peers = Vec::new();
    for number in 0..600 {
        let mut stream = silent(&planner).await;
        if number % 2 == 0 {
            stream.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
        }
        streams.push(stream);
    }
    for _ in 0..200 {
        peers.push(Peer::connect(planner.address()).await);
    }
    others.were_served("800 connections are idle").await;
    join_all(streams.into_iter().map(closed)).await;
    join_all(peers.into_iter().map(Peer::closed)).await;

    let news = tokio::time::timeout(Duration::from_millis(200), watch.message()).await;
    assert!(news.is_err(), "the open stream goes on: {news:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_of_an_address_make_room_for_new_ones() {
    let planner = Planner::start_with(&["--max-connections-per-peer", "20"]);
    // Of one address the caller's own connection is idle for longest when twenty others begin between two of its calls.
    let from = Some(Ipv4Addr::new(127, 0, 0, 2).into());
    let others = Others::calling(&planner, Called { from, ..Called::default() });
    let peers = join_all((0..60).map(|_| Peer::connect(planner.address()))).await;
    others.were_served("60 connections are idle where 20 may be").await;
    wait_until("most of them are closed", || {
        let left = peers.iter().filter(|peer| !peer.is_closed()).count();
        (left <= 20).then_some(())
    });
}

/// Descriptors run out long before the limits: the planner keeps some, burns no core, and serves.
#[tokio::test(flavor = "multi_thread")]
async fn a_planner_short_of_descriptors_rests_and_goes_on_serving() {
    let limited = ["sh", "-c", "ulimit -n 200; exec \"$@\"", "sh"];
    let mut planner = Planner::start_under(&limited, &[]);
    let others = Others::of(&planner);
    let mut held = Vec::new();
    for _ in 0..400 {
        held.push(silent(&planner).await);
    }
    others.were_served("there are 400 connections for 200 descriptors").await;

    let pid = planner.program().pid();
    let (begin, before) = (Instant::now(), processor_seconds(pid));
    tokio::time::sleep(Duration::from_secs(4)).await;
    let share = (processor_seconds(pid) - before) / begin.elapsed().as_secs_f64();
    assert!(share < 0.25, "an idle planner takes {share:.2} of a core");

    drop(held);
    Others::of(&planner).were_served("the descriptors are free again").await;
}
