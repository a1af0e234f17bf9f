//! Memory of this host, and whether a training has room in it.

use std::fs;

use segue_configs::Config;
use segue_trainer::families;

use crate::commands::doctor::line_of;
use crate::failure::Failure;

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
        let limit = fs::read_to_string("/sys/fs/cgroup/memory.max");
        let limit = limit.ok().and_then(|text| text.trim().parse().ok()).filter(|limit| *limit < total);
        Some(Self { total, free: bytes("MemAvailable")?, swap: bytes("SwapTotal").unwrap_or(0), limit })
    }

    /// More than this no process here can have.
    fn most(&self) -> u64 {
        self.limit.unwrap_or(self.total) + self.swap
    }
}

/// Bytes for people.
pub fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)
}

/// Refuses a model whose weights, gradients and optimizer the memory of this host cannot hold, for all of its ranks: the kernel would kill
/// them in the middle of their work, or other programs for them.
pub fn check(config: &Config, ranks_here: usize, world_size: usize) -> Result<(), Failure> {
    let memory = families::cost(config, world_size)?.memory_per_rank;
    let held = memory.weights + memory.gradients + memory.optimizer + memory.average + memory.segment_memory;
    match HostMemory::read().map(|host| host.most()) {
        Some(most) if held.saturating_mul(ranks_here as u64) > most => {
            let message = format!(
                "weights, gradients, optimizer and memory take {} on each of {ranks_here} rank(s) here, and this host has {}\n\
                 hint: make the model smaller, or share it over more hosts by train.shard; `--dry-run` says what takes how much",
                gib(held),
                gib(most)
            );
            Err(Failure::new(78, message))
        }
        _ => Ok(()),
    }
}
