//! The look at all hosts before a job begins: what differs between them, and which of them cannot take part.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use segue_cluster::ClusterError;
use segue_cluster::launch::command::Start;
use segue_cluster::launch::hosts::{self, Host};
use segue_cluster::launch::names::unreached;
use segue_configs::counted;
use segue_engine as engine;
use serde::Deserialize;

use crate::failure::{BAD_CONFIG, Failure};
use crate::output::Output;

/// How often it is asked whether to stop.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// What a starter has for its end.
const LAST_GRACE: Duration = Duration::from_secs(5);

/// What hosts are to have.
pub struct Needs<'a> {
    /// A folder that all share.
    pub folder: &'a Path,
    /// Corpora.
    pub corpora: &'a [&'a Path],
    /// Kernels that are alike.
    pub exact: bool,
}

/// What `segue doctor` says that counts here.
#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Findings { findings: Vec<Finding> },
    Failure { error: String },
}

/// What it found on the host of a rank.
#[derive(Debug, Deserialize)]
struct Finding {
    rank: usize,
    host: String,
    what: String,
    state: String,
    found: String,
}

/// Compares the hosts of a job by a rank on each, and gives those that can take part. Where the comparison cannot be made the hosts stay
/// as they are: an attempt shows what is wrong, and is restarted without the host that failed. But where ssh does not reach a host that the job needs, no attempt
/// would.
///
/// # Errors
///
/// Those that can take part, or that ssh reaches, have room for fewer than `min_ranks` ranks.
pub fn fit_hosts(
    start: &Start,
    min_ranks: usize,
    needs: &Needs,
    (within, stop): (Duration, &dyn Fn() -> bool),
    out: &Output,
) -> Result<Vec<Host>, Failure> {
    let mark = tempfile::Builder::new().prefix(".segue-launch-").tempfile_in(needs.folder);
    let comparison = comparison(start, needs, mark.as_ref().ok().and_then(|mark| mark.path().file_name()));
    if comparison.ranks < 2 {
        return Ok(start.hosts.clone());
    }
    let findings = match ask(&comparison, within, stop) {
        Ok(findings) => findings,
        Err(_) if stop() => return Ok(start.hosts.clone()),
        Err(why) => {
            if let Some((name, said)) = unreached([why.as_str()], &start.hosts)
                && start.hosts.iter().filter(|host| host.name != name).map(|host| host.slots).sum::<usize>()
                    < min_ranks
            {
                return Err(ClusterError::Unreached { name, said }.into());
            }
            out.line(&format!("launch: the hosts could not be compared ({why}); going on without"));
            return Ok(start.hosts.clone());
        }
    };
    for Finding { host, what, state, found, .. } in findings.iter().filter(|finding| finding.state != "ok") {
        out.line(&format!("launch: {state}: {host}: {what}: {found}"));
    }
    let sick = sick_hosts(&comparison.hosts, &findings);
    if sick.is_empty() {
        return Ok(start.hosts.clone());
    }
    let is_fit = |host: &&Host| !sick.contains(&host.name.as_str());
    let fit: Vec<Host> = start.hosts.iter().filter(is_fit).cloned().collect();
    if fit.iter().map(|host| host.slots).sum::<usize>() < min_ranks {
        let message = format!(
            "{} cannot take part, and the other hosts have no room for {}\nhint: mend what is said above, allow fewer \
             ranks by --min-ranks, or leave this check out by --no-preflight",
            sick.join(", "),
            counted(min_ranks, "rank")
        );
        return Err(Failure::new(BAD_CONFIG, message));
    }
    out.line(&format!("launch: left out: {}", sick.join(", ")));
    Ok(fit)
}

/// `segue doctor` by one rank on each host.
fn comparison(start: &Start, needs: &Needs, mark: Option<&OsStr>) -> Start {
    let mut arguments = vec!["doctor".into(), "--json".into(), "--folder".into(), needs.folder.into()];
    arguments.extend(mark.into_iter().flat_map(|mark| ["--mark".into(), mark.into()]));
    arguments.extend(["--program".into(), engine::program().into()]);
    arguments.extend(needs.corpora.iter().flat_map(|corpus| ["--corpus".into(), (*corpus).into()]));
    arguments.extend(needs.exact.then(|| "--exact".into()));
    let hosts = start.hosts.iter().filter(|host| host.slots > 0);
    let hosts: Vec<Host> = hosts.map(|host| Host { slots: 1, ..host.clone() }).collect();
    Start { ranks: hosts.len(), hosts, arguments, ..start.clone() }
}

/// Hosts on which something is missing, by the names that they were given by.
fn sick_hosts<'a>(hosts: &'a [Host], findings: &[Finding]) -> Vec<&'a str> {
    let mut sick = Vec::new();
    for Finding { rank, host, .. } in findings.iter().filter(|finding| finding.state == "missing") {
        let known = hosts::of_rank(hosts, *rank, Some(host)).map(|known| known.name.as_str());
        sick.extend(known.filter(|known| !sick.contains(known)));
    }
    sick
}

/// What the comparison finds.
///
/// # Errors
///
/// Why there is no answer, as a text.
fn ask(comparison: &Start, within: Duration, stop: &dyn Fn() -> bool) -> Result<Vec<Finding>, String> {
    let mut command = comparison.command();
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut starter = command.spawn().map_err(|e| e.to_string())?;
    let (Some(stdout), Some(stderr)) = (starter.stdout.take(), starter.stderr.take()) else {
        return Err("its streams are not there".into());
    };
    let (lines, complaints) = (lines(stdout), lines(stderr));
    let begun = Instant::now();
    let answer = loop {
        if stop() {
            break Err("it was asked to stop".into());
        }
        if begun.elapsed() > within {
            break Err(format!("no answer within {} s", within.as_secs()));
        }
        match lines.recv_timeout(ASK_EVERY) {
            // A starter may put a word of its own before each line.
            Ok(line) => match line.find('{').and_then(|at| serde_json::from_str(&line[at..]).ok()) {
                Some(Answer::Findings { findings }) => break Ok(findings),
                Some(Answer::Failure { error }) => break Err(error),
                None => {}
            },
            Err(RecvTimeoutError::Disconnected) => {
                break Err(complaint(&complaints));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    };
    end(&mut starter);
    answer
}

/// What a starter says of its end: that ssh does not reach a host, where that is among it, else its first line.
fn complaint(complaints: &Receiver<String>) -> String {
    let begun = Instant::now();
    let left = || LAST_GRACE.saturating_sub(begun.elapsed());
    let said: Vec<String> = std::iter::from_fn(|| complaints.recv_timeout(left()).ok()).collect();
    let of_ssh = said.iter().find(|line| unreached([line.as_str()], &[]).is_some());
    of_ssh.or(said.first()).map_or("it said nothing".into(), String::clone)
}

/// The lines of a stream that say something, as they come.
fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            // ssh ends its lines as a terminal does.
            let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_string();
            if line.chars().any(char::is_alphanumeric) {
                // Nobody may listen any more.
                let _ = sender.send(line);
            }
        }
    });
    receiver
}

/// Ends a starter, which ends its ranks: it has had its say, or nobody waits for it any longer. It may stand still at its end.
fn end(starter: &mut Child) {
    let Some(process) = Pid::from_raw(starter.id() as i32) else { return };
    let begun = Instant::now();
    // What has ended meanwhile cannot be sent anything.
    let _ = kill_process(process, Signal::TERM);
    while matches!(starter.try_wait(), Ok(None)) && begun.elapsed() < LAST_GRACE {
        std::thread::sleep(ASK_EVERY);
    }
    let _ = kill_process_group(process, Signal::KILL);
    let _ = starter.wait();
}

#[cfg(test)]
mod tests {
    use segue_cluster::launch::command::Starter;

    use super::*;

    fn missing(rank: usize, host: &str) -> Finding {
        let [host, what, state, found] = [host, "disk", "missing", "none"].map(String::from);
        Finding { rank, host, what, state, found }
    }

    #[test]
    fn hosts_are_known_by_their_names_and_else_by_their_ranks() {
        let known = ["n1.site", "n2", "10.0.0.3"].map(|name| Host { name: name.into(), slots: 1 });
        assert_eq!(sick_hosts(&known, &[missing(0, "n2.other")]), ["n2"]);
        let several = [missing(2, "n3"), missing(2, "n3"), missing(1, "n1")];
        assert_eq!(sick_hosts(&known, &several), ["10.0.0.3", "n1.site"]);
        let fine = Finding { state: "warning".into(), ..missing(0, "n1") };
        assert!(sick_hosts(&known, &[fine]).is_empty());
    }

    /// What comes of a program that does `script`.
    fn asked(script: &str, seconds: u64, stop: bool) -> Result<Vec<Finding>, String> {
        // A script that is written here may still be open for writing in a program that another test has just started, and the system runs no such file.
        let start = Start {
            starter: Starter::Alone,
            hosts: Vec::new(),
            ranks: 1,
            program: "sh".into(),
            arguments: vec!["-c".into(), script.into()],
            variables: Vec::new(),
            options: Vec::new(),
            crowded: false,
        };
        ask(&start, Duration::from_secs(seconds), &|| stop)
    }

    #[test]
    fn an_answer_counts_though_the_starter_never_ends() {
        let found = r#"{"findings":[{"rank":1,"host":"b","what":"disk","state":"missing","found":""}]}"#;
        let script = format!("echo a word; echo '[1,0]<stdout>:{found}'; exec sleep 1000");
        let found = asked(&script, 60, false).unwrap();
        assert_eq!(found[0].rank, 1);
    }

    #[test]
    fn no_answer_is_told_with_its_reason() {
        assert_eq!(asked("exec sleep 1000", 1, false).unwrap_err(), "no answer within 1 s");
        assert_eq!(asked("echo 1", 60, false).unwrap_err(), "it said nothing");
        let failure = r#"echo '{"error":"no MPI","rank":0}'"#;
        assert_eq!(asked(failure, 60, false).unwrap_err(), "no MPI");
        assert_eq!(asked("exec sleep 1000", 60, true).unwrap_err(), "it was asked to stop");
        let failure = r"echo ---- >&2; printf 'no such host\r\n' >&2";
        assert_eq!(asked(failure, 60, false).unwrap_err(), "no such host");
        let refused = "ssh: connect to host n2 port 22: Connection refused";
        let failure = format!("echo 'a daemon has died' >&2; echo '{refused}' >&2");
        assert_eq!(asked(&failure, 60, false).unwrap_err(), refused);
    }
}
