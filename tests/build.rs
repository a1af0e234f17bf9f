//! Lets the tests find libtorch where the build found it.

fn main() {
    let lib = std::env::var("DEP_SEGUE_KERNELS_LIBDIR");
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    match lib {
        Ok(lib) => println!("cargo:rustc-link-arg=-Wl,-rpath,{lib}"),
        Err(_) => panic!("the trainer's build script does not say where libtorch is"),
    }
}
