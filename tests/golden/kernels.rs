//! Families of kernels, and what names the machine that bits come from.

use std::collections::BTreeSet;
use std::path::PathBuf;

use segue_tests::ROOT;
use serde::{Deserialize, Serialize};

/// Kernels that libtorch, oneDNN and MKL choose among, and how all three are held to one family.
pub struct Kernels {
    /// Part of the golden files' names.
    pub name: &'static str,
    /// Environment of the run.
    pub environment: [(&'static str, &'static str); 3],
}

/// At most AVX2, on whatever processor. MKL branches by the processor's maker unless it is told to be compatible.
pub const AVX2: Kernels = Kernels {
    name: "avx2",
    environment: [
        ("ATEN_CPU_CAPABILITY", "avx2"),
        ("ONEDNN_MAX_CPU_ISA", "AVX2"),
        ("MKL_CBWR", "COMPATIBLE"),
    ],
};

/// AVX-512 without what came after its first servers: oneDNN blocks its loops otherwise for AMX.
pub const AVX512: Kernels = Kernels {
    name: "avx512",
    environment: [
        ("ATEN_CPU_CAPABILITY", "avx512"),
        ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE"),
        ("MKL_CBWR", "AVX512"),
    ],
};

impl Kernels {
    /// Whether this processor can run them: libtorch's own conditions.
    pub fn are_here(&self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 =
                std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
            let avx512 = std::arch::is_x86_feature_detected!("avx512f")
                && std::arch::is_x86_feature_detected!("avx512vl")
                && std::arch::is_x86_feature_detected!("avx512bw")
                && std::arch::is_x86_feature_detected!("avx512dq");
            avx2 && (self.name == AVX2.name || avx512)
        }
        #[cfg(not(target_arch = "x86_64"))]
        false
    }
}

/// What bits depend on besides the program: two machines of one fingerprint must give the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Maker, family, model, stepping and name.
    pub processor: String,
    /// Its vector instructions, sorted.
    pub vectors: String,
    /// Version of libtorch.
    pub libtorch: String,
    /// Threads of libtorch in each rank.
    pub threads: usize,
}

impl Machine {
    /// The one at hand.
    pub fn here() -> Self {
        let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let of = |line: &str| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == name).then(|| value.trim().to_string())
            };
            cpu.lines().find_map(of).unwrap_or_else(|| "unknown".into())
        };
        let names = ["vendor_id", "cpu family", "model", "stepping", "model name"];
        let flags = field("flags");
        let vector = |flag: &&str| ["avx", "amx", "fma"].iter().any(|begin| flag.starts_with(begin));
        let vectors: BTreeSet<&str> = flags.split_whitespace().filter(vector).collect();
        Self {
            processor: names.map(field).join(" "),
            vectors: vectors.into_iter().collect::<Vec<_>>().join(" "),
            libtorch: libtorch_version().unwrap_or_else(|| "unknown".into()),
            threads: 1,
        }
    }
}

/// From the header that comes with the library.
fn libtorch_version() -> Option<String> {
    let linked = PathBuf::from(ROOT).join(".deps/libtorch");
    let folder = std::env::var_os("LIBTORCH").map_or(linked, PathBuf::from);
    let header = std::fs::read_to_string(folder.join("include/torch/headeronly/version.h")).ok()?;
    let number = |part: &str| {
        let after = header.split(&format!("#define TORCH_VERSION_{part} ")).nth(1)?;
        Some(after.lines().next()?.trim().to_string())
    };
    Some([number("MAJOR")?, number("MINOR")?, number("PATCH")?].join("."))
}
