//! Hosts next to each other: what has to be alike on them, which is slower than the others, and how fast the first is reached.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use segue_collectives::{CollectiveError, Communicator};
use segue_dataloader::Corpus;
use segue_trainer::engine;
use serde::{Deserialize, Serialize};

use super::{DoctorArgs, Finding, State, host};
use crate::failure::Failure;

/// Of the median of all hosts: what a host or its link reaches at least, or it holds the others up.
const LEAST_OF_MEDIAN: f64 = 0.8;
const LEAST_LINK_OF_MEDIAN: f64 = 0.5;
/// Sent to and fro over a link, so many times.
const LINK_BYTES: usize = 8 << 20;
const LINK_REPEATS: usize = 3;

/// What a host tells of itself.
#[derive(Serialize, Deserialize)]
struct Account {
    host: String,
    findings: Vec<Finding>,
    /// What has to be alike, by its name.
    alike: BTreeMap<String, String>,
    /// What the kernels of products are made for, which `train.exact` wants alike.
    kernels: String,
    gflops: f64,
    sees_the_folder: bool,
}

/// Whether a corpus is there: its fingerprint.
pub fn corpus(folder: &Path) -> Finding {
    match Corpus::open(folder) {
        Ok(corpus) => Finding::ok("corpus", format!("{}: {}", folder.display(), corpus.fingerprint())),
        Err(error) => {
            Finding::new("corpus", State::Missing, error.to_string(), "copy it to this host, or mount it")
        }
    }
}

/// Adds what a comparison of all hosts shows to what each has found; on rank 0, and nothing elsewhere.
pub fn compare(
    findings: Vec<Finding>,
    args: &DoctorArgs,
    comm: &dyn Communicator,
) -> Result<Vec<Finding>, Failure> {
    let host = segue_cluster::host_name();
    let corpora = findings.iter().filter(|finding| finding.what == "corpus" && finding.state == State::Ok);
    let mut alike: BTreeMap<String, String> =
        corpora.enumerate().map(|(n, finding)| (format!("corpus {n}"), finding.found.clone())).collect();
    alike.insert("program".into(), format!("{} {}", env!("SEGUE_VERSION"), engine::program()));
    alike.insert("libtorch".into(), engine::kernels(false));
    let own = Account {
        host,
        findings,
        alike,
        kernels: engine::kernels(true),
        gflops: host::speed().0,
        sees_the_folder: sees_what_the_first_writes(&args.folder, comm)?,
    };
    let text = serde_json::to_vec(&own).map_err(|e| Failure::new(70, e.to_string()))?;
    let gathered = comm.gather(0, &text)?;
    let links = links(comm)?;
    let Some(gathered) = gathered else { return Ok(Vec::new()) };
    let accounts: Vec<Account> =
        gathered.iter().filter_map(|bytes| serde_json::from_slice(bytes).ok()).collect();
    Ok(judge(accounts, &links))
}

/// What all accounts show, host by host; `links[rank]` is the speed of the link to the first in MB/s, nothing for itself.
fn judge(accounts: Vec<Account>, links: &[Option<f64>]) -> Vec<Finding> {
    let usual_kernels = most(accounts.iter().map(|account| account.kernels.as_str())).to_string();
    let names: Vec<String> = accounts[0].alike.keys().cloned().collect();
    let usual: BTreeMap<String, String> = names
        .into_iter()
        .map(|name| {
            let value =
                most(accounts.iter().filter_map(|account| account.alike.get(&name)).map(String::as_str));
            (name, value.to_string())
        })
        .collect();
    let usual_speed = median(accounts.iter().map(|account| account.gflops));
    let usual_link = median(links.iter().flatten().copied());
    let mut all = Vec::new();
    for (rank, (account, link)) in accounts.into_iter().zip(links).enumerate() {
        let mut found = account.findings;
        for (name, usual) in &usual {
            let own = account.alike.get(name).map_or("nothing", String::as_str);
            if own != usual {
                found.push(Finding::new(
                    name.trim_end_matches(|c: char| c.is_ascii_digit() || c == ' ').to_string(),
                    State::Missing,
                    format!("{own}; other hosts have {usual}"),
                    "give every host the same program, libtorch and corpus",
                ));
            }
        }
        if account.kernels != usual_kernels {
            found.push(Finding::new(
                "kernels",
                State::Warning,
                format!("{}; other hosts have {usual_kernels}", account.kernels),
                "train.exact wants them alike: set ATEN_CPU_CAPABILITY=avx2 and ONEDNN_MAX_CPU_ISA=AVX2 on all hosts",
            ));
        }
        if account.gflops < LEAST_OF_MEDIAN * usual_speed {
            found.push(Finding::new(
                "products",
                State::Warning,
                format!("{:.0} GFLOP/s on one core; hosts reach {usual_speed:.0}", account.gflops),
                "this host will hold the others up: look for other jobs on it, and for a limit on its clock",
            ));
        }
        if !account.sees_the_folder {
            found.push(Finding::new(
                "folder",
                State::Missing,
                "what the first host writes into --folder is not seen here",
                "a run lies in a folder that all hosts share",
            ));
        }
        if let Some(speed) = link {
            let slow = *speed < LEAST_LINK_OF_MEDIAN * usual_link;
            let state = if slow { State::Warning } else { State::Ok };
            let advice =
                "look at its network: hosts usually reach twice as much, and all wait for the slowest";
            found.push(Finding::new("link", state, format!("{speed:.0} MB/s to the first host"), advice));
        }
        all.extend(found.into_iter().map(|finding| finding.on(rank, &account.host)));
    }
    all
}

/// Whether every rank sees a file that rank 0 makes in `folder`.
fn sees_what_the_first_writes(folder: &Path, comm: &dyn Communicator) -> Result<bool, CollectiveError> {
    // A new name each time: file servers remember for a while what was not there.
    let name = format!(".segue-doctor-{}-{}", segue_cluster::host_name(), std::process::id());
    let names = comm.all_gather(name.as_bytes())?;
    let path: PathBuf = folder.join(String::from_utf8_lossy(&names[0]).into_owned());
    // A folder that cannot be written is a finding of its own.
    let written = comm.rank() != 0 || std::fs::write(&path, b"seen").is_ok();
    comm.barrier()?;
    let seen = !written || path.exists();
    comm.barrier()?;
    if comm.rank() == 0 {
        let _ = std::fs::remove_file(&path);
    }
    Ok(seen)
}

/// Bytes to and fro between rank 0 and each other rank, one after the other: MB/s in one direction, on rank 0.
fn links(comm: &dyn Communicator) -> Result<Vec<Option<f64>>, CollectiveError> {
    let mut bytes = vec![0; LINK_BYTES];
    let mut speeds = vec![None; comm.world_size()];
    for (peer, speed) in speeds.iter_mut().enumerate().skip(1) {
        let mut best = 0f64;
        for _ in 0..LINK_REPEATS {
            let begun = Instant::now();
            match comm.rank() {
                0 => {
                    comm.send(peer, &bytes)?;
                    comm.recv(peer, &mut bytes)?;
                }
                rank if rank == peer => {
                    comm.recv(0, &mut bytes)?;
                    comm.send(0, &bytes)?;
                }
                _ => {}
            }
            best = best.max(2.0 * LINK_BYTES as f64 / 1e6 / begun.elapsed().as_secs_f64());
        }
        *speed = Some(best);
        comm.barrier()?;
    }
    Ok(speeds)
}

/// What most say; of several that are said as often, what was said first.
fn most<'a>(said: impl Iterator<Item = &'a str>) -> &'a str {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for word in said {
        match counts.iter_mut().find(|(known, _)| *known == word) {
            Some((_, count)) => *count += 1,
            None => counts.push((word, 1)),
        }
    }
    counts.into_iter().rev().max_by_key(|(_, count)| *count).map_or("nothing", |(word, _)| word)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(host: &str) -> Account {
        let alike = [("program", "1.0 abc"), ("libtorch", "2.11.0"), ("corpus 0", "/c: f00")];
        Account {
            host: host.into(),
            findings: vec![Finding::ok("memory", "much")],
            alike: alike.map(|(name, value)| (name.into(), value.into())).into(),
            kernels: "for avx2".into(),
            gflops: 100.0,
            sees_the_folder: true,
        }
    }

    /// What is not as it should be: host, what, state.
    fn sick(accounts: Vec<Account>, links: &[Option<f64>]) -> Vec<(String, String, State)> {
        let all = judge(accounts, links).into_iter().filter(|finding| finding.state != State::Ok);
        all.map(|finding| (finding.host.unwrap_or_default(), finding.what.into_owned(), finding.state))
            .collect()
    }

    #[test]
    fn hosts_that_are_alike_have_nothing_to_be_said_of() {
        let links = [None, Some(900.0), Some(1000.0)];
        assert!(sick(["a", "b", "c"].map(account).into(), &links).is_empty());
    }

    #[test]
    fn the_host_that_differs_is_named_with_what_differs() {
        let links = [None, Some(900.0), Some(100.0), Some(1000.0)];
        let mut accounts: Vec<Account> = ["a", "b", "c", "d"].map(account).into();
        accounts[0].alike.insert("program".into(), "0.9 abd".into());
        accounts[0].sees_the_folder = true;
        accounts[1].alike.remove("corpus 0");
        accounts[1].gflops = 60.0;
        accounts[3].kernels = "for avx512".into();
        accounts[3].sees_the_folder = false;
        let named = |host: &str, what: &str, state| (host.to_string(), what.to_string(), state);
        assert_eq!(
            sick(accounts, &links),
            [
                named("a", "program", State::Missing),
                named("b", "corpus", State::Missing),
                named("b", "products", State::Warning),
                named("c", "link", State::Warning),
                named("d", "kernels", State::Warning),
                named("d", "folder", State::Missing),
            ]
        );
    }

    #[test]
    fn of_two_that_differ_the_first_is_the_measure() {
        let mut accounts: Vec<Account> = ["a", "b"].map(account).into();
        accounts[1].alike.insert("libtorch".into(), "2.10.0".into());
        let found = sick(accounts, &[None, Some(1.0)]);
        assert_eq!(found, [("b".to_string(), "libtorch".to_string(), State::Missing)]);
        assert_eq!((most(["a", "b", "b"].into_iter()), most([].into_iter())), ("b", "nothing"));
    }
}
