//! Memory of this host, and whether a training has room in it.

use std::fs;
use std::path::Path;

use segue_configs::counted;
use segue_trainer::cost::RankMemory;

use crate::commands::doctor::line_of;
use crate::failure::{BAD_CONFIG, Failure};

/// Bytes of this host's memory, as the kernel tells.
pub struct HostMemory {
    /// All there is.
    pub total: u64,
    /// Of these, those that nobody uses, or that can be taken from who does.
    pub free: u64,
    /// On disks, for what is not used now.
    swap: u64,
    /// What the control group of this process may take, where that is less than there is.
    pub limit: Option<u64>,
}

impl HostMemory {
    /// `None` where the kernel does not tell.
    pub fn read() -> Option<Self> {
        let bytes = |name: &str| {
            let text = line_of("/proc/meminfo", name)?;
            text.trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib << 10)
        };
        let total = bytes("MemTotal")?;
        let limit = limit_of_group().filter(|limit| *limit < total);
        Some(Self { total, free: bytes("MemAvailable")?, swap: bytes("SwapTotal").unwrap_or(0), limit })
    }

    /// Whether `ranks` processes have room for `held` bytes each. Each may be in a group of its own, whose limit counts no swap.
    fn has_room(&self, held: u64, ranks: usize) -> bool {
        held.saturating_mul(ranks as u64) <= self.total + self.swap
            && self.limit.is_none_or(|limit| held <= limit + self.swap)
    }
}

/// The least of the limits of this process' control group and of those that it lies in. In a container its own is the root.
fn limit_of_group() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    // One line a hierarchy, `NUMBER:CONTROLLERS:PATH`; the second version has one, without names.
    let of = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/').to_string());
        match controllers {
            "" => Some(("/sys/fs/cgroup", path, "memory.max")),
            "memory" => Some(("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes")),
            _ => None,
        }
    };
    let limits = groups.lines().filter_map(of).flat_map(|(root, path, file)| {
        let below = Path::new(&path).ancestors().map(Path::to_owned).collect::<Vec<_>>();
        below.into_iter().filter_map(move |group| {
            fs::read_to_string(Path::new(root).join(group).join(file)).ok()?.trim().parse().ok()
        })
    });
    limits.min()
}

/// Bytes for people.
pub fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)
}

/// Refuses a model whose weights, gradients and optimizer the memory of this host cannot hold, for all of its ranks: the kernel would kill
/// them in the middle of their work, or other programs for them.
pub fn check(memory: &RankMemory, ranks_here: usize) -> Result<(), Failure> {
    let held = memory.weights + memory.gradients + memory.optimizer + memory.average + memory.segment_memory;
    match HostMemory::read() {
        Some(host) if !host.has_room(held, ranks_here) => {
            let message = format!(
                "weights, gradients, optimizer and memory take {} on each of {} here, and there are {} for them\n\
                 hint: make the model smaller, or share it over more hosts by train.shard",
                gib(held),
                counted(ranks_here, "rank"),
                gib(host.limit.unwrap_or(host.total) + host.swap)
            );
            Err(Failure::new(BAD_CONFIG, message))
        }
        _ => Ok(()),
    }
}
