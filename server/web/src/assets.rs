//! The style sheet and the script, which are parts of this program.

use std::sync::OnceLock;

use axum::http::header;
use axum::response::IntoResponse;
use loadmaster_show::picture::html;

const STYLE: &str = include_str!("../assets/style.css");
const SCRIPT: &str = include_str!("../assets/live.js");
const ICON: &str = include_str!("../assets/icon.svg");

/// The version in their addresses changes with every release.
const CACHED: &str = "public, max-age=86400";

pub(crate) async fn style() -> impl IntoResponse {
    static RULES: OnceLock<String> = OnceLock::new();
    let rules = RULES.get_or_init(|| format!("{}{STYLE}", html::rules()));
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8"), (header::CACHE_CONTROL, CACHED)], rules.as_str())
}

pub(crate) async fn icon() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "image/svg+xml"), (header::CACHE_CONTROL, CACHED)], ICON)
}

pub(crate) async fn script() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8"), (header::CACHE_CONTROL, CACHED)], SCRIPT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It is read by whoever wants to know what a page does.
    #[test]
    fn the_script_is_short() {
        assert!(SCRIPT.lines().count() <= 150);
    }
}
