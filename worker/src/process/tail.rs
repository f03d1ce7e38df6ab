//! The lines of a process, each of a limited length, and the end of what it says.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, BufReader};

/// How long to listen to a process that has ended: its last words are in the pipes already, and only a child of
/// its own can keep them open.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(1);
/// Longest line that is kept whole.
const MAX_LINE: usize = 2 << 10;

/// The last bytes of a text.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    bytes: VecDeque<u8>,
}

impl Tail {
    /// Bytes kept.
    const LIMIT: usize = 4 << 10;

    /// Listens until the stream ends. Lines that `is_kept` refuses are left out.
    pub(crate) async fn listen(
        &mut self,
        stream: Option<impl AsyncRead + Unpin>,
        mut is_kept: impl FnMut(&str) -> bool,
    ) {
        let Some(stream) = stream else { return };
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        while let Ok(Some(_)) = read_line(&mut reader, &mut line, MAX_LINE).await {
            if is_kept(&String::from_utf8_lossy(&line)) {
                self.push_line(&line);
            }
        }
    }

    pub(crate) fn push_line(&mut self, line: &[u8]) {
        self.bytes.extend(line);
        self.bytes.push_back(b'\n');
        let surplus = self.bytes.len().saturating_sub(Self::LIMIT);
        self.bytes.drain(..surplus);
    }

    /// What was kept, readable whatever the bytes are.
    pub(crate) fn text(&self) -> String {
        let bytes: Vec<u8> = self.bytes.iter().copied().collect();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }
}

/// The last part of a text, at most about `limit` bytes, cut between characters.
pub(super) fn last_bytes(text: &str, limit: usize) -> &str {
    let mut start = text.len().saturating_sub(limit);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// Reads one line into `line`, without its end. At most `limit` bytes are kept, the rest is read and
/// thrown away. `None` at the end of the stream, else whether the line was cut.
pub(crate) async fn read_line<R: AsyncBufRead + Unpin>(
    reader: &mut R,
    line: &mut Vec<u8>,
    limit: usize,
) -> io::Result<Option<bool>> {
    line.clear();
    let (mut cut, mut any) = (false, false);
    loop {
        let chunk = reader.fill_buf().await?;
        if chunk.is_empty() {
            return Ok(any.then_some(cut));
        }
        any = true;
        let end = chunk.iter().position(|&byte| byte == b'\n');
        let part = &chunk[..end.unwrap_or(chunk.len())];
        let kept = part.len().min(limit - line.len().min(limit));
        line.extend_from_slice(&part[..kept]);
        cut |= kept < part.len();
        let used = end.map_or(chunk.len(), |end| end + 1);
        reader.consume(used);
        if end.is_some() {
            return Ok(Some(cut));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::BufReader;

    use super::*;

    #[test]
    fn a_tail_keeps_the_end_and_survives_any_bytes() {
        let mut tail = Tail::default();
        for index in 0..10_000 {
            tail.push_line(format!("line {index}").as_bytes());
        }
        tail.push_line(&[0xff, 0xfe]);
        assert!(tail.text().len() <= 2 * Tail::LIMIT);
        assert!(tail.text().contains("line 9999"));
        assert_eq!(last_bytes("aéb", 2), "b");
        assert_eq!(last_bytes("ab", 9), "ab");
    }

    /// Pins that a rank cannot fill the daemon's memory with one endless line.
    #[tokio::test]
    async fn long_lines_are_cut_and_the_next_one_is_whole() {
        let text = format!("short\n{}\nafter\nno end", "x".repeat(10_000));
        let mut reader = BufReader::with_capacity(64, text.as_bytes());
        let mut line = Vec::new();
        let mut lines = Vec::new();
        while let Some(cut) = read_line(&mut reader, &mut line, 100).await.unwrap() {
            lines.push((line.len(), cut));
        }
        assert_eq!(lines, [(5, false), (100, true), (5, false), (6, false)]);
    }
}
