//! Hosts next to each other: what has to be alike on them, which is slower than the others, and how fast the first is reached.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

use segue_collectives::{CollectiveError, Communicator};
use segue_engine as engine;
use serde::{Deserialize, Serialize};

use super::host::{CORPUS, PRODUCTS};
use super::{DoctorArgs, Finding, State};
use crate::failure::{BUG, Failure};

/// Of the median of all hosts: what a host or its link reaches at least, or it holds the others up.
const LEAST_OF_MEDIAN: f64 = 0.8;
const LEAST_LINK_OF_MEDIAN: f64 = 0.5;
/// Sent to and fro over a link, so many times.
const LINK_BYTES: usize = 4 << 20;
const LINK_REPEATS: usize = 3;

/// A folder in which a rank sees what whoever asks has written there.
const SHARED: &str = "the folder of who asks";

/// What a rank tells of its host.
#[derive(Serialize, Deserialize)]
struct Account {
    host: String,
    findings: Vec<Finding>,
    /// What has to be alike, by its name.
    alike: BTreeMap<String, String>,
    /// What the kernels of products are made for, which `train.exact` wants alike.
    kernels: String,
}

/// What is known beforehand of how hosts should be.
#[derive(Default)]
struct Expected<'a> {
    program: Option<&'a str>,
    folder: Option<&'a str>,
    exact: bool,
}

/// Adds what a comparison of all hosts shows to what each has found; on rank 0, and nothing elsewhere.
pub fn compare(
    findings: Vec<Finding>,
    args: &DoctorArgs,
    comm: &dyn Communicator,
) -> Result<Vec<Finding>, Failure> {
    // By the name of the folder: a host may have some of several.
    let corpora = findings.iter().filter(|finding| finding.what == CORPUS && finding.state == State::Ok);
    let folder_and_name = |finding: &Finding| {
        let (folder, name) = finding.found.rsplit_once(": ")?;
        Some((format!("{CORPUS} {folder}"), name.to_string()))
    };
    let mut alike: BTreeMap<String, String> = corpora.filter_map(folder_and_name).collect();
    alike.insert("program".into(), engine::program().into());
    alike.insert("libtorch".into(), engine::kernels(false));
    let folder = match &args.mark {
        Some(mark) if args.folder.join(mark).exists() => SHARED.into(),
        Some(_) => "another folder under this path".into(),
        None => marks_in(&args.folder, comm)?,
    };
    alike.insert("folder".into(), folder);
    let own = Account { host: segue_cluster::host_name(), findings, alike, kernels: engine::kernels(true) };
    let text = serde_json::to_vec(&own).map_err(|e| Failure::new(BUG, e.to_string()))?;
    let gathered = comm.gather(0, &text)?;
    let links = links(comm)?;
    let Some(gathered) = gathered else { return Ok(Vec::new()) };
    let accounts = gathered.iter().enumerate().map(|(rank, bytes)| read(rank, bytes)).collect();
    let folder = args.mark.is_some().then_some(SHARED);
    Ok(judge(accounts, &links, &Expected { program: args.program.as_deref(), folder, exact: args.exact }))
}

/// What a rank tells; of one that another version of this program runs on, only that.
fn read(rank: usize, bytes: &[u8]) -> Account {
    serde_json::from_slice(bytes).unwrap_or_else(|_| Account {
        host: format!("the host of rank {rank}"),
        findings: Vec::new(),
        alike: [("program".to_string(), "another version".to_string())].into(),
        kernels: String::new(),
    })
}

/// What all accounts show, rank by rank; `links[rank]` is the speed of the link to the first in MB/s, nothing for itself.
fn judge(accounts: Vec<Account>, links: &[Option<f64>], expected: &Expected) -> Vec<Finding> {
    let usual_kernels = most(accounts.iter().map(|account| account.kernels.as_str())).to_string();
    let names: BTreeSet<String> = accounts.iter().flat_map(|account| account.alike.keys().cloned()).collect();
    let mut usual: BTreeMap<String, String> = BTreeMap::new();
    for name in names {
        let said = accounts.iter().filter_map(|account| account.alike.get(&name)).map(String::as_str);
        let value = most(said).to_string();
        usual.insert(name, value);
    }
    usual.extend(expected.program.map(|program| ("program".into(), program.into())));
    usual.extend(expected.folder.map(|folder| ("folder".into(), folder.into())));
    let speed = |account: &Account| {
        account.findings.iter().find(|finding| finding.what == PRODUCTS).and_then(|finding| finding.value)
    };
    let usual_speed = median(accounts.iter().filter_map(speed));
    let usual_link = median(links.iter().flatten().copied());
    let mut all = Vec::new();
    for (rank, (account, link)) in accounts.into_iter().zip(links).enumerate() {
        let speed = speed(&account).unwrap_or(usual_speed);
        let mut found = account.findings;
        for (name, usual) in &usual {
            let own = account.alike.get(name).map_or("nothing", String::as_str);
            // A corpus that is not there is among the findings.
            if own != usual && (own != "nothing" || !name.starts_with(CORPUS)) {
                found.push(Finding::new(
                    name.clone(),
                    State::Missing,
                    format!("{own}; other hosts have {usual}"),
                    "give every host the same program, libtorch and corpus, and a run folder that all share",
                ));
            }
        }
        if account.kernels != usual_kernels {
            found.push(Finding::new(
                "kernels",
                if expected.exact { State::Missing } else { State::Warning },
                format!("{}; other hosts have {usual_kernels}", account.kernels),
                "train.exact wants them alike: set ATEN_CPU_CAPABILITY=avx2 and ONEDNN_MAX_CPU_ISA=AVX2 on all hosts",
            ));
        }
        if speed < LEAST_OF_MEDIAN * usual_speed {
            found.push(Finding::new(
                "pace",
                State::Warning,
                format!("{speed:.0} GFLOP/s on one core; hosts reach {usual_speed:.0}"),
                "this host will hold the others up: look for other jobs on it, and for a limit on its clock",
            ));
        }
        if let Some(speed) = link {
            let slow = *speed < LEAST_LINK_OF_MEDIAN * usual_link;
            let state = if slow { State::Warning } else { State::Ok };
            let advice = "look at its network: all wait for the slowest";
            let finding = Finding::new("link", state, format!("{speed:.0} MB/s to the first host"), advice);
            found.push(Finding { value: Some(*speed), ..finding });
        }
        all.extend(found.into_iter().map(|finding| finding.on(rank, &account.host)));
    }
    all
}

/// Each rank leaves a mark in `folder`: whose marks this one sees there, which is the same on all where they share it.
fn marks_in(folder: &Path, comm: &dyn Communicator) -> Result<String, CollectiveError> {
    // Named anew each time: file servers remember for a while what was not there.
    let mark = tempfile::Builder::new().prefix(".segue-doctor-").tempfile_in(folder);
    let name = mark.as_ref().ok().and_then(|mark| mark.path().file_name()?.to_str()).unwrap_or_default();
    let names = comm.all_gather(name.as_bytes())?;
    let is_there = |name: &[u8]| {
        std::str::from_utf8(name).is_ok_and(|name| !name.is_empty() && folder.join(name).exists())
    };
    let seen: Vec<String> = names
        .iter()
        .enumerate()
        .filter(|(_, name)| is_there(name))
        .map(|(rank, _)| rank.to_string())
        .collect();
    comm.barrier()?;
    Ok(format!("what ranks {} write", seen.join(", ")))
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
    let middle = &values[values.len().saturating_sub(1) / 2..(values.len() / 2 + 1).min(values.len())];
    middle.iter().sum::<f64>() / middle.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(host: &str) -> Account {
        let alike = [
            ("program", "abc"),
            ("libtorch", "2.11.0"),
            ("corpus /c", "f00"),
            ("folder", "what ranks 0 write"),
        ];
        let products = Finding { value: Some(100.0), ..Finding::ok(PRODUCTS, "100 GFLOP/s") };
        Account {
            host: host.into(),
            findings: vec![Finding::ok("memory", "much"), products],
            alike: alike.map(|(name, value)| (name.into(), value.into())).into(),
            kernels: "for avx2".into(),
        }
    }

    /// What is not as it should be: rank, what, state.
    fn sick(
        accounts: Vec<Account>,
        links: &[Option<f64>],
        expected: &Expected,
    ) -> Vec<(usize, String, State)> {
        let all = judge(accounts, links, expected).into_iter().filter(|finding| finding.state != State::Ok);
        all.map(|finding| (finding.rank.unwrap_or(99), finding.what.into_owned(), finding.state)).collect()
    }

    const LINKS: [Option<f64>; 4] = [None, Some(900.0), Some(1100.0), Some(1000.0)];

    #[test]
    fn hosts_that_are_alike_have_nothing_to_be_said_of() {
        assert!(sick(["a", "b", "c", "d"].map(account).into(), &LINKS, &Expected::default()).is_empty());
    }

    #[test]
    fn the_host_that_differs_is_named_with_what_differs() {
        let mut accounts: Vec<Account> = ["a", "b", "c", "d"].map(account).into();
        accounts[0].alike.insert("program".into(), "abd".into());
        accounts[1].alike.insert("corpus /c".into(), "f01".into());
        accounts[1].findings[1].value = Some(60.0);
        accounts[3].kernels = "for avx512".into();
        accounts[3].alike.insert("folder".into(), "what ranks 3 write".into());
        let links = [None, Some(900.0), Some(100.0), Some(1000.0)];
        let named = |rank: usize, what: &str, state| (rank, what.to_string(), state);
        let expected = [
            named(0, "program", State::Missing),
            named(1, "corpus /c", State::Missing),
            named(1, "pace", State::Warning),
            named(2, "link", State::Warning),
            named(3, "folder", State::Missing),
            named(3, "kernels", State::Missing),
        ];
        assert_eq!(sick(accounts, &links, &Expected { exact: true, ..Expected::default() }), expected);
    }

    /// The first has both, the others one: theirs is not taken for the first's other one.
    #[test]
    fn a_host_with_more_corpora_than_the_others_is_not_the_odd_one() {
        let mut accounts: Vec<Account> = ["a", "b", "c"].map(account).into();
        accounts[0].alike.insert("corpus /b".into(), "b00".into());
        assert!(sick(accounts, &LINKS, &Expected::default()).is_empty());
    }

    #[test]
    fn of_two_that_differ_the_first_is_the_measure_unless_it_is_known() {
        let found = |program| {
            let mut accounts: Vec<Account> = ["a", "b"].map(account).into();
            accounts[1].alike.insert("program".into(), "new".into());
            sick(accounts, &LINKS, &Expected { program, ..Expected::default() })
        };
        assert_eq!(found(None), [(1, "program".to_string(), State::Missing)]);
        assert_eq!(found(Some("new")), [(0, "program".to_string(), State::Missing)]);
    }

    #[test]
    fn a_rank_of_another_version_is_named_and_shifts_no_other() {
        let accounts = vec![account("a"), read(1, b"{\"host\": 7}"), account("c")];
        let found = sick(accounts, &LINKS, &Expected::default());
        assert!(found.iter().all(|(rank, ..)| *rank == 1), "{found:?}");
        assert!(found.iter().any(|(_, what, state)| what == "program" && *state == State::Missing));
    }

    #[test]
    fn of_even_numbers_the_median_lies_between_the_middle_two() {
        assert_eq!([median([4.0, 1.0].into_iter()), median([3.0, 9.0, 1.0].into_iter())], [2.5, 3.0]);
        assert_eq!((median([].into_iter()), most(["a", "b", "b"].into_iter())), (0.0, "b"));
    }
}
