//! What ranks agree on before the first step.

use std::sync::OnceLock;

use segue_collectives::Communicator;
use segue_configs::{DeviceKind, TrainConfig};
use segue_kernels::libtorch::device::{self, Cards};
use segue_kernels::{TrainError, libtorch};
use serde_json::{Value, json};

use super::identity::{differences, without};
use super::state::{TrainState, kind_of};

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
/// configuration but places, the text, that of evaluations (`evaluated_on`), the program, the kind of device, and with `train.exact` the card and
/// the instructions of its kernels. `settings`: the whole configuration as JSON.
pub fn check_agreement(
    train: &TrainConfig,
    settings: &Value,
    state: &TrainState,
    evaluated_on: &str,
    comm: &dyn Communicator,
) -> Result<(), TrainError> {
    if comm.world_size() == 1 {
        return Ok(());
    }
    let mut own = without(settings, &PLACES);
    // Ranks meet where a trace begins, and say more of a step where noise is measured.
    own["log"] = json!({
        "noise_scale_every": settings["log"]["noise_scale_every"],
        "trace_from": settings["log"]["trace_from"],
        "trace_steps": settings["log"]["trace_steps"],
    });
    let device: &str = if train.exact { &state.device } else { kind_of(&state.device) };
    own["rank"] = json!({
        "corpus": state.corpus, "evaluated_on": evaluated_on, "program": program(), "libtorch": kernels(train.exact),
        "device": device,
    });
    let no_card = match (train.device, device::loaded()) {
        (DeviceKind::Auto, Some(Cards::None(why))) => why.to_string(),
        _ => String::new(),
    };
    compare(&own, &no_card, comm)
}

/// Refuses ranks of which one says something else than rank 0. Each says `no_card` besides, why it has none: it explains a difference, and is none
/// between ranks that all compute on processors.
fn compare(own: &Value, no_card: &str, comm: &dyn Communicator) -> Result<(), TrainError> {
    let all = comm.all_gather(format!("{own}\n{no_card}").as_bytes())?;
    let said: Vec<(&[u8], &[u8])> = all.iter().map(|bytes| halves(bytes)).collect();
    let Some(rank) = said.iter().position(|(other, _)| *other != said[0].0) else { return Ok(()) };
    let read = |rank: usize| serde_json::from_slice::<Value>(said[rank].0).unwrap_or_default();
    let whose = format!("on rank {rank}");
    let mut differing = differences(&read(0), &read(rank), ["on rank 0", &whose]);
    if read(0)["rank"]["device"] != read(rank)["rank"]["device"] {
        for rank in [0, rank] {
            let why = String::from_utf8_lossy(said[rank].1);
            if !why.is_empty() {
                differing.push_str(&format!("  rank {rank} has no card: {why}\n"));
            }
        }
    }
    Err(TrainError::Layout(format!(
        "rank {rank} does not do what rank 0 does:\n{}\nhint: give every host the same recipe, corpus, program, \
         libtorch and cards; for processors of several kinds set ATEN_CPU_CAPABILITY=avx2 and ONEDNN_MAX_CPU_ISA=AVX2 on all hosts, \
         or train.exact=false",
        differing.trim_end()
    )))
}

/// What stands before the first end of a line, and what stands behind it.
fn halves(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    (&bytes[..end], bytes.get(end + 1..).unwrap_or_default())
}

/// Names the running program by its bytes.
pub fn program() -> &'static str {
    static HASH: OnceLock<String> = OnceLock::new();
    HASH.get_or_init(|| {
        let hash = std::env::current_exe().and_then(std::fs::File::open).and_then(|file| {
            let mut hasher = blake3::Hasher::new();
            Ok(hasher.update_reader(file)?.finalize())
        });
        // A program that cannot read itself is named by its version.
        hash.map_or(env!("CARGO_PKG_VERSION").into(), |hash| hash.to_hex()[..16].to_string())
    })
}

/// libtorch, and where every bit counts what its kernels and those of oneDNN are made for here, and whether products are made in tiles or by MKL.
pub fn kernels(exact: bool) -> String {
    let library = libtorch::library();
    if !exact {
        return library.split(' ').next().unwrap_or_default().into();
    }
    let limit = std::env::var("ONEDNN_MAX_CPU_ISA").map(|isa| format!("oneDNN up to {isa}"));
    let mut found = vec![library, limit.unwrap_or_else(|_| instructions())];
    if libtorch::tiles_are_available() {
        found.push("tiles".into());
    }
    if libtorch::mkl_is_used() {
        found.push("MKL".into());
        // What its kernels are limited by.
        let set = ["MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS"]
            .into_iter()
            .filter_map(|name| Some(format!("{name}={}", std::env::var(name).ok()?)));
        found.extend(set);
    }
    found.join(", ")
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

#[cfg(test)]
mod tests {
    use segue_collectives::simulated;
    use segue_testing::MODELS;
    use tch::Device;

    use super::*;

    /// What ranks of which each computes on one of these devices find.
    fn found(exact: bool, devices: &[&str]) -> Vec<Option<String>> {
        simulated::run(devices.len(), |comm| {
            let config = MODELS.load(None, &[format!("train.exact={exact}")]).unwrap().config;
            let mut state = TrainState::start(&config, "text", Vec::new(), devices.len(), Device::Cpu);
            state.device = devices[comm.rank()].into();
            check_agreement(&config.train, &config.to_json(), &state, "", comm)
                .err()
                .map(|error| error.to_string())
        })
    }

    #[test]
    fn ranks_on_cards_and_processors_do_not_begin() {
        for exact in [true, false] {
            for error in found(exact, &["cuda: NVIDIA L4", "cuda: NVIDIA L4", "cpu"]) {
                let error = error.expect("a refusal on every rank");
                assert!(
                    error.contains("rank 2 does not do what rank 0 does") && error.contains("rank.device: ")
                );
                assert!(error.contains("\"cpu\" on rank 2"), "{error}");
            }
            assert_eq!(found(exact, &["cuda: NVIDIA L4"; 2]), [None, None]);
        }
    }

    #[test]
    fn cards_of_several_kinds_are_refused_where_every_bit_counts() {
        let devices = ["cuda: NVIDIA L4", "cuda: NVIDIA L40S"];
        let error = found(true, &devices)[1].clone().expect("a refusal");
        assert!(error.contains("\"cuda: NVIDIA L4\" on rank 0, \"cuda: NVIDIA L40S\" on rank 1"), "{error}");
        assert_eq!(found(false, &devices), [None, None]);
    }

    #[test]
    fn a_rank_without_a_card_says_why() {
        let why = "the driver shows no card to this process";
        let compared = |devices: [&str; 2]| {
            let errors = simulated::run(2, |comm| {
                let own = json!({ "rank": { "device": devices[comm.rank()] } });
                compare(&own, ["", why][comm.rank()], comm).err().map(|error| error.to_string())
            });
            errors[0].clone()
        };
        let error = compared(["cuda", "cpu"]).expect("a refusal");
        assert!(
            error.contains(&format!("rank 1 has no card: {why}")) && !error.contains("rank 0 has"),
            "{error}"
        );
        // On processors it does not matter why.
        assert_eq!(compared(["cpu", "cpu"]), None);
    }
}
