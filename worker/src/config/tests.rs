//! Pins that the example works, and that a mistake in the file is named.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::offload::CopyPace;

use super::value::CpuSlots;
use super::*;

const EXAMPLE: &str = include_str!("../../../deploy/worker.toml");

fn parse(text: &str) -> Result<ConfigFile, String> {
    ConfigFile::parse(text)
}

#[test]
fn the_shipped_example_is_valid_with_every_line_uncommented() {
    let plain = parse(EXAMPLE).unwrap();
    assert!(plain.server.is_some());
    // A line `#key = …` is a setting that is left at its default, a line `# text` is a comment.
    let whole: String = EXAMPLE
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(setting) if !setting.starts_with(' ') && !setting.is_empty() => format!("{setting}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let whole = parse(&whole).unwrap();
    assert_eq!(whole.cpu_slots, Some(CpuSlots { count: 4, capacity: Bytes(2 << 30) }));
    assert_eq!(whole.allow_shared_devices, Some(true));
    assert_eq!(whole.host_memory, Some(Bytes(64 << 30)));
    assert_eq!(whole.cpu_links, Some(CopyPace { host: Some(1e9), peer: Some(8e9) }));
    let names: Vec<String> = whole.custom_profilers.keys().map(ToString::to_string).collect();
    assert_eq!(names, ["megatron-gpt", "stand-in"]);
    let megatron = &whole.custom_profilers.values().next().unwrap();
    assert_eq!(megatron.ledger, Accounting::Reserved);
    assert_eq!(megatron.timeout, Some(Duration::from_secs(1_800)));
}

#[test]
fn a_mistake_is_named_by_its_key() {
    let command = "[custom_profilers.x]\nargv = ['p']\naccounting = 'reserved'\n";
    for (text, words) in [
        ("serve = 'http://x:1'", "unknown field `serve`"),
        ("server = 'https://x:1'", "server: the scheme https is not supported"),
        ("cpu_slots = '4'", "cpu_slots: not a number of slots"),
        ("host_memory = 'much'", "host_memory: \"much\" is not a byte count"),
        ("host_memory = 64", "invalid type: integer"),
        ("cpu_links = 'host=fast'", "cpu_links: \"fast\" is not a bandwidth"),
        ("gpu_shares = 65", "gpu_shares: 65 is out of range. Use 1 to 64."),
        ("hang_timeout = '90'", "hang_timeout: not a duration with a unit"),
        ("log_format = 'xml'", "log_format: \"xml\" is not"),
        (
            "[custom_profilers.'A b']\nargv = ['p']\naccounting = 'reserved'",
            "\"A b\" is not the name of a custom profiler",
        ),
        ("[custom_profilers.x]\nargv = []\naccounting = 'reserved'", "custom_profilers.x.argv: is empty"),
        ("[custom_profilers.x]\nargv = ['p']", "missing field `accounting`"),
        ("[custom_profilers.x]\nargv = ['p']\naccounting = 'total'", "unknown variant `total`"),
        (&format!("{command}shell = true"), "unknown field `shell`"),
        (&format!("{command}timeout = '0s'"), "custom_profilers.x.timeout: less than 100ms"),
        (&format!("{command}working_directory = 'here'"), "here is not an absolute path"),
        (
            &format!("{command}environment = {{ LOADMASTER_RUN = 'x' }}"),
            "LOADMASTER_RUN: is set by the worker",
        ),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(words), "{error:?} lacks {words:?}");
    }
}

/// Pins that a file which others can write to gives them no way to run programs as this worker.
#[test]
fn a_file_that_others_can_write_to_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("worker.toml");
    fs::write(&path, "server = 'http://x:1'").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(ConfigFile::read(&path).is_ok());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).unwrap();
    let error = ConfigFile::read(&path).unwrap_err().to_string();
    assert!(error.contains("mode 664") && error.contains("chmod 644"), "{error}");
    let missing = ConfigFile::read(&folder.path().join("none")).unwrap_err().to_string();
    assert!(missing.contains("cannot be read"), "{missing}");
}
