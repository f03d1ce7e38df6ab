//! Browsers that hold what others need.

use std::time::Duration;

use loadmaster_tests::Planner;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::meter::Others;

/// A connection of a browser at an address of its own, which has asked for something; none where there is no room.
async fn ask(from: &str, pages: &str, path: &str) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
    let mut stream = socket.connect(pages.parse().unwrap()).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {pages}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    Some(stream)
}

/// The status of an answer; none where the connection was closed instead.
async fn status(stream: &mut TcpStream) -> Option<String> {
    let mut line = [0; 12];
    stream.read_exact(&mut line).await.ok()?;
    Some(String::from_utf8_lossy(&line[9..]).into_owned())
}

/// Two addresses take all connections that there are, with pages that were read long ago and with pages that update themselves.
#[tokio::test(flavor = "multi_thread")]
async fn connections_of_two_addresses_leave_pages_to_others() {
    let planner = Planner::start_with(&["--web", "127.0.0.1:0"]);
    let pages = planner.pages().await;
    let others = Others::of(&planner);
    let mut held = Vec::new();
    let mut watching = 0;
    for from in ["127.0.0.2", "127.0.0.3"] {
        for number in 0..160 {
            let path = if number < 64 { "/events" } else { "/" };
            let Some(mut stream) = ask(from, &pages, path).await else { continue };
            let status = status(&mut stream).await;
            watching += usize::from(number < 64 && status.as_deref() == Some("200"));
            held.push(stream);
        }
    }
    for path in ["/", "/plans", "/events"] {
        let mut stream = ask("127.0.0.4", &pages, path).await.expect("a connection");
        let answered = tokio::time::timeout(Duration::from_secs(60), status(&mut stream)).await;
        let answered = answered.expect("an answer").unwrap_or_else(|| panic!("no room for {path}"));
        let expected: &[&str] = if path == "/events" { &["200", "503"] } else { &["200"] };
        assert!(expected.contains(&answered.as_str()), "{path}: {answered}");
    }
    assert!((1..=64).contains(&watching), "{watching} browsers of two addresses watch");
    others.were_served("two addresses hold 320 connections to pages").await;
}
