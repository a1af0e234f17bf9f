//! The look at all hosts before a job begins: what differs between them, and which of them is sick.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use segue_cluster::Preemption;
use segue_cluster::launch::command::Start;
use segue_cluster::launch::hosts::Host;
use serde::Deserialize;

use crate::failure::Failure;
use crate::output::Output;

/// How often it is asked whether the comparison has ended.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// What `segue doctor` says that counts here.
#[derive(Deserialize)]
struct Answer {
    findings: Vec<Finding>,
}

/// What it found on the host of a rank.
#[derive(Deserialize)]
struct Finding {
    rank: usize,
    host: String,
    what: String,
    state: String,
    found: String,
}

/// Compares the hosts of a job by a rank on each, and gives those that are fit. Where the comparison cannot be made the hosts stay as they
/// are: an attempt shows what is wrong, and is restarted without the host that failed.
///
/// # Errors
///
/// Those that are fit take fewer than `min_ranks` ranks.
pub fn fit_hosts(
    start: &Start,
    min_ranks: usize,
    (folder, corpora): (&Path, &[&Path]),
    (within, preemption): (Duration, &Preemption),
    out: &Output,
) -> Result<Vec<Host>, Failure> {
    let answer = match ask(&comparison(start, folder, corpora), within, preemption) {
        Ok(answer) => answer,
        Err(why) => {
            out.line(&format!("launch: the hosts could not be compared; going on without: {why}"));
            return Ok(start.hosts.clone());
        }
    };
    let mut sick: Vec<&str> = Vec::new();
    for Finding { rank, host, what, state, found } in
        answer.findings.iter().filter(|finding| finding.state != "ok")
    {
        out.line(&format!("launch: {state}: {host}: {what}: {found}"));
        // Hosts may be given by other names than their own, and ranks be put on them in another order.
        let named = start.hosts.iter().find(|known| known.name == *host);
        let known = named.or(start.hosts.get(*rank)).map(|known| known.name.as_str());
        sick.extend(known.filter(|known| state == "missing" && !sick.contains(known)));
    }
    let fit: Vec<Host> =
        start.hosts.iter().filter(|host| !sick.contains(&host.name.as_str())).cloned().collect();
    if !sick.is_empty() && fit.iter().map(|host| host.slots).sum::<usize>() < min_ranks {
        let message = format!(
            "{} cannot take part, and without them there is no room for {min_ranks} rank(s)\nhint: mend what is said above, allow fewer \
             by --min-ranks, or leave this check out by --no-preflight",
            sick.join(", ")
        );
        return Err(Failure::new(78, message));
    }
    if !sick.is_empty() {
        out.line(&format!("launch: left out: {}", sick.join(", ")));
    }
    Ok(fit)
}

/// `segue doctor` by one rank on each host.
fn comparison(start: &Start, folder: &Path, corpora: &[&Path]) -> Start {
    let mut arguments = vec!["doctor".into(), "--json".into(), "--folder".into(), folder.into()];
    arguments.extend(corpora.iter().flat_map(|corpus| ["--corpus".into(), (*corpus).into()]));
    let hosts = start.hosts.iter().map(|host| Host { slots: 1, ..host.clone() }).collect();
    Start { hosts, ranks: start.hosts.len(), arguments, ..start.clone() }
}

/// What the comparison says.
///
/// # Errors
///
/// Why there is no answer, as a text.
fn ask(comparison: &Start, within: Duration, preemption: &Preemption) -> Result<Answer, String> {
    let read = |mut stream: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // What was read before a stream broke is all there is.
            let _ = stream.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let mut command = comparison.command();
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| e.to_string())?;
    let streams = (child.stdout.take(), child.stderr.take());
    let (Some(stdout), Some(stderr)) = streams else { return Err("it has no streams".into()) };
    let (told, said) = (read(Box::new(stdout)), read(Box::new(stderr)));
    let begun = Instant::now();
    while child.try_wait().map_err(|e| e.to_string())?.is_none() {
        if begun.elapsed() > within || preemption.requested() {
            if let Some(group) = Pid::from_raw(child.id() as i32) {
                // What has ended meanwhile cannot be ended.
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = child.wait();
            return Err(format!("no answer within {} s", begun.elapsed().as_secs()));
        }
        std::thread::sleep(ASK_EVERY);
    }
    let told = told.join().unwrap_or_default();
    let answer = told.lines().last().and_then(|line| serde_json::from_str(line).ok());
    answer.ok_or_else(|| {
        let said = said.join().unwrap_or_default();
        said.lines()
            .rev()
            .find(|line| line.chars().any(char::is_alphanumeric))
            .unwrap_or("it said nothing")
            .into()
    })
}
