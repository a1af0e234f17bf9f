//! The build script of the crates below `trainer/` that have tests: it tells the linker where libtorch lies at run time.

fn main() {
    match std::env::var("DEP_SEGUE_KERNELS_LIBDIR") {
        Ok(lib) => println!("cargo:rustc-link-arg=-Wl,-rpath,{lib}"),
        Err(_) => panic!("the build script of segue-kernels does not say where libtorch is"),
    }
}
