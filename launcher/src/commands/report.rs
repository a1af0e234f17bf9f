//! `segue report`: runs as one HTML file.

use std::path::{Path, PathBuf};

use clap::Args;
use segue_configs::counted;
use segue_watch::{RunView, Runs, report};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::folder::Force;
use crate::output::Output;

/// Arguments of `segue report`.
#[derive(Args)]
#[command(after_help = "Example:\n  \
    segue report runs/one runs/other -o compared.html")]
pub struct ReportArgs {
    /// Folders of runs, or of runs of several seeds.
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// File to write.
    #[arg(short, long, value_name = "FILE.html")]
    output: PathBuf,
    #[command(flatten)]
    force: Force,
}

/// Writes the file. It has all in it that it shows, and asks for nothing from anywhere.
pub fn run(args: &ReportArgs, out: &Output) -> Result<Value, Failure> {
    args.force.allow(args.output.as_path(), "--output")?;
    let views: Vec<RunView> = Runs::open(&args.runs)?.look().cloned().collect();
    for (run, problem) in views.iter().flat_map(|run| run.problems.iter().map(move |problem| (run, problem)))
    {
        out.line(&format!("warning: {}: {problem}", run.name));
    }
    let html = report::html(&views);
    write(&args.output, &html)?;
    out.line(&format!(
        "written to {}: {}, {} bytes",
        args.output.display(),
        counted(views.len(), "run"),
        html.len()
    ));
    let steps: Vec<Value> = views.iter().map(|run| json!({ "run": run.name, "step": run.step })).collect();
    Ok(json!({ "output": args.output, "bytes": html.len(), "runs": steps }))
}

fn write(path: &Path, html: &str) -> Result<(), Failure> {
    segue_publish::write_file(path, html.as_bytes())
        .map_err(|error| Failure::cannot_write(path, &error.source, "--output"))
}
