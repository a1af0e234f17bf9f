//! Hosts that lie in one machine: network namespaces with a bridge between them, and an `mpirun` over all, started by hand or by
//! `segue launch`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use segue_tests::{Workplace, alone, finish, may_mount, segue, stderr, succeed, wait_for};

/// Names of what the kernel holds for a process of tests end in its number.
struct Hosts {
    number: u32,
    count: usize,
    agent: PathBuf,
}

const NETWORK: &str = "10.213.77";

impl Hosts {
    /// `None`, said in a line, where namespaces cannot be made here.
    fn new(place: &Workplace, count: usize) -> Option<Self> {
        if !may_mount() {
            segue_skip::skip(segue_skip::Need::Root, "only root can make network namespaces");
            return None;
        }
        let hosts = Self { number: std::process::id(), count, agent: place.path("agent") };
        if !hosts.make() {
            segue_skip::skip(
                segue_skip::Need::Machine,
                "`ip` cannot make network namespaces and a bridge here",
            );
            return None;
        }
        let cases: String =
            (0..count).map(|host| format!("{}) host={};; ", hosts.address(host), hosts.name(host))).collect();
        // What Open MPI calls instead of ssh: the host, then the words of a command.
        let script = format!(
            "#!/bin/sh\ncase $1 in {cases} esac\nshift\n\
             exec ip netns exec $host unshare --uts sh -c \"hostname $host; $*\"\n"
        );
        fs::write(&hosts.agent, script).expect("a file");
        fs::set_permissions(&hosts.agent, fs::Permissions::from_mode(0o755)).expect("a program");
        Some(hosts)
    }

    fn make(&self) -> bool {
        let bridge = self.bridge();
        let mut commands = vec![format!("link add {bridge} type bridge"), format!("link set {bridge} up")];
        for host in 0..self.count {
            let (name, port) = (self.name(host), self.port(host));
            let inside = format!("v{port}");
            commands.extend([
                format!("netns add {name}"),
                format!("link add {inside} type veth peer name {port}"),
                format!("link set {inside} netns {name}"),
                format!("link set {port} master {bridge}"),
                format!("link set {port} up"),
                format!("-n {name} link set lo up"),
                format!("-n {name} addr add {}/24 dev {inside}", self.address(host)),
                format!("-n {name} link set {inside} up"),
            ]);
        }
        commands.iter().all(|words| ip(words))
    }

    fn name(&self, host: usize) -> String {
        format!("segue{}-{host}", self.number)
    }

    fn address(&self, host: usize) -> String {
        format!("{NETWORK}.{}", host + 1)
    }

    fn bridge(&self) -> String {
        format!("sgb{}", self.number)
    }

    /// The bridge's end of a host's cable.
    fn port(&self, host: usize) -> String {
        format!("sg{}-{host}", self.number)
    }

    /// `program` on the first host.
    fn first(&self, program: &Path) -> Command {
        let name = self.name(0);
        let mut command = Command::new("ip");
        let inside =
            ["netns", "exec", &name, "unshare", "--uts", "sh", "-c", "hostname $0; exec \"$@\"", &name];
        command.args(inside).arg(program);
        command
    }

    /// What Open MPI has to be told here.
    fn options(&self) -> Vec<String> {
        let agent = self.agent.display().to_string();
        let network = format!("{NETWORK}.0/24");
        let settings = [
            ("mpi_yield_when_idle", "1"),
            ("btl", "tcp,self"),
            ("plm_rsh_agent", &agent),
            ("btl_tcp_if_include", &network),
            ("oob_tcp_if_include", &network),
        ];
        settings.iter().flat_map(|(key, value)| ["--mca", key, value].map(String::from)).collect()
    }

    /// A rank on each host.
    fn mpirun(&self, args: &[String]) -> Command {
        let mut command = self.first(Path::new("mpirun"));
        let hosts: Vec<String> = (0..self.count).map(|host| format!("{}:1", self.address(host))).collect();
        command.args(["--allow-run-as-root", "--bind-to", "none"]).args(self.options());
        command.args(["--host", &hosts.join(","), "-n", &self.count.to_string()]).arg(segue()).args(args);
        command
    }

    /// `segue launch` over all hosts, the last of which takes two ranks.
    fn launch(&self, options: &[&str], args: &[String]) -> Command {
        let mut command = self.first(segue());
        let slots = |host| if host + 1 == self.count { 2 } else { 1 };
        let hosts: Vec<String> =
            (0..self.count).map(|host| format!("{}:{}", self.address(host), slots(host))).collect();
        command.args(["launch", "--json", "--hosts", &hosts.join(",")]).args(options);
        command.args(self.options().iter().map(|option| format!("--starter-option={option}"))).args(args);
        command
    }

    /// Takes the cable of a host out.
    fn cut(&self, host: usize) {
        assert!(ip(&format!("link set {} down", self.port(host))));
    }

    /// Ranks that run on all hosts.
    fn ranks(&self) -> Vec<u32> {
        (0..self.count).flat_map(|host| self.ranks_on(host)).collect()
    }

    fn ranks_on(&self, host: usize) -> Vec<u32> {
        let listed =
            |host| Command::new("ip").args(["netns", "pids", &self.name(host)]).output().expect("ip starts");
        let pids = [host].into_iter().map(listed).flat_map(|output| {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
        });
        let is_rank = |pid: &u32| {
            fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == segue())
                && fs::read_to_string(format!("/proc/{pid}/environ"))
                    .is_ok_and(|all| all.contains("OMPI_COMM_WORLD_RANK="))
        };
        pids.filter(is_rank).collect()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in 0..self.count {
            let name = self.name(host);
            let kill = format!("ip netns pids {name} 2>/dev/null | xargs -r kill -9");
            let _ = Command::new("sh").args(["-c", &kill]).status();
            ip(&format!("netns del {name}"));
            ip(&format!("link del {}", self.port(host)));
        }
        ip(&format!("link del {}", self.bridge()));
    }
}

fn ip(words: &str) -> bool {
    let status = Command::new("ip").args(words.split(' ')).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

#[test]
fn two_hosts_give_the_bytes_of_one_process_and_a_host_that_is_cut_off_ends_the_job() {
    let place = Workplace::new();
    let Some(hosts) = Hosts::new(&place, 2) else { return };
    let steps = ["train.steps=10"];
    succeed(alone(&place.pretrain("one", &steps)));
    let output = finish(hosts.mpirun(&place.pretrain("two", &steps)));
    assert!(output.status.success(), "{}", stderr(&output));
    place.assert_same("one", "two");

    let endless =
        ["train.steps=1000000", "train.deadline=2", "log.every=1", "checkpoint.every=0", "eval.every=0"];
    let said = place.path("said");
    let mut command = hosts.mpirun(&place.pretrain("cut", &endless));
    let mut job = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(&said).expect("a file"))
        .spawn()
        .expect("ip starts");
    let metrics = place.path("cut/metrics.jsonl");
    let steps_made = || fs::read_to_string(&metrics).unwrap_or_default().matches("\"step\"").count();
    wait_for("twenty steps", Duration::from_secs(60), || steps_made() > 20);
    assert_eq!(hosts.ranks().len(), 2);
    hosts.cut(1);
    // The deadline, the time that a launcher has to end what is left, and room for a busy machine.
    wait_for("the end of both ranks", Duration::from_secs(30), || hosts.ranks().is_empty());
    let said = fs::read_to_string(said).expect("what it said");
    for word in ["error on rank 0: MPI_", "has waited 2 s for", "in step", "train.deadline"] {
        assert!(said.contains(word), "`{word}` is not in what it said:\n{said}");
    }
    // Open MPI's mpirun waits for the other host's daemon for as long as TCP tries to reach it, which is not ours to end.
    let _ = job.kill();
    let _ = job.wait();
}

#[test]
fn launched_over_three_hosts_a_job_goes_on_with_two_when_one_is_cut_off() {
    let place = Workplace::new();
    let Some(hosts) = Hosts::new(&place, 3) else { return };
    let steps = ["train.steps=400", "checkpoint.every=20", "eval.every=0", "log.every=1"];
    succeed(alone(&place.pretrain("one", &steps)));
    let job: Vec<String> =
        place.pretrain("cut", &steps).into_iter().filter(|word| word != "--json").collect();
    let said = place.path("said");
    let mut command = hosts.launch(&["--min-ranks", "2", "--back-off", "0.1", "--silence", "4"], &job);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(fs::File::create(&said).expect("a file"));
    let launched = command.spawn().expect("ip starts");
    let metrics = place.path("cut/metrics.jsonl");
    let steps_made = || fs::read_to_string(&metrics).unwrap_or_default().matches("\"step\"").count();
    wait_for("thirty steps", Duration::from_secs(60), || steps_made() > 30);
    assert_eq!(hosts.ranks_on(2).len(), 2);
    hosts.cut(2);
    let cut = Instant::now();
    let told = || fs::read_to_string(&said).unwrap_or_default();
    // Its silence is 4 s long; the rest is room for a busy machine.
    wait_for("word of the cut", Duration::from_secs(15), || {
        told().contains("the attempt will be ended: rank")
    });
    let noticed = cut.elapsed();
    let report = place.path("cut/launch/attempt-0001.json");
    wait_for("the report of the first attempt", Duration::from_secs(30), || report.exists());
    let ended = cut.elapsed();
    // Those that were cut off have ended themselves before others take their place.
    wait_for("the second attempt", Duration::from_secs(30), || !hosts.ranks_on(1).is_empty());
    assert!(hosts.ranks_on(2).is_empty());
    let output = launched.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", told());
    place.assert_same("one", "cut");
    let report: serde_json::Value =
        serde_json::from_slice(&fs::read(report).expect("a report")).expect("JSON");
    assert_eq!(report["first"]["host"], hosts.address(2), "{report:#}");
    assert!(report["hung"].as_str().is_some_and(|why| why.contains("silent for 4 s")), "{report:#}");
    assert_eq!(report["world_size"], 4);
    let second = fs::read(place.path("cut/launch/attempt-0002.json")).expect("a second report");
    let second: serde_json::Value = serde_json::from_slice(&second).expect("JSON");
    assert_eq!((&second["world_size"], &second["code"]), (&2.into(), &0.into()), "{}", told());
    println!(
        "noticed {:.1} s after the cut, ended after {:.1} s",
        noticed.as_secs_f64(),
        ended.as_secs_f64()
    );
}

#[test]
fn a_host_that_lacks_the_corpus_is_left_out_before_the_job_begins() {
    let place = Workplace::new();
    let Some(hosts) = Hosts::new(&place, 3) else { return };
    // The agent hides the corpus from the last host.
    let hidden = place.path("hidden");
    fs::create_dir(&hidden).expect("a folder");
    let script = fs::read_to_string(&hosts.agent).expect("the agent");
    let (name, corpus) = (hosts.name(2), place.path("corpus"));
    let hide = format!(
        "[ $host = {name} ] && exec ip netns exec $host unshare --uts --mount sh -c \"hostname $host; mount --bind {} {}; $*\"\nexec ",
        hidden.display(),
        corpus.display()
    );
    fs::write(&hosts.agent, script.replacen("exec ", &hide, 1)).expect("a file");
    let steps = ["train.steps=4"];
    succeed(alone(&place.pretrain("one", &steps)));
    let job: Vec<String> =
        place.pretrain("some", &steps).into_iter().filter(|word| word != "--json").collect();
    let output = finish(hosts.launch(&["--min-ranks", "2"], &job));
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains(&format!("launch: missing: {name}: corpus: ")), "{said}");
    assert!(said.contains(&format!("launch: left out: {}", hosts.address(2))), "{said}");
    assert!(said.contains("attempt 1: 2 ranks"), "{said}");
    place.assert_same("one", "some");

    let output = finish(hosts.launch(&[], &job));
    assert_eq!(output.status.code(), Some(78));
    assert!(stderr(&output).contains("--min-ranks"), "{}", stderr(&output));
}
