//! Compiles the C++ shim against libtorch and tells the linker where libtorch lies at run time.

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-changed=shim/segue_shim.cpp");
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    let libtorch = env::var_os("LIBTORCH").map(PathBuf::from).unwrap_or_default();
    let Ok(libtorch) = libtorch.canonicalize() else {
        panic!(
            "no libtorch at {}: run `make setup`, or set LIBTORCH to a libtorch 2.11 folder",
            libtorch.display()
        );
    };
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .warnings(false)
        .include(libtorch.join("include"))
        .include(libtorch.join("include/torch/csrc/api/include"))
        .file("shim/segue_shim.cpp")
        .compile("segue_shim");
    // Read by the build scripts of crates that link a program against this one.
    println!("cargo:libdir={}", libtorch.join("lib").display());
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", libtorch.join("lib").display());
}
