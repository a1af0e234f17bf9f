//! Where ranks may run: hosts and their slots, as people and batch systems write them down.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::Path;

use super::slurm::{NodeList, slurm_tasks};
pub use super::source::{MOST, MOST_HOSTS, Source};
use super::source::{malformed, number, ranks};
use crate::ClusterError;

/// A host, and how many ranks it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its name or address.
    pub name: String,
    /// Ranks that it takes.
    pub slots: usize,
}

impl Host {
    fn new(name: &str, slots: usize) -> Self {
        Self { name: name.into(), slots }
    }
}

/// Reads `--hosts`: `node1:4,node2:4`. A host without a number takes one rank, a host that is named again more.
///
/// ```
/// let hosts = segue_cluster::launch::hosts::from_option("node1:4,node2").unwrap();
/// assert_eq!((hosts[0].slots, hosts[1].slots), (4, 1));
/// ```
///
/// # Errors
///
/// The first host that cannot be read.
pub fn from_option(text: &str) -> Result<Vec<Host>, ClusterError> {
    let hosts = text.split(',').map(str::trim).filter(|host| !host.is_empty()).map(|host| {
        let (name, slots) = match host.rsplit_once(':') {
            // An address of IP version 6 stands in brackets where it has a number behind it.
            Some((name, slots)) if !name.contains(':') || name.starts_with('[') => {
                let refused = || ClusterError::BadOption {
                    option: "--hosts",
                    value: host.into(),
                    expected: "a host and its number of ranks, at most 1048576",
                };
                (name, ranks(slots).ok_or_else(refused)?)
            }
            _ => (host, 1),
        };
        Ok(Host::new(name.trim_start_matches('[').trim_end_matches(']'), slots))
    });
    merged(Source::Option, hosts.collect::<Result<Vec<_>, _>>()?)
}

/// Reads a host file as Open MPI's (`node1 slots=4`), MPICH's (`node1:4`) or a plain list (a line for each rank); `#` begins a
/// comment. `text` is what the file at `path` holds.
///
/// # Errors
///
/// The first line that cannot be read.
pub fn from_file(path: &Path, text: &str) -> Result<Vec<Host>, ClusterError> {
    merged(Source::File(path.into()), of_lines(path, text)?)
}

fn of_lines(path: &Path, text: &str) -> Result<Vec<Host>, ClusterError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()).zip(1..);
    let hosts = lines.filter(|(line, _)| !line.is_empty()).map(|(line, number)| {
        let refused = || ClusterError::HostLine {
            path: path.into(),
            line: number,
            value: line.into(),
            expected: "a host and its number of ranks, at most 1048576",
        };
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let slots = words.find_map(|word| word.strip_prefix("slots=").or(word.strip_prefix("slots:")));
        match (slots, name.rsplit_once(':')) {
            (Some(slots), _) => Ok(Host::new(name, ranks(slots).ok_or_else(refused)?)),
            (None, Some((name, slots))) if !name.contains(':') => {
                Ok(Host::new(name, ranks(slots).ok_or_else(refused)?))
            }
            _ => Ok(Host::new(name, 1)),
        }
    });
    hosts.collect()
}

/// The hosts that a batch system has given this job, by its variables; `read` gives the text of a file. `None` outside of one.
///
/// # Errors
///
/// A variable that does not hold what its system writes, a file that cannot be read.
pub fn of_batch_system(
    variables: &BTreeMap<String, String>,
    read: impl Fn(&str) -> std::io::Result<String>,
) -> Result<Option<(Source, Vec<Host>)>, ClusterError> {
    let variable = |name: &str| variables.get(name).map(String::as_str).filter(|text| !text.is_empty());
    if let Some(list) = variable("SLURM_JOB_NODELIST") {
        let list = NodeList::read(list)?;
        let tasks = variable("SLURM_TASKS_PER_NODE")
            .map_or_else(|| Ok(vec![1; list.nodes]), |tasks| slurm_tasks(tasks, list.nodes))?;
        let hosts = list.names().into_iter().zip(tasks).map(|(name, slots)| Host { name, slots }).collect();
        return merged(Source::Slurm, hosts).map(|hosts| Some((Source::Slurm, hosts)));
    }
    if let Some(path) = variable("PBS_NODEFILE") {
        let text = read(path).map_err(|source| ClusterError::HostFile { path: path.into(), source })?;
        let hosts = of_lines(Path::new(path), &text)?;
        return merged(Source::Pbs, hosts).map(|hosts| Some((Source::Pbs, hosts)));
    }
    if let Some(text) = variable("LSB_MCPU_HOSTS") {
        let words: Vec<&str> = text.split_whitespace().collect();
        let pairs = words.chunks(2).map(|pair| match pair {
            [name, slots] => Ok(Host::new(name, number("LSB_MCPU_HOSTS", slots)?)),
            _ => Err(malformed("LSB_MCPU_HOSTS", text, "hosts with a number behind each")),
        });
        let hosts = pairs.collect::<Result<Vec<_>, _>>()?;
        return merged(Source::Lsf, hosts).map(|hosts| Some((Source::Lsf, hosts)));
    }
    Ok(None)
}

/// Hosts without those that are blocked, cut down to `ranks` slots in their order; fewer where there are no more.
pub fn take(hosts: &[Host], blocked: &[String], ranks: usize) -> Vec<Host> {
    let mut left = ranks;
    let free = hosts.iter().filter(|host| !blocked.contains(&host.name));
    let taken = free.map(|host| {
        let slots = host.slots.min(left);
        left -= slots;
        Host { slots, ..host.clone() }
    });
    taken.filter(|host| host.slots > 0).collect()
}

/// Each host once, in the order in which they are named first, with all of its slots.
fn merged(from: Source, hosts: Vec<Host>) -> Result<Vec<Host>, ClusterError> {
    // At the first place of each host, all of its slots.
    let mut totals: Vec<Option<usize>> = vec![None; hosts.len()];
    let mut places: HashMap<&str, usize> = HashMap::with_capacity(hosts.len().min(MOST_HOSTS + 1));
    let mut slots = 0_usize;
    for (place, host) in hosts.iter().enumerate() {
        if host.name.is_empty() || host.name.contains(char::is_whitespace) {
            return Err(ClusterError::NoHosts { from });
        }
        // Each is a number of ranks, and so is their sum.
        slots += host.slots;
        if slots > MOST {
            return Err(ClusterError::TooManyRanks { from, most: MOST });
        }
        let first = *places.entry(&host.name).or_insert(place);
        if places.len() > MOST_HOSTS {
            return Err(ClusterError::TooManyHosts { from, most: MOST_HOSTS });
        }
        *totals[first].get_or_insert(0) += host.slots;
    }
    if slots == 0 {
        return Err(ClusterError::NoHosts { from });
    }
    let totals = hosts.into_iter().zip(totals);
    Ok(totals.filter_map(|(host, slots)| Some(Host { slots: slots?, ..host })).collect())
}

/// The host of rank `rank`: the one that it says it is on, where that is known under such a name, or the one whose slots it is in.
pub fn of_rank<'a>(hosts: &'a [Host], rank: usize, says: Option<&str>) -> Option<&'a Host> {
    if let Some(says) = says {
        if let Some(host) = hosts.iter().find(|host| host.name == says) {
            return Some(host);
        }
        let mut alike = hosts.iter().filter(|host| first_label(&host.name) == first_label(says));
        if let (Some(host), None) = (alike.next(), alike.next()) {
            return Some(host);
        }
    }
    let mut before = 0;
    hosts.iter().find(|host| {
        before += host.slots;
        rank < before
    })
}

/// The name without its domain; an address whole.
fn first_label(name: &str) -> &str {
    match name.parse::<IpAddr>() {
        Ok(_) => name,
        Err(_) => name.split('.').next().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOSTFILE: &str = "my hosts";

    fn shown(hosts: &[Host]) -> String {
        hosts.iter().map(|host| format!("{}:{}", host.name, host.slots)).collect::<Vec<_>>().join(",")
    }

    fn of(variables: &[(&str, &str)]) -> Result<Option<(Source, Vec<Host>)>, ClusterError> {
        let variables = variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        of_batch_system(&variables, |path| match path {
            "nodes" => Ok("n1\nn1\nn2\nn1\n".into()),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        })
    }

    #[test]
    fn a_rank_is_on_the_host_that_it_names_or_in_whose_slots_it_is() {
        let of = |names: [&str; 3], rank, says: Option<&str>| {
            let hosts = names.map(|name| Host { name: name.into(), slots: 2 });
            of_rank(&hosts, rank, says).map(|host| host.name.clone())
        };
        let names = ["n1.site", "n2", "10.0.0.3"];
        assert_eq!(of(names, 0, Some("n2.other")).as_deref(), Some("n2"));
        assert_eq!(of(names, 0, Some("n1")).as_deref(), Some("n1.site"));
        assert_eq!(of(names, 4, Some("10.0.0.7")).as_deref(), Some("10.0.0.3"));
        assert_eq!(of(names, 2, None).as_deref(), Some("n2"));
        assert_eq!(of(names, 6, None), None);
        // Two of one name in two domains.
        let racks = ["node1.rack1", "node1.rack2", "n3"];
        assert_eq!(of(racks, 0, Some("node1.rack2")).as_deref(), Some("node1.rack2"));
        assert_eq!(of(racks, 3, Some("node1")).as_deref(), Some("node1.rack2"));
    }

    #[test]
    fn hosts_are_read_as_people_write_them() {
        for (text, expected) in [
            ("a", "a:1"),
            ("a:4,b:2", "a:4,b:2"),
            ("a, b ,a", "a:2,b:1"),
            ("10.0.0.1:3,[fe80::1]:2,fe80::2", "10.0.0.1:3,fe80::1:2,fe80::2:1"),
        ] {
            assert_eq!(shown(&from_option(text).unwrap()), expected, "{text}");
        }
        let file = "# a comment\nnode1 slots=4 max_slots=8\nnode2:2   # behind\n\nnode3\nnode3\n";
        assert_eq!(shown(&from_file(HOSTFILE.as_ref(), file).unwrap()), "node1:4,node2:2,node3:2");
        for bad in ["", " , ", "a:x", "a:-1", "a:0", "a b"] {
            assert!(from_option(bad).is_err(), "{bad}");
        }
        for (text, why, code) in [
            ("n1\n# n2\nn3 slots=many", "`n3 slots=many` in my hosts, line 3, is not a host and its", 65),
            ("n1:-1", "`n1:-1` in my hosts, line 1,", 65),
            ("# nothing\n", "the hosts of my hosts cannot be used", 65),
        ] {
            let error = from_file(HOSTFILE.as_ref(), text).unwrap_err();
            assert!(error.to_string().starts_with(why), "{error}");
            assert_eq!((error.exit_code(), error.hint().as_deref()), (code, Some(crate::error::NAME_HOSTS)));
        }
        let error = from_option("a:1, b:-1").unwrap_err();
        assert_eq!(
            error.to_string(),
            "`b:-1` in --hosts is not a host and its number of ranks, at most 1048576"
        );
        assert_eq!([error.exit_code(), from_option("a:0").unwrap_err().exit_code()], [64; 2]);
    }

    #[test]
    fn batch_systems_tell_their_hosts() {
        type Case = (&'static [(&'static str, &'static str)], Source, &'static str);
        let cases: [Case; 4] = [
            (
                &[("SLURM_JOB_NODELIST", "n[01-03,7],login"), ("SLURM_TASKS_PER_NODE", "2(x3),1,4")],
                Source::Slurm,
                "n01:2,n02:2,n03:2,n7:1,login:4",
            ),
            (
                &[("SLURM_JOB_NODELIST", "r[1-2]n[1-2]"), ("SLURM_TASKS_PER_NODE", "1(x4)")],
                Source::Slurm,
                "r1n1:1,r1n2:1,r2n1:1,r2n2:1",
            ),
            (&[("PBS_NODEFILE", "nodes")], Source::Pbs, "n1:3,n2:1"),
            (&[("LSB_MCPU_HOSTS", "a 2 b 4 ")], Source::Lsf, "a:2,b:4"),
        ];
        for (variables, source, expected) in cases {
            let (found, hosts) = of(variables).unwrap().unwrap();
            assert_eq!((found, shown(&hosts)), (source, expected.to_string()));
        }
        assert_eq!(of(&[("HOME", "x")]).unwrap(), None);
        for bad in [
            &[("SLURM_JOB_NODELIST", "n[1-")][..],
            &[("SLURM_JOB_NODELIST", "n[3-1]")],
            &[("SLURM_JOB_NODELIST", "n[1-2]"), ("SLURM_TASKS_PER_NODE", "1")],
            &[("SLURM_JOB_NODELIST", "a,,b")],
            &[("SLURM_JOB_NODELIST", "n[1-2]]")],
            &[("PBS_NODEFILE", "gone")],
            &[("LSB_MCPU_HOSTS", "a 2 b")],
        ] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }

    /// Memory and time are those of what a machine could have, whatever is announced.
    #[test]
    fn numbers_that_no_machine_has_are_refused() {
        let huge = usize::MAX.to_string();
        for text in [format!("localhost:{huge},localhost:1"), format!("a:{MOST},b:1"), format!("a:{huge}0")] {
            assert!(from_option(&text).is_err(), "{text}");
        }
        assert_eq!(from_option(&format!("a:{}", MOST)).unwrap()[0].slots, MOST);
        assert!(from_file(HOSTFILE.as_ref(), &format!("a slots={huge}\na slots=1")).is_err());
        let twice = format!("{}x{}", "n[1-99999]", "[1-99999]");
        let wide = format!("n[{}1-1000000]", "0".repeat(90_000));
        let long = format!("{}[1-1000000]", "n".repeat(90_000));
        let many = ["n[1-1000000]"; 2].join(",");
        let nested = format!("n[1-1000000]{}", "x[1]".repeat(20_000));
        for list in [&twice, &wide, &long, &many, &nested, "n[1-18446744073709551615]"] {
            let list: &str = list;
            assert!(of(&[("SLURM_JOB_NODELIST", list)]).is_err(), "{}", &list[..20]);
        }
        for tasks in
            ["1(x1000000000000000000)", "1(x1048576),1(x1048576)", "18446744073709551615", "1048576,1048576"]
        {
            assert!(
                of(&[("SLURM_JOB_NODELIST", "n[1-2]"), ("SLURM_TASKS_PER_NODE", tasks)]).is_err(),
                "{tasks}"
            );
        }
        assert!(of(&[("LSB_MCPU_HOSTS", &format!("a {huge} a {huge}"))]).is_err());
    }

    /// A list of Slurm is counted before a name of it is spelled out: a few bytes stand for more names than there are machines.
    #[test]
    fn more_hosts_than_any_cluster_has_are_refused() {
        let slurm = |list: &str| of(&[("SLURM_JOB_NODELIST", list)]).map(|found| found.unwrap().1.len());
        for list in
            ["n[1-65537]", "d[0,9,0-746]d[0,9,0-404]", "n[1-65536],login", "n[0-18446744073709551615]x[1-9]"]
        {
            let error = slurm(list).unwrap_err();
            assert_eq!(error.to_string(), "the hosts of SLURM_JOB_NODELIST are more than 65536", "{list}");
            assert_eq!((error.exit_code(), error.hint().as_deref()), (78, Some(crate::error::NAME_HOSTS)));
        }
        assert_eq!([slurm("n[1-65536]").unwrap(), slurm("n[1-256]x[1-256]").unwrap()], [MOST_HOSTS; 2]);
        // Names that no machine has, of 16 MiB together.
        assert!(slurm(&format!("{}[1-60000]", "n".repeat(300))).is_err());
        let named = |hosts: usize| (0..hosts).map(|host| format!("n{host}\n")).collect::<String>();
        let file = |text: &str| from_file(HOSTFILE.as_ref(), text).map(|hosts| hosts.len());
        // A host that is named again is one.
        assert_eq!(file(&[named(MOST_HOSTS), named(9)].concat()).unwrap(), MOST_HOSTS);
        let error = file(&named(MOST_HOSTS + 1)).unwrap_err();
        assert_eq!(
            (&*error.to_string(), error.exit_code()),
            ("the hosts of my hosts are more than 65536", 65)
        );
    }

    #[test]
    fn ranks_are_taken_from_hosts_that_are_not_blocked() {
        let hosts = from_option("a:4,b:2,c:4").unwrap();
        assert_eq!(shown(&take(&hosts, &[], 5)), "a:4,b:1");
        assert_eq!(shown(&take(&hosts, &["a".into()], 5)), "b:2,c:3");
        assert_eq!(shown(&take(&hosts, &["a".into(), "c".into()], 5)), "b:2");
        assert_eq!(shown(&take(&hosts, &[], 0)), "");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-c0-9\\[\\]:,=(x) #\\n-]{0,40}") {
            let _ = (from_option(&text), from_file(HOSTFILE.as_ref(), &text), of(&[("SLURM_JOB_NODELIST", &text), ("SLURM_TASKS_PER_NODE", &text)]));
            let _ = of(&[("LSB_MCPU_HOSTS", &text)]);
        }
    }
}
