//! Where a planner is, as people write it.

use std::net::{IpAddr, SocketAddr};

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

/// The header of a planner's answers that says where its pages for browsers are, as an address and a port.
pub const PAGES_HEADER: &str = "loadmaster-pages";

/// Returns the URL of a planner's pages for a client that reaches the planner at `address`. `told` is the value of
/// [`PAGES_HEADER`]. None where the pages are only for the planner's own machine, and that is not this one.
pub fn pages(address: &str, told: &str) -> Option<String> {
    let pages: SocketAddr = told.parse().ok()?;
    let url = url(address);
    let host = host(&url)?;
    let is_here = is_each_machines_own(host);
    match pages.ip() {
        of_all if of_all.is_unspecified() => Some(format!("http://{host}:{}", pages.port())),
        local if local.is_loopback() && !is_here => None,
        _ => Some(format!("http://{pages}")),
    }
}

/// Whether a planner's address leads every machine to itself.
pub fn is_local(address: &str) -> bool {
    host(&url(address)).is_some_and(is_each_machines_own)
}

/// The host of a URL with a port.
fn host(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split('/').next()?;
    Some(authority.rsplit_once(':').map_or(authority, |(host, _)| host))
}

fn is_each_machines_own(host: &str) -> bool {
    let ip: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    host == "localhost" || ip.is_some_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_each_machine_itself_is_local() {
        for local in ["localhost", "127.0.0.1:7433", "http://127.0.0.2", "[::1]:1", "http://localhost:7/x"] {
            assert!(is_local(local), "{local}");
        }
        for other in ["node1", "http://10.0.0.1:7433", "127.example.com", "localhost.example.com:7433"] {
            assert!(!is_local(other), "{other}");
        }
    }

    #[test]
    fn pages_are_named_to_those_who_can_reach_them() {
        for (address, told, seen) in [
            ("http://127.0.0.1:7433", "127.0.0.1:7434", Some("http://127.0.0.1:7434")),
            ("localhost", "127.0.0.1:7434", Some("http://127.0.0.1:7434")),
            ("[::1]:1", "[::1]:2", Some("http://[::1]:2")),
            ("node1", "127.0.0.1:7434", None),
            ("node1:7433", "0.0.0.0:80", Some("http://node1:80")),
            ("[fd00::1]", "[::]:80", Some("http://[fd00::1]:80")),
            ("node1", "10.0.0.1:80", Some("http://10.0.0.1:80")),
            ("node1", "evil", None),
        ] {
            assert_eq!(pages(address, told).as_deref(), seen, "{address} {told}");
        }
    }

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
