//! What rows are ordered by.

use crate::MAX_SORT_KEYS;
use crate::field::{Field, find};
use crate::scan::{Fault, Scanner, shown};

/// A field that rows are ordered by. What is not set comes last, whichever way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SortKey {
    /// Of the fields of the list.
    pub field: &'static Field,
    /// The largest first.
    pub is_descending: bool,
}

/// `field [asc|desc], …`; empty for none.
///
/// # Errors
/// Where it is no order.
pub(crate) fn read(fields: &'static [Field], text: &str) -> Result<Vec<SortKey>, Fault> {
    let mut scanner = Scanner::new(text)?;
    scanner.skip_space();
    let mut order: Vec<SortKey> = Vec::new();
    if scanner.peek().is_none() {
        return Ok(order);
    }
    loop {
        scanner.skip_space();
        let at = scanner.at();
        let name = word(&mut scanner);
        if name.is_empty() {
            return Err(Fault::new(at, "a field is missing here. Use, for example, `create_time desc`."));
        }
        let field = find(fields, &name).map_err(|what| Fault::new(at, what))?;
        if !field.kind.is_ordered() {
            return Err(Fault::new(at, format!("lists cannot be ordered by {name}. Use another field.")));
        }
        if order.iter().any(|key| key.field == field) {
            return Err(Fault::new(at, format!("{name} is named twice. Remove one of them.")));
        }
        if order.len() == MAX_SORT_KEYS {
            return Err(Fault::new(
                at,
                format!(
                    "the list is ordered by more than {MAX_SORT_KEYS} fields. Remove some \
                fields."
                ),
            ));
        }
        scanner.skip_space();
        let at = scanner.at();
        let is_descending = match word(&mut scanner).as_str() {
            "" | "asc" => false,
            "desc" => true,
            other => {
                return Err(Fault::new(
                    at,
                    format!("{} is neither asc nor desc. Separate fields with commas.", shown(other)),
                ));
            }
        };
        order.push(SortKey { field, is_descending });
        scanner.skip_space();
        let at = scanner.at();
        match scanner.next() {
            None => return Ok(order),
            Some(',') => {}
            Some(_) => return Err(Fault::new(at, "a comma between two fields is missing here")),
        }
    }
}

fn word(scanner: &mut Scanner) -> String {
    scanner.take_while(|character| !character.is_whitespace() && character != ',')
}
