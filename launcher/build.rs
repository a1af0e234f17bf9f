//! Lets the binary find libtorch where the build found it, or where `SEGUE_RPATH` says that it will lie, and tells it which
//! commit it was built from.

use std::process::Command;

fn main() {
    let lib = std::env::var("DEP_SEGUE_KERNELS_LIBDIR");
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    println!("cargo:rerun-if-env-changed=SEGUE_RPATH");
    match std::env::var("SEGUE_RPATH").or(lib) {
        Ok(lib) => println!("cargo:rustc-link-arg=-Wl,-rpath,{lib}"),
        Err(_) => panic!("the trainer's build script does not say where libtorch is"),
    }
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let commit = git(&["describe", "--always", "--dirty", "--exclude=*"]);
    let of = commit.map_or(String::new(), |commit| format!(" ({commit})"));
    println!("cargo:rustc-env=SEGUE_VERSION={version}{of}");
    println!("cargo:rerun-if-changed=build.rs");
    // It changes with every commit and checkout.
    if let Some(log) = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={log}");
    }
}

/// What git says; nothing outside of a checkout.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_string();
    (output.status.success() && !text.is_empty()).then_some(text)
}
