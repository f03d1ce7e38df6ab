//! The matrix that `nvidia-smi topo -m` prints: `X`, `NV18`, `PIX`, `PXB`, `PHB`, `NODE`, `SYS` between GPUs.

use super::super::{
    ClusterParts, ClusterSource, DeviceLink, LinkClass, MAX_LINKS, MAX_NODE_DEVICES, Node, catalog, priors,
};
use super::{ImportOptions, fill};
use crate::error::{Invalid, in_range};
use crate::warning::{Warning, WarningCode};
use crate::wire::reading::{self, Wanted};

/// Most words of a line that are looked at: GPUs come first, network cards and affinities behind them.
const MAX_WORDS: usize = 8 * MAX_NODE_DEVICES;

/// # Errors
/// Names the line, or the option that is missing.
pub(super) fn parts(
    text: &str,
    options: &ImportOptions,
    wanted: Wanted<'_>,
) -> Result<ClusterParts, Invalid> {
    let kind = fill::kind(options)?;
    let matrix = matrix(text, wanted)?;
    let count = matrix.len() as u32;
    if options.devices_per_node.is_some_and(|asked| asked != count) {
        let why = format!(
            "{} is not the number of GPUs in the file. Use {count}, or remove this field",
            options.devices_per_node.unwrap_or_default()
        );
        return Err(Invalid::field("options.devices_per_node", why));
    }
    let links = links(&matrix, &kind.name);
    let warnings = without_nvlink(&matrix, &kind.name);
    let names = fill::names(options)?;
    // Before every node has a copy.
    in_range("nodes.links", names.len().saturating_mul(links.len()), 0..=MAX_LINKS)?;
    let nodes = names.into_iter().map(|name| Node {
        link: None,
        link_class: None,
        links: links.clone(),
        ..fill::node(name, count, &kind.name, options)
    });
    Ok(ClusterParts {
        nodes: nodes.collect(),
        kinds: vec![kind],
        tiers: Vec::new(),
        domains: Vec::new(),
        source: ClusterSource::NvidiaSmi,
        warnings,
    })
}

type Row = Vec<Option<(LinkClass, u32)>>;

/// Row by row what connects two GPUs; none on the diagonal.
fn matrix(text: &str, wanted: Wanted<'_>) -> Result<Vec<Row>, Invalid> {
    let mut columns = None;
    let mut rows: Vec<Row> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        reading::check(wanted)?;
        let line = without_escapes(line);
        let words: Vec<&str> = line.split_whitespace().take(MAX_WORDS).collect();
        let field = format!("line {}", index + 1);
        let gpus = words.iter().take_while(|word| gpu(word).is_some()).count();
        match columns {
            None if gpus > 0 => {
                if gpus > MAX_NODE_DEVICES {
                    return Err(invalid!(field, "has more than {MAX_NODE_DEVICES} GPUs. Import one node"));
                }
                columns = Some(gpus);
            }
            Some(columns) if gpus == 1 && rows.len() < columns => {
                let number = words.first().and_then(|word| gpu(word));
                if number != Some(rows.len()) {
                    let (word, row) = (words.first().copied().unwrap_or_default(), rows.len());
                    let why = format!(
                        "begins with {word:?}, not GPU{row}. Copy the whole output of nvidia-smi topo -m"
                    );
                    return Err(Invalid::field(field, why));
                }
                rows.push(row(&field, words.get(1..).unwrap_or_default(), columns, rows.len())?);
            }
            _ => {}
        }
    }
    let columns = columns.ok_or_else(|| {
        Invalid::field(
            "",
            "has no header line with GPU0, GPU1 and so on. Copy the whole output of nvidia-smi topo -m",
        )
    })?;
    if rows.len() != columns {
        let why = format!(
            "has {columns} GPU columns and {} rows. Copy the whole output of nvidia-smi topo -m",
            rows.len()
        );
        return Err(Invalid::field("", why));
    }
    Ok(rows)
}

fn row(field: &str, cells: &[&str], columns: usize, own: usize) -> Result<Row, Invalid> {
    if cells.len() < columns {
        let why = format!(
            "has {} cells instead of {columns}. Copy the whole output of nvidia-smi topo -m",
            cells.len()
        );
        return Err(Invalid::field(field, why));
    }
    let cells = cells.iter().take(columns).enumerate();
    cells
        .map(|(column, cell)| match *cell {
            "X" if column == own => Ok(None),
            cell if column != own => LinkClass::parse(cell).map(Some).ok_or_else(|| {
                invalid!(field, "{cell:?} is not a class of links. Use NV#, PIX, PXB, PHB, NODE or SYS")
            }),
            cell => Err(invalid!(
                field,
                "{cell:?} is in the column of GPU{own} itself, where X is expected. Copy the whole output of \
                 nvidia-smi topo -m"
            )),
        })
        .collect()
}

/// The number in `GPU3`.
fn gpu(word: &str) -> Option<usize> {
    word.strip_prefix("GPU").filter(|number| !number.is_empty()).and_then(|number| number.parse().ok())
}

/// On terminals the header is underlined.
fn without_escapes(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        text.push_str(before);
        let end = after.find(|c: char| c.is_ascii_alphabetic()).map_or(after.len(), |end| end + 1);
        rest = after.get(end..).unwrap_or_default();
    }
    text + rest
}

/// Both directions: that they agree is checked with everything else.
fn links(matrix: &[Row], kind: &str) -> Vec<DeviceLink> {
    // Of a kind that the catalog does not have, the most common generation: the importer warns of it by name.
    let per_nvlink =
        priors::nvlink_of_kind(kind).unwrap_or_else(|| catalog::NvLinkGeneration::Third.reached());
    let link = |a: usize, b: usize, (class, count): (LinkClass, u32)| DeviceLink {
        a: a as u32,
        b: b as u32,
        class: Some(class),
        count,
        link: priors::between_gpus(class, count, per_nvlink, priors::pcie(3, 16)),
    };
    let row = |(a, row): (usize, &Row)| {
        let cells = row.iter().enumerate();
        cells.filter_map(|(b, cell)| cell.map(|cell| link(a, b, cell))).collect::<Vec<_>>()
    };
    matrix.iter().enumerate().flat_map(row).collect()
}

/// GPUs without NVLink where others, or all of their kind, have it: a fault, not a property of the machine.
fn without_nvlink(matrix: &[Row], kind: &str) -> Vec<Warning> {
    let has = |row: &Row| row.iter().flatten().any(|(class, _)| *class == LinkClass::NvLink);
    if !matrix.iter().any(has) {
        let should = catalog::find(kind).is_some_and(|row| row.interconnect.is_beyond_pcie());
        let warning = WarningCode::NvlinkMissing.says(format!(
            "no two GPUs are connected by NVLink, although {kind:?} has NVLinks. The plan uses PCIe links. Check the \
             fabric manager of the driver"
        ));
        return (should && matrix.len() > 1).then_some(warning).into_iter().collect();
    }
    let lacking = matrix.iter().enumerate().filter(|(_, row)| !has(row));
    lacking
        .map(|(gpu, _)| {
            let why = format!(
                "GPU{gpu} has no NVLink, but other GPUs of the node have NVLinks. Check the health of this GPU"
            );
            WarningCode::NvlinkMissing.says(why)
        })
        .collect()
}
