//! The end of what a process says.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::io::{AsyncRead, BufReader};

use super::lines::read_line;

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

#[cfg(test)]
mod tests {
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
}
