//! `segue doctor`: what hosts have, what they lack, and how fast they are; on a rank of each host, what differs between them too.

mod host;
mod hosts;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;
use segue_collectives::Communicator;
use segue_configs::counted;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use host::cores;

use crate::failure::{CHECK_FAILED, Failure};
use crate::output::{Output, Unit};

/// Arguments of `segue doctor`.
#[derive(Args)]
#[command(after_help = "\
    With a rank on each host the hosts are compared: program, libtorch, kernels, folder, corpora, speed, \
    links to the first. Exit code 1 where something that training needs is missing.\n\n\
    Examples:\n  \
    segue doctor\n  \
    segue doctor --folder /shared/runs --json\n  \
    mpirun --host node1:1,node2:1 --bind-to none segue doctor \\\n      \
    --folder /shared/runs --corpus /shared/corpora/mine")]
pub struct DoctorArgs {
    /// Folder that runs will lie in: its disk is tried.
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// A corpus that every host has to have; once for each.
    #[arg(long = "corpus", value_name = "DIR")]
    corpora: Vec<PathBuf>,
    /// Kernels have to be alike, as train.exact wants them.
    #[arg(long)]
    exact: bool,
    /// The program that all hosts have to have, where it is known.
    #[arg(long, hide = true)]
    program: Option<String>,
    /// The name of a file that every host has to see in the folder.
    #[arg(long, hide = true)]
    mark: Option<String>,
}

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// As it should be.
    Ok,
    /// Not there, and not needed by everybody.
    None,
    /// Works, and could be better.
    Warning,
    /// Training needs it.
    Missing,
}

/// What was looked at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Finding {
    /// Of several hosts, the rank that found it, and the name of its host.
    rank: Option<usize>,
    host: Option<String>,
    what: Cow<'static, str>,
    state: State,
    found: String,
    /// The figure in it: GFLOP/s, or MB/s.
    value: Option<f64>,
    /// What to do about it.
    advice: Option<Cow<'static, str>>,
}

impl Finding {
    fn new(
        what: impl Into<Cow<'static, str>>,
        state: State,
        found: impl Into<String>,
        advice: &'static str,
    ) -> Self {
        let advice = (state != State::Ok && !advice.is_empty()).then_some(advice.into());
        Self { rank: None, host: None, what: what.into(), state, found: found.into(), value: None, advice }
    }

    fn ok(what: impl Into<Cow<'static, str>>, found: impl Into<String>) -> Self {
        Self::new(what, State::Ok, found, "")
    }

    fn on(self, rank: usize, host: &str) -> Self {
        Self { rank: Some(rank), host: Some(host.into()), ..self }
    }
}

/// Looks at everything, and prints it.
pub fn run(args: &DoctorArgs, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    let mut checks = host::checks(&args.folder);
    let alone = comm.world_size() == 1;
    if alone {
        checks.splice(..0, host::programs());
    }
    for corpus in &args.corpora {
        checks.push(Box::new(|| host::corpus(corpus)));
    }
    let bar = out.progress(checks.len() as u64, Unit::Steps, "doctor");
    let mut findings = Vec::new();
    for check in checks {
        findings.push(check());
        bar.set(findings.len() as u64);
    }
    drop(bar);
    if !alone {
        findings = hosts::compare(findings, args, comm)?;
    }
    // Of many hosts only what is not as it should be; --json has all.
    for finding in findings.iter().filter(|finding| alone || finding.state != State::Ok) {
        let mark = match finding.state {
            State::Ok => "ok",
            State::None => "-",
            State::Warning => "warning",
            State::Missing => "missing",
        };
        let host = finding.host.as_ref().map_or(String::new(), |host| format!("{host:14} "));
        out.line(&format!("{mark:8} {host}{:14} {}", finding.what, finding.found));
        if let Some(advice) = &finding.advice {
            out.line(&format!("{:23} {advice}", ""));
        }
    }
    if !alone {
        let hosts: BTreeSet<_> = findings.iter().filter_map(|finding| finding.host.as_ref()).collect();
        out.line(&format!(
            "{} looked at {}",
            counted(comm.world_size(), "rank"),
            counted(hosts.len(), "host")
        ));
    }
    let sick = findings.iter().any(|finding| finding.state == State::Missing);
    Ok(json!({ "findings": findings, "exit_code": if sick { CHECK_FAILED } else { 0 } }))
}
