//! `ONEDNN_MAX_CPU_ISA`, which limits the instructions that oneDNN chooses kernels by, and with them those of kernels of our own, and of MKL, that
//! stand in for its.

/// The limit whose name does not say how wide its vectors are: those of AVX-512, without tiles.
const AVX10_2: &str = "AVX10_2";

/// Whether instructions may be used whose names, as oneDNN has them, contain `part`: `512` or `AMX`.
pub fn allows(part: &str) -> bool {
    let limit = std::env::var("ONEDNN_MAX_CPU_ISA").or_else(|_| std::env::var("DNNL_MAX_CPU_ISA"));
    limit.map_or(true, |limit| reaches(&limit, part))
}

fn reaches(limit: &str, part: &str) -> bool {
    let limit = limit.to_ascii_uppercase();
    ["", "ALL", "DEFAULT"].contains(&limit.as_str())
        || limit.contains(part)
        || (part == "512" && limit.starts_with(AVX10_2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_onednn_holds_for_our_own_kernels() {
        for (limit, wide, tiles) in [
            ("ALL", true, true),
            ("avx512_core_amx", true, true),
            ("AVX10_1_512_AMX_FP16", true, true),
            ("AVX512_CORE_BF16", true, false),
            ("avx10_2", true, false),
            ("AVX10_2_512", true, false),
            ("AVX10_2_512_AMX_2", true, true),
            ("avx512_core", true, false),
            ("AVX2", false, false),
            ("AVX2_VNNI_2", false, false),
            ("SSE41", false, false),
        ] {
            assert_eq!([reaches(limit, "512"), reaches(limit, "AMX")], [wide, tiles], "{limit}");
        }
    }
}
