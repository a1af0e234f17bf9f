//! Memory of this host, and whether a training has room in it.

use std::fs;
use std::path::Path;

use segue_configs::counted;
use segue_cost::RankMemory;

use crate::failure::{BAD_CONFIG, Failure};
use crate::proc::line_of;

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
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let limit = limit_of_group(&groups, Path::new(GROUPS)).filter(|limit| *limit < total);
        Some(Self { total, free: bytes("MemAvailable")?, swap: bytes("SwapTotal").unwrap_or(0), limit })
    }

    /// Whether `ranks` processes have room for `held` bytes each. Each may be in a group of its own, whose limit counts no swap.
    fn has_room(&self, held: u64, ranks: usize) -> bool {
        held.saturating_mul(ranks as u64) <= self.total + self.swap
            && self.limit.is_none_or(|limit| held <= limit + self.swap)
    }
}

/// Where the files of control groups are.
const GROUPS: &str = "/sys/fs/cgroup";

/// The least of the limits of a process' control group and of those that it lies in, by its `/proc/self/cgroup` and the files below `root`. In a
/// container its own is the root.
fn limit_of_group(groups: &str, root: &Path) -> Option<u64> {
    // One line a hierarchy, `NUMBER:CONTROLLERS:PATH`; the second version has one, without names.
    let of = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/').to_string());
        match controllers {
            "" => Some((root.to_owned(), path, "memory.max")),
            "memory" => Some((root.join("memory"), path, "memory.limit_in_bytes")),
            _ => None,
        }
    };
    let limits = groups.lines().filter_map(of).flat_map(|(root, path, file)| {
        let groups =
            Path::new(&path).ancestors().map(|group| root.join(group).join(file)).collect::<Vec<_>>();
        // "max" is no limit.
        groups.into_iter().filter_map(|limit| fs::read_to_string(limit).ok()?.trim().parse().ok())
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
                 hint: {}",
                gib(held),
                counted(ranks_here, "rank"),
                gib(host.limit.unwrap_or(host.total) + host.swap),
                advice(memory)
            );
            Err(Failure::new(BAD_CONFIG, message))
        }
        _ => Ok(()),
    }
}

/// What to lower, by what takes the most.
fn advice(memory: &RankMemory) -> &'static str {
    let of_model = memory.weights + memory.gradients + memory.optimizer + memory.average;
    if memory.segment_memory > of_model {
        return "most of it is the memory of lanes: lower train.lanes or model.mem_len, or start more ranks on other hosts";
    }
    "make the model smaller, or share it over more hosts by train.shard"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of files of control groups: their folders and what is in them.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_least_limit_of_a_group_and_of_those_around_it_counts() {
        let root = tree(&[
            ("memory.max", "9000\n"),
            ("job/memory.max", "700\n"),
            ("job/step/memory.max", "max\n"),
            ("other/memory.max", "5\n"),
            ("memory/memory.limit_in_bytes", "8000\n"),
            ("memory/job/memory.limit_in_bytes", "600\n"),
        ]);
        let limit = |groups| limit_of_group(groups, root.path());
        assert_eq!(limit("0::/job/step\n"), Some(700));
        // A container sees its own group as the root.
        assert_eq!(limit("0::/\n"), Some(9000));
        // The first version has a hierarchy for each controller; hosts may have both.
        assert_eq!(limit("5:cpu,cpuacct:/job\n4:memory:/job\n0::/job\n"), Some(600));
        assert_eq!(limit("4:memory:/\n"), Some(8000));
        // A group that is not there any more has those around it.
        assert_eq!(limit("0::/job/gone\n"), Some(700));
        for none in ["", "no line of groups", "5:cpu:/job\n"] {
            assert_eq!(limit(none), None, "{none}");
        }
    }

    #[test]
    fn ranks_share_the_host_and_a_group_counts_for_each() {
        let host = HostMemory { total: 100, free: 50, swap: 10, limit: Some(40) };
        assert!(host.has_room(50, 2) && !host.has_room(51, 2));
        assert!(host.has_room(36, 3) && !host.has_room(37, 3));
        assert!(HostMemory { limit: None, ..host }.has_room(110, 1));
    }
}
