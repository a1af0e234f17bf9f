//! Compiles the kernels for cards for the processor.

fn main() {
    const SOURCES: [&str; 9] = [
        "kernels/src/cards/prelude.cu",
        "kernels/src/noise/mask.cu",
        "layers/src/activation.cu",
        "layers/src/norm.cu",
        "layers/src/cross_entropy.cu",
        "layers/src/attention/chunked/rows.cu",
        "layers/src/attention/flash/flash.cu",
        "engine/src/optim/lamb.cu",
        "engine/src/optim/norms.cu",
    ];
    println!("cargo:rerun-if-changed=shim/emulated.cpp");
    for file in SOURCES {
        println!("cargo:rerun-if-changed=../{file}");
    }
    cc::Build::new().cpp(true).std("c++17").file("shim/emulated.cpp").compile("segue_emulated");
}
