//! What ranks agree on before the first step.

use std::sync::OnceLock;

use segue_collectives::Communicator;
use segue_configs::Config;
use serde_json::{Value, json};

use crate::checkpoint::{self, TrainState};
use crate::{TrainError, libtorch};

/// Parts of a configuration that say where things are: hosts may differ in them.
const PLACES: [&str; 8] = [
    "/run",
    "/log",
    "/data/corpus",
    "/data/corpora",
    "/data/valid",
    "/data/tokenizer",
    "/task/data",
    "/train/init_from",
];

/// Every rank must train the same thing on the same text, make the same calls, and compute alike: all that is in the
/// configuration but places, the text, that of evaluations (`evaluated_on`), the program, and with `train.exact` the instructions of its kernels.
pub(crate) fn check_agreement(
    config: &Config,
    state: &TrainState,
    evaluated_on: &str,
    comm: &dyn Communicator,
) -> Result<(), TrainError> {
    if comm.world_size() == 1 {
        return Ok(());
    }
    let mut own = checkpoint::without(&config.to_json(), &PLACES);
    // Ranks meet where a trace begins, and say more of a step where noise is measured.
    own["log"] = json!({
        "noise_scale_every": config.log.noise_scale_every,
        "trace_from": config.log.trace_from,
        "trace_steps": config.log.trace_steps,
    });
    own["rank"] = json!({
        "corpus": state.corpus, "evaluated_on": evaluated_on, "program": program(), "libtorch": kernels(config.train.exact),
    });
    let all = comm.all_gather(own.to_string().as_bytes())?;
    let Some(rank) = all.iter().position(|other| *other != all[0]) else { return Ok(()) };
    let read = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap_or_default();
    let whose = format!("on rank {rank}");
    let differing = checkpoint::differences(&read(&all[0]), &read(&all[rank]), ["on rank 0", &whose]);
    Err(TrainError::Layout(format!(
        "rank {rank} does not do what rank 0 does:\n{}\nhint: give every host the same recipe, corpus, program and \
         libtorch; for processors of several kinds set ATEN_CPU_CAPABILITY=avx2 and ONEDNN_MAX_CPU_ISA=AVX2 on all hosts, \
         or train.exact=false",
        differing.trim_end()
    )))
}

/// Names the running program by its bytes.
pub fn program() -> &'static str {
    static HASH: OnceLock<String> = OnceLock::new();
    HASH.get_or_init(|| {
        let bytes = std::env::current_exe().and_then(std::fs::read);
        // A program that cannot read itself is named by its version.
        bytes
            .map_or(env!("CARGO_PKG_VERSION").into(), |bytes| blake3::hash(&bytes).to_hex()[..16].to_string())
    })
}

/// libtorch, and where every bit counts what its kernels and those of oneDNN are made for here, and whether products are made in tiles.
pub fn kernels(exact: bool) -> String {
    let library = libtorch::library();
    if !exact {
        return library.split(' ').next().unwrap_or_default().into();
    }
    let limit = std::env::var("ONEDNN_MAX_CPU_ISA").map(|isa| format!("oneDNN up to {isa}"));
    let tiles = if libtorch::tiles_are_available() { ", tiles" } else { "" };
    format!("{library}, {}{tiles}", limit.unwrap_or_else(|_| instructions()))
}

/// Instructions of the processor that oneDNN chooses kernels by.
#[cfg(target_arch = "x86_64")]
fn instructions() -> String {
    let known = [
        ("avx2", is_x86_feature_detected!("avx2")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512vnni", is_x86_feature_detected!("avx512vnni")),
        ("avx512bf16", is_x86_feature_detected!("avx512bf16")),
    ];
    let found: Vec<&str> = known.iter().filter(|(_, is_there)| *is_there).map(|(name, _)| *name).collect();
    format!("oneDNN for {}", found.join(" "))
}

#[cfg(not(target_arch = "x86_64"))]
fn instructions() -> String {
    std::env::consts::ARCH.into()
}
