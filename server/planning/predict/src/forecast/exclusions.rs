//! What a device holds that the ledger of a prediction does not show.
//!
//! Published figures, so that people know the order of magnitude; none of them is added to a prediction.

use loadmaster_proto::ledger::Ledger;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

const FRAGMENTATION: &str = "fragmentation of the caching allocator";

const OTHERS: Excluded = Excluded {
    what: "other processes on the device",
    typical: None,
    note: "nothing else may run on a device whose capacity is its whole memory",
};

/// Memory that predictions do not contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excluded {
    pub what: &'static str,
    /// What it typically takes, least and most bytes; none where nobody can say.
    pub typical: Option<(u64, u64)>,
    /// When it takes that much.
    pub note: &'static str,
}

/// What predictions in a ledger for a kind of device exclude, of stages that exchange data with others or
/// not.
pub fn excluded(ledger: Ledger, device_kind: &str, communicates: bool) -> Vec<Excluded> {
    if ledger == Ledger::Device {
        // The driver sees all of it but what comes and goes with other programs.
        return vec![OTHERS];
    }
    if device_kind == "cpu" {
        return vec![
            Excluded {
                what: "scratch memory of oneDNN and the C library",
                typical: None,
                note: "taken from malloc, which the allocator of a CPU slot does not see",
            },
            Excluded {
                what: "the training process itself",
                typical: Some((200 * MIB, 600 * MIB)),
                note: "program, libtorch and threads; not part of a slot's capacity",
            },
        ];
    }
    let mut excluded = vec![
        Excluded {
            what: "CUDA context and kernels",
            typical: Some((200 * MIB, GIB)),
            note: "about 300 MiB with lazy loading (CUDA 11.7 and later), 1 GiB without",
        },
        Excluded {
            what: "cuBLAS workspaces outside libtorch's allocator",
            typical: Some((8_519_680, 32 * MIB)),
            note: "per handle and stream; 32 MiB on Hopper",
        },
        Excluded {
            what: FRAGMENTATION,
            typical: None,
            note: "blocks are rounded to 512 B and segments to 2 MiB; reserved minus allocated bytes of a \
                   trial run show it",
        },
        OTHERS,
    ];
    if communicates {
        excluded.insert(
            2,
            Excluded {
                what: "NCCL communicators",
                typical: Some((200 * MIB, 6 * GIB)),
                note: "4 MiB per channel and connection; 1.6 GiB seen for one communicator, 6 GiB for three",
            },
        );
    }
    if ledger == Ledger::Reserved {
        excluded.retain(|excluded| excluded.what != FRAGMENTATION);
    }
    excluded
}
