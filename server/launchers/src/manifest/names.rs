//! Names that the API of Kubernetes accepts, checked before anything is sent there.

use loadmaster_proto::error::Invalid;

/// Longest name of what is made, characters. Controllers append to it, and what they make must be labels of 63: a `JobSet`'s pods
/// have up to 23 more (`-node-999-0-99999-abcde`), a `LeaderWorkerSet`'s revisions 13.
pub(super) const MAX_NAME: usize = 40;
/// Longest name of a namespace or a queue, characters: both are labels.
const MAX_LABEL: usize = 63;
/// Longest domain in front of a label's key, characters.
const MAX_DOMAIN: usize = 253;
/// Longest name of an image, characters: `TrainJob` has no room for more.
const MAX_IMAGE: usize = 500;

/// A name of an object: RFC 1035's label, for services and pods are called after it.
pub(super) fn object(field: &str, name: &str) -> Result<(), Invalid> {
    let is_right = is_label(name, MAX_NAME) && name.starts_with(|c: char| c.is_ascii_lowercase());
    let rule = format!(
        "use 1 to {MAX_NAME} characters of a-z, 0-9 and '-', beginning with a letter and not ending with '-' (Kubernetes \
         appends up to 23 characters)"
    );
    is_right.then_some(()).ok_or_else(|| refused(field, name, &rule))
}

/// A name of a namespace: RFC 1123's label.
pub(super) fn namespace(field: &str, name: &str) -> Result<(), Invalid> {
    let rule = "use 1 to 63 characters of a-z, 0-9 and '-', without '-' at the ends";
    is_label(name, MAX_LABEL).then_some(()).ok_or_else(|| refused(field, name, rule))
}

/// A name of a queue: labels with points between them, and short enough for a label's value.
pub(super) fn queue(field: &str, name: &str) -> Result<(), Invalid> {
    let is_right = name.len() <= MAX_LABEL && name.split('.').all(|part| is_label(part, MAX_LABEL));
    let rule = "use 1 to 63 characters of a-z, 0-9, '-' and '.', with letters or digits at the ends";
    is_right.then_some(()).ok_or_else(|| refused(field, name, rule))
}

/// A level of a topology, which is the key of a label of nodes: `cloud.example.com/rack`.
pub(super) fn level(field: &str, key: &str) -> Result<(), Invalid> {
    let (domain, name) = match key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, key),
    };
    let is_domain =
        |domain: &str| domain.len() <= MAX_DOMAIN && domain.split('.').all(|part| is_label(part, MAX_DOMAIN));
    let is_right = domain.is_none_or(is_domain) && is_key(name);
    let rule = "use the key of a node label, for example cloud.provider.com/topology-rack";
    is_right.then_some(()).ok_or_else(|| refused(field, key, rule))
}

/// Whether it can be what a node's label calls its host.
pub(super) fn is_host(name: &str) -> bool {
    is_key(name)
}

/// An image: what registries make of it is theirs to say.
pub(super) fn image(field: &str, image: &str) -> Result<(), Invalid> {
    let is_right = (1..=MAX_IMAGE).contains(&image.len()) && image.chars().all(|c| c.is_ascii_graphic());
    let rule = format!("use 1 to {MAX_IMAGE} characters without spaces, such as example.com/train:1");
    is_right.then_some(()).ok_or_else(|| refused(field, image, &rule))
}

fn is_label(text: &str, most: usize) -> bool {
    let is_end = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let is_within = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    text.len() <= most
        && is_end(text.bytes().next())
        && is_end(text.bytes().last())
        && text.bytes().all(is_within)
}

/// The part of a label's key behind its domain, or a label's value.
fn is_key(name: &str) -> bool {
    let is_end = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let is_within = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
    name.len() <= MAX_LABEL
        && is_end(name.bytes().next())
        && is_end(name.bytes().last())
        && name.bytes().all(is_within)
}

fn refused(field: &str, text: &str, rule: &str) -> Invalid {
    // What a caller sends may be long.
    let text: String = text.chars().take(MAX_DOMAIN).collect();
    Invalid::field(format!("manifest_options.{field}"), format!("{text:?} is not valid: {rule}"))
}
