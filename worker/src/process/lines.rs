//! Lines of a length that is limited.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

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
