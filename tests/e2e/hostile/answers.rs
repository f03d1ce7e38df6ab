//! Answers that nobody reads.

use std::path::Path;

use futures_util::future::join_all;
use loadmaster_proto::wire::v1;
use loadmaster_tests::{Planner, call, resident_bytes};

use super::meter::Others;
use super::raw::{Peer, framed};

const GET_MODEL: &str = "/loadmaster.v1.ModelService/GetModel";
const MIB: u64 = 1 << 20;

/// A model whose description is large: it comes back as it was sent.
fn large_model() -> v1::ModelSource {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/models/layers.yaml");
    let mut document = std::fs::read_to_string(path).unwrap();
    let comment = format!("# {}\n", "large ".repeat(1_000));
    document.push_str(&comment.repeat(500));
    v1::ModelSource { source: Some(v1::model_source::Source::LayerList(v1::LayerList { document })) }
}

/// Over 2 GiB of answers are asked for by peers that take none of them.
#[tokio::test(flavor = "multi_thread")]
async fn unread_answers_take_a_bounded_amount_of_memory_and_end_with_their_connections() {
    // Where every call was refused for want of room, the connection is idle.
    let mut planner = Planner::start_with(&["--idle-timeout", "5s"]);
    let channel = planner.channel().await;
    let source = Some(large_model());
    let created = call(&channel, v1::CreateModelRequest { source, validate_only: false }).await;
    let name = created.unwrap().name;
    let answer =
        call(&channel, v1::GetModelRequest { name: name.clone(), ..Default::default() }).await.unwrap();
    let answer_bytes = prost::Message::encoded_len(&answer) as u64;
    assert!(answer_bytes > 2 * MIB, "the answer is large: {answer_bytes}");

    let pid = planner.program().pid();
    let before = resident_bytes(pid);
    let others = Others::of(&planner);
    let request = framed(&v1::GetModelRequest { name, ..Default::default() });
    let wanted = 2_048 * MIB;
    let mut asked = 0;
    let mut most = before;
    let mut calls = Vec::new();
    let mut peers = Vec::new();
    while asked < wanted {
        let peer = Peer::with_window(planner.address(), 0).await;
        let mut begun = Vec::new();
        for _ in 0..60 {
            begun.extend(peer.open(GET_MODEL, &request, true).await);
            asked += answer_bytes;
        }
        // Each answer has begun, or was refused for want of room.
        calls.extend(join_all(begun.into_iter().map(|call| call.begin())).await);
        most = most.max(resident_bytes(pid));
        peers.push(peer);
    }
    let grown = most.saturating_sub(before) / MIB;
    eprintln!("{} MiB of answers were asked for, the planner grew by {grown} MiB", asked / MIB);
    assert!(grown < 700, "unread answers took {grown} MiB");
    others.were_served("nobody reads 2 GiB of answers").await;
    join_all(peers.into_iter().map(Peer::closed)).await;
    drop(calls);

    let again = call(&channel, v1::GetModelRequest { name: answer.name.clone(), ..Default::default() })
        .await
        .unwrap();
    assert_eq!(again, answer, "whoever reads gets the whole answer");
}
