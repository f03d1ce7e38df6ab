//! The catalog of device kinds: the only table of what a device is known to have before anything is measured on it.
//!
//! A row is found by [`find`] under its own name or one of its spellings: the driver's product name, Kubernetes' label
//! `nvidia.com/gpu.product`, Slurm's type, and the short names that people write. Upper and lower case, hyphens,
//! underscores, spaces and the maker's name make no difference. Plans use the bandwidth that collectives reach
//! ([`NvLinkGeneration::reached`], [`Xgmi::reached`]); the data sheet's is kept beside it, so that no one takes one
//! for the other.
//!
//! Bandwidths that collectives reach are those that NCCL and RCCL reckon with (`src/graph/topo.h` of both). What NCCL
//! reached on one node of 8 devices, as a check (all-gather, bus bandwidth; ai-dynamo/aiconfigurator, commit 095f58a,
//! Apache-2.0): A100 205 of 240 GB/s, H100 335 and H200 337 of 371 GB/s, B200 617 and B300 621 of 722 GB/s.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::bytes::Bytes;

/// What connects the devices of a node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Interconnect {
    /// NVLinks, all of which any two devices use: over `NVSwitch`es.
    NvLink(NvLinks),
    /// NVLinks of which a device has an equal share to each other device of its node, without a switch.
    NvLinkMesh(NvLinks),
    /// One xGMI link to each other device of the node.
    Xgmi(Xgmi),
    /// PCIe with 16 lanes of this generation; pairs of cards may have an NVLink bridge, whose links are of that generation.
    Pcie {
        /// Generation of PCIe.
        generation: u32,
        /// Generation of the NVLinks of a bridge; none where no bridge exists.
        bridge: Option<NvLinkGeneration>,
    },
    /// PCIe alone, and the driver copies between devices through the host's memory.
    ThroughHost {
        /// Generation of PCIe.
        generation: u32,
    },
}

/// The NVLinks of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NvLinks {
    /// How many.
    pub count: u32,
    /// What each carries.
    pub generation: NvLinkGeneration,
}

/// Bytes per second of one xGMI link and one way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Xgmi {
    /// By data sheet.
    pub data_sheet: f64,
    /// As collectives reach it (RCCL, `src/graph/topo.h`).
    pub reached: f64,
}

/// A generation of NVLink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NvLinkGeneration {
    /// Pascal's.
    First,
    /// Volta's.
    Second,
    /// Ampere's.
    Third,
    /// Hopper's.
    Fourth,
    /// Blackwell's.
    Fifth,
}

impl NvLinkGeneration {
    /// Bytes per second of one link and one way by data sheet.
    pub fn data_sheet(self) -> f64 {
        match self {
            Self::First => 20e9,
            Self::Second | Self::Third | Self::Fourth => 25e9,
            Self::Fifth => 50e9,
        }
    }

    /// Bytes per second of one link and one way as collectives reach it (NCCL, `src/graph/topo.h`).
    pub fn reached(self) -> f64 {
        match self {
            Self::First => 18.0e9,
            Self::Second | Self::Third => 20.0e9,
            Self::Fourth => 20.6e9,
            Self::Fifth => 40.1e9,
        }
    }
}

impl Interconnect {
    /// The generation of its NVLinks, or of those of a bridge; none without.
    pub fn nvlink_generation(self) -> Option<NvLinkGeneration> {
        match self {
            Self::NvLink(links) | Self::NvLinkMesh(links) => Some(links.generation),
            Self::Pcie { bridge, .. } => bridge,
            Self::Xgmi(_) | Self::ThroughHost { .. } => None,
        }
    }

    /// Whether devices of a node reach each other over more than PCIe.
    pub fn is_beyond_pcie(self) -> bool {
        matches!(self, Self::NvLink(_) | Self::NvLinkMesh(_) | Self::Xgmi(_))
    }
}

/// Dense peak rates, 10¹² operations per second; none where the device has no such units, or the sources do not say.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PeakRates {
    /// FP32 outside matrix units.
    pub fp32: Option<f64>,
    /// TF32.
    pub tf32: Option<f64>,
    /// BF16 with FP32 accumulation.
    pub bf16: Option<f64>,
    /// FP16 with FP32 accumulation.
    pub fp16: Option<f64>,
    /// FP8.
    pub fp8: Option<f64>,
    /// FP4.
    pub fp4: Option<f64>,
}

/// A row of the catalog.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CatalogKind {
    /// As its driver names it.
    pub name: &'static str,
    /// Other names, compared as [`find`] compares.
    pub spellings: &'static [&'static str],
    /// GiB that an empty device offers to a process; none where no log is known that shows it.
    pub usable_gib: Option<f64>,
    /// Dense peak rates by data sheet.
    pub peak: PeakRates,
    /// Bytes per second of its memory by data sheet, in 10⁹.
    pub memory_gb_s: f64,
    /// What connects the devices of a node.
    pub interconnect: Interconnect,
    /// Most devices that NVLinks connect across nodes; none where they end at the node.
    pub nvlink_domain: Option<u32>,
    /// Where the row comes from.
    pub source: &'static str,
}

impl CatalogKind {
    /// Returns the memory that an empty device offers to a process, in whole MiB; none where it is not known.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the table has hundreds of GiB at most"
    )]
    pub fn usable_memory(&self) -> Option<Bytes> {
        self.usable_gib.map(|gib| Bytes(((gib * 1024.0) as u64) << 20))
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.spellings.iter().copied())
    }

    /// Returns the shortest of its names.
    fn short_name(&self) -> &'static str {
        self.names().min_by_key(|name| name.len()).unwrap_or(self.name)
    }
}

/// Returns short names of the kinds that begin most like this one; of all kinds where none begins like it.
pub fn similar(kind: &str) -> Vec<&'static str> {
    let asked = spelling(kind);
    let alike = |name: &str| spelling(name).bytes().zip(asked.bytes()).take_while(|(a, b)| a == b).count();
    let alike = |row: &CatalogKind| row.names().map(alike).max().unwrap_or_default();
    let most = CATALOG.iter().map(alike).max();
    CATALOG.iter().filter(|row| Some(alike(row)) == most).map(CatalogKind::short_name).collect()
}

/// The row of a kind; none of a kind that is not in the catalog.
pub fn find(kind: &str) -> Option<&'static CatalogKind> {
    static BY_SPELLING: LazyLock<HashMap<String, &'static CatalogKind>> = LazyLock::new(|| {
        let spellings = |row: &'static CatalogKind| row.names().map(move |name| (spelling(name), row));
        CATALOG.iter().flat_map(spellings).collect()
    });
    BY_SPELLING.get(&spelling(kind)).copied()
}

/// A name as the catalog compares it: lower case without hyphens, underscores, spaces, the maker's names, and the suffix
/// that Kubernetes gives to a GPU that is shared in time.
fn spelling(name: &str) -> String {
    const MAKERS: [&str; 6] = ["nvidia", "amd", "tesla", "quadro", "geforce", "instinct"];
    let kept = name.chars().filter(|c| !matches!(c, '-' | '_') && !c.is_whitespace());
    let lower: String = kept.flat_map(char::to_lowercase).collect();
    let mut rest = lower.as_str();
    while let Some(shorter) = MAKERS.iter().find_map(|maker| rest.strip_prefix(maker)) {
        rest = shorter;
    }
    rest.strip_suffix("shared").unwrap_or(rest).to_owned()
}

const ML_ENGINEERING: &str = "stas00/ml-engineering compute/accelerator/README.md@744d01e";
const AICONFIGURATOR: &str = "ai-dynamo/aiconfigurator aic-core systems/*.yaml@095f58a";
const SYSTEMS: &str = "ai-dynamo/aiconfigurator aic-core systems/*.yaml@095f58a; stas00/ml-engineering \
                       compute/accelerator/README.md@744d01e; pytorch/torchtitan tools/utils.py@b5bcd76";
const TORCHTITAN: &str = "pytorch/torchtitan tools/utils.py@b5bcd76; peaks besides BF16 from memory";
const AMD: &str = "stas00/ml-engineering compute/accelerator/README.md@744d01e; pytorch/torchtitan tools/utils.py@b5bcd76; \
                   xGMI by RCCL src/graph/topo.h";
const VOLTA: &str = "cli99/llm-analysis gpu_configs@d841e40; NVLinks by NVIDIA's data sheet";

const fn nvlink(count: u32, generation: NvLinkGeneration) -> Interconnect {
    Interconnect::NvLink(NvLinks { count, generation })
}

const fn mesh(count: u32, generation: NvLinkGeneration) -> Interconnect {
    Interconnect::NvLinkMesh(NvLinks { count, generation })
}

/// In 10⁹ bytes per second.
const fn xgmi(data_sheet: f64, reached: f64) -> Interconnect {
    Interconnect::Xgmi(Xgmi { data_sheet: data_sheet * 1e9, reached: reached * 1e9 })
}

/// FP32, TF32, BF16, FP16, FP8, FP4; 0 where there is none or no one says.
const fn peaks(rates: [f64; 6]) -> PeakRates {
    const fn known(rate: f64) -> Option<f64> {
        if rate > 0.0 { Some(rate) } else { None }
    }
    let [fp32, tf32, bf16, fp16, fp8, fp4] = rates;
    PeakRates {
        fp32: known(fp32),
        tf32: known(tf32),
        bf16: known(bf16),
        fp16: known(fp16),
        fp8: known(fp8),
        fp4: known(fp4),
    }
}

const HOPPER: PeakRates = peaks([67.0, 494.5, 989.0, 989.0, 1979.0, 0.0]);
const AMPERE: PeakRates = peaks([19.5, 156.0, 312.0, 312.0, 0.0, 0.0]);
const BLACKWELL: PeakRates = peaks([80.0, 1125.0, 2250.0, 2250.0, 4500.0, 9000.0]);

/// Every kind that is known, by maker and age.
pub const CATALOG: [CatalogKind; 31] = [
    CatalogKind {
        name: "Tesla P100-SXM2-16GB",
        spellings: &["P100-SXM2", "P100-SXM"],
        usable_gib: None,
        peak: peaks([10.6, 0.0, 0.0, 21.2, 0.0, 0.0]),
        memory_gb_s: 732.0,
        interconnect: nvlink(4, NvLinkGeneration::First),
        nvlink_domain: None,
        source: "NVIDIA's data sheet (not verified); NVLinks by NCCL src/graph/topo.h",
    },
    CatalogKind {
        name: "Tesla V100-SXM2-16GB",
        spellings: &["V100", "V100-SXM2", "V100-SXM", "V100-SXM2-16", "V100-SXM-16GB", "V100-16GB"],
        usable_gib: Some(15.78),
        peak: peaks([15.7, 0.0, 0.0, 125.0, 0.0, 0.0]),
        memory_gb_s: 900.0,
        interconnect: nvlink(6, NvLinkGeneration::Second),
        nvlink_domain: None,
        source: VOLTA,
    },
    CatalogKind {
        name: "Tesla V100-SXM2-32GB",
        spellings: &[
            "V100-SXM2-32",
            "V100-SXM-32GB",
            "V100-SXM3-32GB",
            "V100-SXM3-32GB-H",
            "V100-SXM2-32GB-LS",
            "V100-32GB",
        ],
        usable_gib: Some(31.74),
        peak: peaks([15.7, 0.0, 0.0, 125.0, 0.0, 0.0]),
        memory_gb_s: 900.0,
        interconnect: nvlink(6, NvLinkGeneration::Second),
        nvlink_domain: None,
        source: VOLTA,
    },
    CatalogKind {
        name: "NVIDIA A100-SXM4-40GB",
        spellings: &[
            "A100-40",
            "A100-SXM-40",
            "A100-SXM-40GB",
            "A100-40GB",
            "A100-40GB-SXM4",
            "A100-40GB-SXM",
        ],
        usable_gib: Some(39.4),
        peak: AMPERE,
        memory_gb_s: 1555.0,
        interconnect: nvlink(12, NvLinkGeneration::Third),
        nvlink_domain: None,
        source: ML_ENGINEERING,
    },
    CatalogKind {
        name: "NVIDIA A100-SXM4-80GB",
        spellings: &[
            "A100",
            "A100-80",
            "A100-SXM",
            "A100-SXM4",
            "A100-SXM-80",
            "A100-SXM-80GB",
            "A100-SXM-64GB",
            "A100-80GB",
            "A100-80GB-SXM4",
            "A100-80GB-SXM",
        ],
        usable_gib: Some(79.15),
        peak: AMPERE,
        memory_gb_s: 2039.0,
        interconnect: nvlink(12, NvLinkGeneration::Third),
        nvlink_domain: None,
        source: SYSTEMS,
    },
    CatalogKind {
        name: "NVIDIA A100 80GB PCIe",
        spellings: &[
            "A100-PCIe",
            "A100-PCIe-80",
            "A100-PCIe-80GB",
            "A100-80GB-PCIe-LC",
            "A100-PCIe-40GB",
            "A100-40GB-PCIe",
        ],
        usable_gib: Some(79.15),
        peak: AMPERE,
        memory_gb_s: 1935.0,
        interconnect: Interconnect::Pcie { generation: 4, bridge: Some(NvLinkGeneration::Third) },
        nvlink_domain: None,
        source: ML_ENGINEERING,
    },
    CatalogKind {
        name: "NVIDIA A800-SXM4-80GB",
        spellings: &["A800", "A800-SXM", "A800-SXM4", "A800-SXM-80", "A800-80GB", "A800-SXM4-40GB"],
        usable_gib: Some(79.15),
        peak: AMPERE,
        memory_gb_s: 2039.0,
        interconnect: nvlink(8, NvLinkGeneration::Third),
        nvlink_domain: None,
        source: "an A100 with 400 GB/s of NVLink in total: NVIDIA/nccl#933 and #1674; stas00/ml-engineering \
                 compute/accelerator/README.md@744d01e",
    },
    CatalogKind {
        name: "NVIDIA H100 80GB HBM3",
        spellings: &["H100", "H100-SXM", "H100-SXM5", "H100-SXM5-80GB", "H100-SXM-80GB", "H100-80GB"],
        usable_gib: Some(79.18),
        peak: HOPPER,
        memory_gb_s: 3350.0,
        interconnect: nvlink(18, NvLinkGeneration::Fourth),
        nvlink_domain: None,
        source: SYSTEMS,
    },
    CatalogKind {
        name: "NVIDIA H100 PCIe",
        spellings: &["H100-PCIe-80GB", "H100-80GB-PCIe"],
        usable_gib: Some(79.18),
        peak: peaks([51.0, 378.0, 756.5, 756.5, 1513.0, 0.0]),
        memory_gb_s: 2000.0,
        interconnect: Interconnect::Pcie { generation: 5, bridge: Some(NvLinkGeneration::Fourth) },
        nvlink_domain: None,
        source: "stas00/ml-engineering compute/accelerator/README.md@744d01e; pytorch/torchtitan tools/utils.py@b5bcd76",
    },
    CatalogKind {
        name: "NVIDIA H100 96GB HBM2e",
        spellings: &["H100-SXM-96", "H100-SXM5-96GB", "H100-SXM-96-HBM2e", "H100-96GB"],
        usable_gib: Some(94.99),
        peak: HOPPER,
        memory_gb_s: 2400.0,
        interconnect: nvlink(18, NvLinkGeneration::Fourth),
        nvlink_domain: None,
        source: "pytorch/torchtitan benchmarks/*.md@b5bcd76; peak rates of the 700 W H100 (this one has 500 W)",
    },
    CatalogKind {
        name: "NVIDIA H100 NVL",
        spellings: &["H100-NVL-94GB"],
        usable_gib: None,
        peak: peaks([60.0, 417.0, 835.0, 835.0, 1671.0, 0.0]),
        memory_gb_s: 3900.0,
        interconnect: Interconnect::Pcie { generation: 5, bridge: Some(NvLinkGeneration::Fourth) },
        nvlink_domain: None,
        source: TORCHTITAN,
    },
    CatalogKind {
        name: "NVIDIA H800",
        spellings: &["H800-SXM", "H800-SXM5", "H800-SXM5-80GB", "H800-80GB-HBM3", "H800-80GB"],
        usable_gib: None,
        peak: peaks([67.0, 494.5, 989.0, 989.0, 1979.0, 0.0]),
        memory_gb_s: 3350.0,
        interconnect: nvlink(8, NvLinkGeneration::Fourth),
        nvlink_domain: None,
        source: "an H100 with 8 NVLinks: modelscope/ms-swift#5530; aliyun/SimAI calbusbw.h",
    },
    CatalogKind {
        name: "NVIDIA H20",
        spellings: &["H20-SXM", "H20-96GB", "H20-96GB-HBM3", "H20-3e", "H20-141GB"],
        usable_gib: None,
        peak: peaks([44.0, 74.0, 148.0, 148.0, 296.0, 0.0]),
        memory_gb_s: 4000.0,
        interconnect: nvlink(18, NvLinkGeneration::Fourth),
        nvlink_domain: None,
        source: "18 NVLinks: deepseek-ai/DeepEP#139, VITA-MLLM/Long-VITA#7; peaks by NVIDIA's data sheet (not verified)",
    },
    CatalogKind {
        name: "NVIDIA H200",
        spellings: &["H200-SXM", "H200-SXM5", "H200-141GB", "H200-SXM-141GB", "H200-141GB-HBM3e"],
        usable_gib: Some(139.81),
        peak: HOPPER,
        memory_gb_s: 4800.0,
        interconnect: nvlink(18, NvLinkGeneration::Fourth),
        nvlink_domain: None,
        source: SYSTEMS,
    },
    CatalogKind {
        name: "NVIDIA H200 NVL",
        spellings: &["H200-NVL-141GB"],
        usable_gib: None,
        peak: peaks([60.0, 417.5, 835.5, 835.5, 1670.5, 0.0]),
        memory_gb_s: 4800.0,
        interconnect: Interconnect::Pcie { generation: 5, bridge: Some(NvLinkGeneration::Fourth) },
        nvlink_domain: None,
        source: "NVIDIA's data sheet, from memory",
    },
    CatalogKind {
        // NVML counts the memory of the processor in the name: 480 GB.
        name: "NVIDIA GH200 480GB",
        spellings: &[
            "GH200",
            "GH200-96",
            "GH200-96GB",
            "GH200-96GB-HBM3",
            "GH200-120GB",
            "GH-96",
            "Grace Hopper",
        ],
        usable_gib: Some(94.5),
        peak: HOPPER,
        memory_gb_s: 4000.0,
        interconnect: mesh(18, NvLinkGeneration::Fourth),
        nvlink_domain: None,
        source: ML_ENGINEERING,
    },
    CatalogKind {
        name: "NVIDIA GH200 144G HBM3e",
        spellings: &["GH200-144", "GH200-144GB", "GH200-144GB-HBM3e"],
        usable_gib: None,
        peak: HOPPER,
        memory_gb_s: 4800.0,
        interconnect: mesh(18, NvLinkGeneration::Fourth),
        nvlink_domain: None,
        source: ML_ENGINEERING,
    },
    CatalogKind {
        name: "NVIDIA B200",
        spellings: &["B200-SXM", "B200-SXM6", "B200-180GB", "B200-192GB", "B200-SXM-180GB"],
        usable_gib: Some(178.35),
        peak: BLACKWELL,
        memory_gb_s: 7700.0,
        interconnect: nvlink(18, NvLinkGeneration::Fifth),
        nvlink_domain: None,
        source: SYSTEMS,
    },
    CatalogKind {
        name: "NVIDIA GB200",
        spellings: &["GB200-NVL72", "GB200-186GB", "GB200-192GB", "GB200-NVL"],
        usable_gib: Some(184.3),
        peak: peaks([80.0, 1250.0, 2500.0, 2500.0, 5000.0, 10000.0]),
        memory_gb_s: 8000.0,
        interconnect: nvlink(18, NvLinkGeneration::Fifth),
        nvlink_domain: Some(72),
        source: SYSTEMS,
    },
    CatalogKind {
        name: "NVIDIA B300 SXM6 AC",
        spellings: &["B300", "B300-SXM", "B300-SXM6", "B300-288GB", "B300-SXM6-AC-288GB"],
        usable_gib: Some(268.6),
        peak: peaks([80.0, 1125.0, 2250.0, 2250.0, 4500.0, 12600.0]),
        memory_gb_s: 8000.0,
        interconnect: nvlink(18, NvLinkGeneration::Fifth),
        nvlink_domain: None,
        source: SYSTEMS,
    },
    CatalogKind {
        name: "NVIDIA GB300",
        spellings: &["GB300-NVL72", "GB300-288GB", "GB300-NVL"],
        usable_gib: Some(276.5),
        peak: peaks([80.0, 1250.0, 2500.0, 2500.0, 5000.0, 15000.0]),
        memory_gb_s: 8000.0,
        interconnect: nvlink(18, NvLinkGeneration::Fifth),
        nvlink_domain: Some(72),
        source: SYSTEMS,
    },
    CatalogKind {
        name: "NVIDIA L40S",
        spellings: &["L40S-48GB"],
        usable_gib: Some(44.53),
        peak: peaks([91.6, 183.0, 362.0, 362.0, 733.0, 0.0]),
        memory_gb_s: 864.0,
        interconnect: Interconnect::Pcie { generation: 4, bridge: None },
        nvlink_domain: None,
        source: SYSTEMS,
    },
    CatalogKind {
        name: "NVIDIA RTX A6000",
        spellings: &["A6000", "RTX-A6000-48GB"],
        usable_gib: Some(47.5),
        peak: peaks([38.7, 77.4, 154.85, 154.85, 0.0, 0.0]),
        memory_gb_s: 768.0,
        interconnect: Interconnect::Pcie { generation: 4, bridge: Some(NvLinkGeneration::Third) },
        nvlink_domain: None,
        source: TORCHTITAN,
    },
    CatalogKind {
        name: "NVIDIA L4",
        spellings: &["L4-24GB"],
        usable_gib: Some(22.0),
        peak: peaks([30.3, 60.0, 121.0, 121.0, 242.0, 0.0]),
        memory_gb_s: 300.0,
        interconnect: Interconnect::Pcie { generation: 4, bridge: None },
        nvlink_domain: None,
        source: AICONFIGURATOR,
    },
    CatalogKind {
        name: "NVIDIA GeForce RTX 4090",
        spellings: &["4090", "RTX-4090-24GB"],
        usable_gib: Some(23.68),
        peak: peaks([82.6, 82.6, 165.0, 165.0, 330.0, 0.0]),
        memory_gb_s: 1008.0,
        interconnect: Interconnect::ThroughHost { generation: 4 },
        nvlink_domain: None,
        source: "NVIDIA's data sheet (not verified); the driver does not support peer-to-peer copies",
    },
    CatalogKind {
        name: "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        spellings: &["RTX-PRO-6000", "RTX-PRO-6000-Blackwell", "RTX-PRO-6000-Blackwell-Workstation-Edition"],
        usable_gib: None,
        peak: peaks([0.0, 0.0, 467.8, 467.8, 935.6, 0.0]),
        memory_gb_s: 1792.0,
        interconnect: Interconnect::Pcie { generation: 5, bridge: None },
        nvlink_domain: None,
        source: AICONFIGURATOR,
    },
    CatalogKind {
        // One of its two dies, which is a device for the driver. Between the dies of one module there are four links.
        name: "AMD Instinct MI250X",
        spellings: &["MI250X-64GB"],
        usable_gib: Some(63.98),
        peak: peaks([23.9, 0.0, 191.5, 191.5, 0.0, 0.0]),
        memory_gb_s: 1638.0,
        interconnect: xgmi(50.0, 36.0),
        nvlink_domain: None,
        source: AMD,
    },
    CatalogKind {
        name: "AMD Instinct MI300A",
        spellings: &["MI300A-128GB"],
        usable_gib: None,
        peak: peaks([122.6, 490.3, 980.6, 980.6, 1961.2, 0.0]),
        memory_gb_s: 5300.0,
        interconnect: xgmi(64.0, 48.0),
        nvlink_domain: None,
        source: "ROCm/rccl tools/topo_expl/models/topo_4p_942.xml@fde5325; 48 GB/s: ROCm/rccl#1210; peaks by AMD's data sheet \
            (not verified)",
    },
    CatalogKind {
        name: "AMD Instinct MI300X",
        spellings: &["MI300X-192GB", "MI300X-OAM", "MI300X-VF"],
        usable_gib: Some(191.98),
        peak: peaks([163.4, 653.7, 1307.0, 1307.0, 2614.0, 0.0]),
        memory_gb_s: 5300.0,
        interconnect: xgmi(64.0, 48.0),
        nvlink_domain: None,
        source: AMD,
    },
    CatalogKind {
        name: "AMD Instinct MI325X",
        spellings: &["MI325X-256GB", "MI325-OAM"],
        usable_gib: Some(255.98),
        peak: peaks([163.4, 653.7, 1300.0, 1300.0, 2610.0, 0.0]),
        memory_gb_s: 6000.0,
        interconnect: xgmi(64.0, 48.0),
        nvlink_domain: None,
        source: AMD,
    },
    CatalogKind {
        name: "AMD Instinct MI355X",
        spellings: &["MI355X-288GB", "MI355-OAM"],
        usable_gib: Some(287.99),
        peak: peaks([157.3, 0.0, 2500.0, 2500.0, 5000.0, 10000.0]),
        memory_gb_s: 8000.0,
        interconnect: xgmi(77.0, 48.0),
        nvlink_domain: None,
        source: AMD,
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A spelling of two kinds would make the link of one of them a matter of chance.
    #[test]
    fn every_spelling_names_one_kind() {
        let mut seen: BTreeMap<String, &str> = BTreeMap::new();
        for row in &CATALOG {
            for name in row.names() {
                let other = seen.insert(spelling(name), row.name);
                assert!(other.is_none(), "{name:?} is of {:?} and of {other:?}", row.name);
                assert_eq!(find(name), Some(row));
            }
            assert!(!row.source.is_empty() && row.memory_gb_s > 0.0, "{}", row.name);
        }
    }

    #[test]
    fn spellings_of_drivers_kubernetes_and_slurm_are_alike() {
        let row = find("NVIDIA H100 80GB HBM3").unwrap();
        for name in [
            "NVIDIA-H100-80GB-HBM3",
            "nvidia_h100_80gb_hbm3",
            "NVIDIA-H100-80GB-HBM3-SHARED",
            "h100",
            "NVIDIA H100",
        ] {
            assert_eq!(find(name), Some(row), "{name}");
        }
        assert_eq!(find("tesla_v100-sxm2-16gb").unwrap().name, "Tesla V100-SXM2-16GB");
        assert_eq!(find("amd_instinct_mi300x").unwrap().name, "AMD Instinct MI300X");
        // A slice of a GPU has no NVLinks, and a kind that no one listed is none of its neighbours.
        for unknown in ["NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA H100 CNX", "cpu", "", "NVIDIA"] {
            assert_eq!(find(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn kinds_have_memory_and_neighbours() {
        assert_eq!(find("8").map(|row| row.name), None);
        assert_eq!(find("H100").unwrap().usable_memory(), Some(Bytes(81_080 << 20)));
        assert_eq!(find("A100-40").unwrap().usable_memory(), Some(Bytes(40_345 << 20)));
        assert_eq!(find("H800").unwrap().usable_memory(), None);
        assert_eq!(similar("H1000")[0], "H100");
        assert!(similar("A100-41").contains(&"A100-40") && similar("xyz").len() == CATALOG.len());
    }

    /// What collectives reach is never more than the data sheet says.
    #[test]
    fn nobody_reaches_more_than_the_data_sheet() {
        for row in &CATALOG {
            let (data_sheet, reached) = match row.interconnect {
                Interconnect::Xgmi(link) => (link.data_sheet, link.reached),
                other => match other.nvlink_generation() {
                    Some(generation) => (generation.data_sheet(), generation.reached()),
                    None => continue,
                },
            };
            assert!(0.5 * data_sheet < reached && reached < data_sheet, "{}", row.name);
        }
    }
}
