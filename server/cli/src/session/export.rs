//! Exports of plans, checked: a client writes their names into scripts and paths, and a planner may be anybody's.

use anyhow::{Result, bail};
use loadmaster_proto::name::{is_device_uuid, is_host, is_invisible};
use loadmaster_proto::wire::v1;

use super::context::Context;
use crate::failure::Failure;

/// Longest name of a file, bytes: what file systems allow.
const MAX_FILE_NAME: usize = 255;
/// Longest version of a framework, bytes.
const MAX_VERSION: usize = 63;

/// Returns the export of a plan.
///
/// # Errors
/// The planner refuses it, or returns names, versions or paths that are none.
pub(crate) async fn export(
    context: &Context,
    request: v1::ExportPlanRequest,
) -> Result<v1::ExportPlanResponse, Failure> {
    let (name, placement) = (request.name.clone(), request.placement.clone());
    let export = context.client.call(request).await?;
    check(&export, &name, &placement)?;
    Ok(export)
}

/// Checks every name, version and path of an answer by its grammar.
///
/// # Errors
/// Names what the planner returned, and what was expected.
fn check(export: &v1::ExportPlanResponse, plan: &str, placement: &str) -> Result<()> {
    for (what, returned, requested) in
        [("plan", &export.plan, plan), ("placement", &export.placement, placement)]
    {
        if returned != requested {
            bail!("the planner returned an export of the {what} {returned:?} instead of {requested:?}");
        }
    }
    let version = &export.framework_version;
    if !is_version(version) {
        bail!(
            "the planner returned the framework version {version:?}, which is not valid: expected digits and letters \
             with dots between them"
        );
    }
    for (index, file) in export.files.iter().enumerate() {
        if !is_file_name(&file.name) {
            bail!(
                "the planner returned an export file named {:?}, which is not a valid file name",
                file.name
            );
        }
        if export.files.iter().take(index).any(|other| other.name == file.name) {
            bail!("the planner returned two export files named {:?}", file.name);
        }
    }
    for (name, value) in &export.environment {
        if !is_variable(name) || value.contains(is_invisible) {
            bail!("the planner returned the environment variable {name:?}={value:?}, which is not valid");
        }
    }
    if let Some(word) = export.command.iter().find(|word| word.contains(char::is_control)) {
        bail!("the planner returned a command whose argument {word:?} has control characters");
    }
    for device in export.ranks.iter().filter_map(|place| place.device.as_ref()) {
        if !(device.node.is_empty() || is_host(&device.node)) {
            bail!("the planner returned the node {:?}, which is not a valid host name", device.node);
        }
        if !(device.uuid.is_empty() || is_device_uuid(&device.uuid)) {
            bail!("the planner returned the device {:?}, which is not a valid UUID", device.uuid);
        }
    }
    Ok(())
}

/// `0.19`, `25.04-alpha.1`.
fn is_version(text: &str) -> bool {
    let is_within = |byte: u8| byte.is_ascii_alphanumeric() || b".-+_".contains(&byte);
    text.len() <= MAX_VERSION
        && text.starts_with(|first: char| first.is_ascii_digit())
        && text.bytes().all(is_within)
}

/// `ds_config.json`, `hostfile`: neither a path, nor hidden, nor an option of whatever reads it.
fn is_file_name(text: &str) -> bool {
    let is_within = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (1..=MAX_FILE_NAME).contains(&text.len()) && !text.starts_with(['.', '-']) && text.bytes().all(is_within)
}

/// `CUDA_DEVICE_MAX_CONNECTIONS`.
fn is_variable(text: &str) -> bool {
    let is_within = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !text.starts_with(|first: char| first.is_ascii_digit()) && !text.is_empty() && text.bytes().all(is_within)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> v1::ExportPlanResponse {
        let file = |name: &str| v1::ExportedFile { name: name.to_owned(), ..Default::default() };
        let device =
            v1::PlacedDevice { node: "gpu-1.x".to_owned(), uuid: "GPU-1".to_owned(), ..Default::default() };
        v1::ExportPlanResponse {
            plan: "plans/x".to_owned(),
            placement: "placements/y".to_owned(),
            framework_version: "0.19".to_owned(),
            files: vec![file("ds_config.json"), file("hostfile")],
            command: vec!["deepspeed".to_owned(), "$NODE_RANK".to_owned()],
            environment: [("CUDA_DEVICE_ORDER".to_owned(), "PCI_BUS_ID".to_owned())].into(),
            ranks: vec![v1::RankPlace { device: Some(device), ..Default::default() }],
            ..Default::default()
        }
    }

    /// Sets one field of a response at a time to values that an untrusted planner may send.
    #[test]
    fn answers_with_names_that_are_none_are_refused() {
        let check = |export: &v1::ExportPlanResponse| check(export, "plans/x", "placements/y");
        assert!(check(&sound()).is_ok());
        let refused = |bend: &dyn Fn(&mut v1::ExportPlanResponse)| {
            let mut export = sound();
            bend(&mut export);
            let told = check(&export).unwrap_err().to_string();
            assert!(!told.contains(is_invisible), "{told:?}");
        };
        for wrong in ["", "plans/y", "plans/x\ntouch x", "plans/x; touch x", "$(touch x)"] {
            refused(&|export| export.plan = wrong.to_owned());
            refused(&|export| export.placement = wrong.to_owned());
        }
        for wrong in
            ["", "-x", "0.19 --to /", "0.19\ntouch x", "0.19$(touch x)", "`x`", "0.19;x", "0.19\u{202e}"]
        {
            refused(&|export| export.framework_version = wrong.to_owned());
        }
        for wrong in [
            "",
            ".",
            "..",
            ".bashrc",
            "-rf",
            "a/b",
            "../a",
            "/etc/passwd",
            "a b",
            "a$(x)",
            "a\n",
            "é",
            "hostfile",
        ] {
            refused(&|export| export.files[0].name = wrong.to_owned());
        }
        for wrong in ["", "A B", "A=B", "1A", "A;x", "É"] {
            refused(&|export| drop(export.environment.insert(wrong.to_owned(), String::new())));
        }
        refused(&|export| drop(export.environment.insert("A".to_owned(), "x\ny".to_owned())));
        refused(&|export| export.command.push("a\nb".to_owned()));
        for wrong in ["-oProxyCommand=touch${IFS}x", "a b", "$(touch x)", "..", "a\u{200b}"] {
            refused(&|export| export.ranks[0].device.as_mut().unwrap().node = wrong.to_owned());
            refused(&|export| export.ranks[0].device.as_mut().unwrap().uuid = wrong.to_owned());
        }
    }
}
