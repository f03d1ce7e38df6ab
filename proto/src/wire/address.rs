//! Where a planner is, as people write it.

/// The port of a planner whose address names none.
pub const DEFAULT_PORT: u16 = 7433;

/// The address as a URL: `node1` is `http://node1:7433`.
pub fn url(address: &str) -> String {
    let address = address.trim();
    let (scheme, rest) = address.split_once("://").unwrap_or(("http", address));
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    // The colons of an address of version 6 stand in brackets.
    let has_port = host.rsplit(']').next().is_some_and(|rest| rest.contains(':'));
    let port = if has_port || host.is_empty() { String::new() } else { format!(":{DEFAULT_PORT}") };
    format!("{scheme}://{host}{port}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_needs_neither_scheme_nor_port() {
        for (given, full) in [
            ("localhost", "http://localhost:7433"),
            (" http://localhost", "http://localhost:7433"),
            ("http://node1/", "http://node1:7433/"),
            ("[::1]", "http://[::1]:7433"),
            ("[::1]:80", "http://[::1]:80"),
            ("10.0.0.1:80", "http://10.0.0.1:80"),
            ("https://node1", "https://node1:7433"),
        ] {
            assert_eq!(url(given), full);
        }
    }
}
