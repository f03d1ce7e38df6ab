//! What a link is called, and how fast it is.

use loadmaster_proto::cluster::quantity;
use loadmaster_proto::wire::v1::{LinkClass, LinkOrigin, LinkSpeed};

use crate::text::terminal_abilities::Look;
use crate::text::word;

/// `NV18`, `SYS`, or nothing.
pub(super) fn class(class: i32, count: i32) -> String {
    use loadmaster_proto::cluster::LinkClass as Domain;
    let known = match LinkClass::try_from(class) {
        Ok(LinkClass::Unspecified) | Err(_) => return String::new(),
        Ok(LinkClass::Nvlink) if count > 1 => return format!("NV{count}"),
        Ok(LinkClass::Nvlink) => return "NVLink".to_owned(),
        Ok(LinkClass::C2c) => Domain::ChipToChip,
        Ok(LinkClass::Xgmi) => Domain::Xgmi,
        Ok(LinkClass::Pix) => Domain::PcieBridge,
        Ok(LinkClass::Pxb) => Domain::PcieBridges,
        Ok(LinkClass::Phb) => Domain::HostBridge,
        Ok(LinkClass::Node) => Domain::NumaNode,
        Ok(LinkClass::Sys) => Domain::System,
    };
    known.as_str().to_owned()
}

/// `371 GB/s, 2 us, assumed`.
pub(super) fn speed(link: &LinkSpeed, look: Look) -> String {
    format!(
        "{}, {}, {}",
        quantity::show_bytes_per_second(link.bytes_per_second),
        quantity::show_seconds(link.latency_seconds, look.unicode),
        origin(link.origin)
    )
}

pub(super) fn origin(origin: i32) -> String {
    match LinkOrigin::try_from(origin) {
        Ok(LinkOrigin::Unspecified) | Err(_) => "unknown origin".to_owned(),
        Ok(known) => word(known.as_str_name(), "LINK_ORIGIN_"),
    }
}
