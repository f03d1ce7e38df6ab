//! HTTP/1.1 as a browser without anything speaks it.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// No answer takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str())
    }
}

pub(super) async fn get(address: &str, path: &str) -> Answer {
    request(address, "GET", path, &[]).await
}

pub(super) async fn request(address: &str, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let asked = async {
        let mut stream = ask(address, method, path, headers, "close").await;
        let (status, headers) = head(&mut stream).await;
        let mut body = Vec::new();
        stream.read_to_end(&mut body).await.expect("the answer ends");
        Answer { status, headers, body: String::from_utf8(body).expect("pages are text") }
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("the page is answered")
}

async fn ask(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    connection: &str,
) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).await.expect("pages are served");
    let mut text = format!("{method} {path} HTTP/1.1\r\nconnection: {connection}\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        text.push_str(&format!("host: {address}\r\n"));
    }
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{text}\r\n").as_bytes()).await.expect("the request is taken");
    BufReader::new(stream)
}

async fn head(stream: &mut BufReader<TcpStream>) -> (u16, Vec<(String, String)>) {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.expect("the answer has a head");
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let status = lines[0].split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let header =
        |line: &String| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    (status, lines[1..].iter().filter_map(header).collect())
}

/// What a listener is told.
#[derive(Debug, Clone, Default)]
pub(super) struct Event {
    pub(super) id: String,
    pub(super) data: String,
}

/// A browser that listens.
pub(super) struct Stream(BufReader<TcpStream>);

impl Stream {
    /// None where there is no room.
    pub(super) async fn open(address: &str, last: Option<&str>) -> Option<Self> {
        let headers: Vec<(&str, &str)> = last.map(|last| ("last-event-id", last)).into_iter().collect();
        let mut stream = ask(address, "GET", "/events", &headers, "keep-alive").await;
        let (status, headers) = head(&mut stream).await;
        if status == 503 {
            return None;
        }
        assert_eq!(status, 200);
        assert!(
            headers
                .iter()
                .any(|(name, value)| name == "content-type" && value.starts_with("text/event-stream"))
        );
        Some(Self(stream))
    }

    /// The next change.
    pub(super) async fn next(&mut self) -> Event {
        tokio::time::timeout(PATIENCE, self.read()).await.expect("a change is told")
    }

    /// Whether nothing is told for so long.
    pub(super) async fn quiet(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.read()).await.is_err()
    }

    async fn read(&mut self) -> Event {
        let mut event = Event::default();
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).await.expect("the stream goes on") > 0, "the stream ended");
            match line.trim_end().split_once(": ") {
                Some(("id", id)) => event.id = id.to_owned(),
                Some(("data", data)) => event.data = data.to_owned(),
                _ if line.trim_end().is_empty() && !event.data.is_empty() => return event,
                // The length of a piece, a comment, the kind of an event.
                _ => {}
            }
        }
    }
}
