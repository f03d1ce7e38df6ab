//! Names of resources as links to their pages.

/// Collections that have a page for each of their members.
const COLLECTIONS: [&str; 8] =
    ["plans", "profiles", "runs", "operations", "workers", "models", "clusters", "placements"];

/// A part of a text, and the page that it leads to, if it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) text: String,
    pub(crate) href: Option<String>,
}

/// The page of a resource; none for what is no name of one. Names have nothing in them that an address must escape.
pub(crate) fn of(name: &str) -> Option<String> {
    let (collection, id) = name.split_once('/')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_name = COLLECTIONS.contains(&collection) && !id.is_empty() && id.chars().all(plain);
    is_name.then(|| format!("/{name}"))
}

/// A text with the names in it as links.
pub(crate) fn pieces(text: &str) -> Vec<Piece> {
    let is_of_names = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let mut pieces: Vec<Piece> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (word, after) = rest.split_at(rest.find(|c: char| !is_of_names(c)).unwrap_or(rest.len()));
        // A sentence's end is not a name's.
        let name = word.trim_end_matches(['.', '/', '-']);
        match of(name) {
            Some(href) => {
                pieces.push(Piece { text: name.to_owned(), href: Some(href) });
                push(&mut pieces, &word[name.len()..]);
            }
            None => push(&mut pieces, word),
        }
        let (between, next) = after.split_at(after.find(is_of_names).unwrap_or(after.len()));
        push(&mut pieces, between);
        rest = next;
    }
    pieces
}

fn push(pieces: &mut Vec<Piece>, text: &str) {
    match pieces.last_mut() {
        _ if text.is_empty() => {}
        Some(Piece { text: last, href: None }) => last.push_str(text),
        _ => pieces.push(Piece { text: text.to_owned(), href: None }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_texts_are_links_and_nothing_is_lost() {
        let text = "of plans/7f3c, see runs/1. Not /etc/plans/../x or plans/ or javascript:plans/<b>, <i>";
        let all = pieces(text);
        assert_eq!(all.iter().map(|piece| piece.text.as_str()).collect::<String>(), text);
        let links: Vec<&str> = all.iter().filter_map(|piece| piece.href.as_deref()).collect();
        assert_eq!(links, ["/plans/7f3c", "/runs/1"]);
        assert_eq!(pieces(""), []);
        assert_eq!(of("plans/a/reports/b"), None);
        assert_eq!(of("plans/a?b"), None);
    }
}
