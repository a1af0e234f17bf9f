//! Tests of conversion.

mod convert;
mod convert_recurrent;
mod convert_xlnet;

use std::path::{Path, PathBuf};

use segue_convert::{ConvertOptions, Target};

/// A checkpoint of another program.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/foreign").join(name)
}

/// Options with these overrides of the recipe.
fn options(target: Target, overrides: &[&str]) -> ConvertOptions {
    let overrides = overrides.iter().map(|text| text.to_string()).collect();
    ConvertOptions { overrides, ..ConvertOptions::new(target) }
}
