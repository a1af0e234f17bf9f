use std::path::PathBuf;

use clap::Args;
use segue_configs::DeviceKind;
use segue_families::parity;
use segue_kernels::Compute;
use serde_json::{Value, json};

use super::spelled::spelled;
use super::told_kernels;
use crate::failure::{CHECK_FAILED, Failure};
use crate::output::Output;

/// Arguments of `segue parity`.
#[derive(Args)]
#[command(after_help = "\
    Exits with 0 only where every group holds, else with 1.\n\n\
    Example:\n  \
    segue parity --model fixtures/transfoxl_tiny \\\n      \
    --cases fixtures/transfoxl_tiny/cases.safetensors")]
pub struct ParityArgs {
    /// Folder with `config.json` and `model.safetensors` in Hugging Face's names.
    #[arg(long)]
    model: PathBuf,
    /// safetensors file of inputs, and of outputs, memories and gradients that a public package made of them.
    #[arg(long)]
    cases: PathBuf,
    /// Where to compute.
    #[arg(long, value_parser = spelled::<DeviceKind>(), default_value = "cpu")]
    device: DeviceKind,
}

/// Prints the largest relative error of each group of tensors.
pub fn run(args: ParityArgs, out: &Output) -> Result<Value, Failure> {
    let compute = Compute::choose(args.device, 0)?;
    segue_kernels::libtorch::start(1);
    let groups = parity(&args.model, &args.cases, compute)?;
    out.line(&format!("{:26} {:>8} {:>10} {:>8}", "group", "tensors", "error", "limit"));
    for group in &groups {
        let verdict = if group.holds() { String::new() } else { format!("  FAILS at {}", group.worst) };
        let line =
            format!("{:26} {:>8} {:>10.2e} {:>8.0e}", group.name, group.tensors, group.error, group.limit);
        out.line(&(line + &verdict));
    }
    let kernels = told_kernels(compute, out);
    let holds = groups.iter().all(|group| group.holds());
    let exit_code = if holds { 0 } else { CHECK_FAILED };
    Ok(json!({ "holds": holds, "groups": groups, "kernels": kernels, "exit_code": exit_code }))
}
