//! Texts of others in pictures: without what could forge a picture, and cut to the space that there is.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::terminal_abilities::Look;
use super::visible_character;

/// Characters of a name that are shown. What is longer says more than a label can.
const NAME: usize = 200;
/// Characters of a sentence that are shown.
const SENTENCE: usize = 2_000;

/// A name on one line, without control characters and without those that turn the direction of writing: a
/// layer must not move what stands beside it. At most 200 characters.
pub fn safe(text: &str) -> String {
    clean(text, NAME)
}

/// The id of a resource name.
pub fn id(name: &str) -> String {
    safe(name.rsplit('/').next().unwrap_or(name))
}

/// The same for what is longer than a name: at most 2,000 characters.
pub fn sentence(text: &str) -> String {
    clean(text, SENTENCE)
}

fn clean(text: &str, most: usize) -> String {
    // XML cannot hold some characters that are no others' business.
    let is_in_xml = |c: &char| !matches!(c, '\u{fffe}' | '\u{ffff}');
    let mut characters = text.trim().chars().filter(is_in_xml).filter_map(visible_character);
    let mut kept: String = characters.by_ref().take(most).collect();
    if characters.next().is_some() {
        kept.push_str("...");
    }
    kept
}

/// How many character cells of a terminal `text` takes.
pub fn cells(text: &str) -> usize {
    text.width()
}

/// The beginning of `text` that takes at most so many cells.
pub fn take(text: &str, most: usize) -> &str {
    let mut used = 0;
    let over = |&(_, c): &(usize, char)| {
        used += c.width().unwrap_or(0);
        used > most
    };
    text.char_indices().find(over).map_or(text, |(end, _)| &text[..end])
}

/// `text` in at most so many cells; where it is cut, its last cell says so.
pub fn fit(text: &str, most: usize, look: Look) -> String {
    if cells(text) <= most {
        return text.to_owned();
    }
    let mut kept = take(text, most.saturating_sub(1)).to_owned();
    if most > 0 {
        kept.push(look.cut());
    }
    kept
}

/// `text` in exactly so many cells.
pub fn column(text: &str, width: usize, look: Look) -> String {
    let mut text = fit(text, width, look);
    text.extend(std::iter::repeat_n(' ', width.saturating_sub(cells(&text))));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_end_with_a_mark() {
        assert_eq!(fit("embedding", 9, Look::UNICODE), "embedding");
        assert_eq!(fit("embedding", 5, Look::UNICODE), "embe…");
        assert_eq!(fit("embedding", 5, Look::PLAIN), "embe~");
        assert_eq!(fit("embedding", 0, Look::PLAIN), "");
        assert_eq!(column("ab", 4, Look::PLAIN), "ab  ");
    }

    /// A wide character takes two cells, so it may have to go as a whole.
    #[test]
    fn width_is_counted_in_cells() {
        assert_eq!(cells(&column("層層層", 4, Look::UNICODE)), 4);
        assert_eq!(fit("層層層", 4, Look::UNICODE), "層…");
    }

    #[test]
    fn names_cannot_turn_the_line_or_move_the_cursor() {
        assert_eq!(safe("a\u{202e}b\u{1b}[2Jc\n"), "ab [2Jc");
        assert_eq!(safe(&"x".repeat(1000)).len(), NAME + 3);
    }
}
