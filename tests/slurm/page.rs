//! A page of the planner as a reader has it: fetched without a browser, and the text of one of its tables.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// No page takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is at `http://HOST:PORT/PATH`.
pub(crate) fn fetch(url: &str) -> Result<String> {
    let after = url.strip_prefix("http://").with_context(|| format!("{url} is no address of a page"))?;
    let (host, path) = after.split_once('/').unwrap_or((after, ""));
    let mut stream = TcpStream::connect(host).with_context(|| format!("nobody serves {url}"))?;
    stream.set_read_timeout(Some(PATIENCE)).context("a socket takes a limit")?;
    // Of the old version: the answer ends with the connection, and comes in one piece.
    write!(stream, "GET /{path} HTTP/1.0\r\nhost: {host}\r\n\r\n").context("the request is not taken")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).with_context(|| format!("{url} is not answered"))?;
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer has no head")?;
    let status = head.lines().next().unwrap_or_default();
    ensure!(status.split(' ').nth(1) == Some("200"), "{url} says {status}");
    Ok(body.to_owned())
}

/// The rows of a section's table, the titles first: each the texts of its cells. None where the section has no table.
pub(crate) fn rows(page: &str, section: &str) -> Vec<Vec<String>> {
    let from = page.split_once(&format!("<section id=\"{section}\"")).map_or("", |(_, rest)| rest);
    let (section, _) = from.split_once("</section>").unwrap_or((from, ""));
    let rows = section.split("<tr>").skip(1).map(|row| row.split("</tr>").next().unwrap_or_default());
    let cells = |row: &str| -> Vec<String> {
        let ends = row.replace("</th>", "</td>");
        ends.split("</td>").map(text).filter(|cell| !cell.is_empty()).collect()
    };
    rows.map(cells).collect()
}

/// A piece of a page without its marks.
fn text(piece: &str) -> String {
    let mut parts = piece.split('<');
    let first = parts.next().unwrap_or_default();
    let rest = parts.map(|part| part.split_once('>').map_or("", |(_, text)| text));
    let text: String = std::iter::once(first).chain(rest).collect();
    let signs = [("&#60;", "<"), ("&#62;", ">"), ("&#34;", "\""), ("&#39;", "'"), ("&#38;", "&")];
    let text = signs.iter().fold(text, |text, (written, sign)| text.replace(written, sign));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
