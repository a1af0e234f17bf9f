//! Two hosts that lie in one machine: network namespaces with a bridge between them, and an `mpirun` over both.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use segue_tests::{Workplace, alone, finish, may_mount, segue, stderr, succeed, wait_for};

/// Names of what the kernel holds for a process of tests end in its number.
struct Hosts {
    number: u32,
    agent: PathBuf,
}

const NETWORK: &str = "10.213.77";

impl Hosts {
    /// `None`, said in a line, where namespaces cannot be made here.
    fn new(place: &Workplace) -> Option<Self> {
        if !may_mount() {
            segue_skip::skip(segue_skip::Need::Root, "only root can make network namespaces");
            return None;
        }
        let hosts = Self { number: std::process::id(), agent: place.path("agent") };
        if !hosts.make() {
            segue_skip::skip(
                segue_skip::Need::Machine,
                "`ip` cannot make network namespaces and a bridge here",
            );
            return None;
        }
        let names = [hosts.name(0), hosts.name(1)];
        // What Open MPI calls instead of ssh: the host, then the words of a command.
        let script = format!(
            "#!/bin/sh\ncase $1 in {NETWORK}.1) host={};; *) host={};; esac\nshift\n\
             exec ip netns exec $host unshare --uts sh -c \"hostname $host; $*\"\n",
            names[0], names[1]
        );
        fs::write(&hosts.agent, script).expect("a file");
        fs::set_permissions(&hosts.agent, fs::Permissions::from_mode(0o755)).expect("a program");
        Some(hosts)
    }

    fn make(&self) -> bool {
        let bridge = self.bridge();
        let mut commands = vec![format!("link add {bridge} type bridge"), format!("link set {bridge} up")];
        for host in 0..2 {
            let (name, port) = (self.name(host), self.port(host));
            let inside = format!("v{port}");
            commands.extend([
                format!("netns add {name}"),
                format!("link add {inside} type veth peer name {port}"),
                format!("link set {inside} netns {name}"),
                format!("link set {port} master {bridge}"),
                format!("link set {port} up"),
                format!("-n {name} link set lo up"),
                format!("-n {name} addr add {NETWORK}.{}/24 dev {inside}", host + 1),
                format!("-n {name} link set {inside} up"),
            ]);
        }
        commands.iter().all(|words| ip(words))
    }

    fn name(&self, host: usize) -> String {
        format!("segue{}-{host}", self.number)
    }

    fn bridge(&self) -> String {
        format!("sgb{}", self.number)
    }

    /// The bridge's end of a host's cable.
    fn port(&self, host: usize) -> String {
        format!("sg{}-{host}", self.number)
    }

    /// A rank on each host.
    fn mpirun(&self, args: &[String]) -> Command {
        let name = self.name(0);
        let mut command = Command::new("ip");
        command.args([
            "netns",
            "exec",
            &name,
            "unshare",
            "--uts",
            "sh",
            "-c",
            "hostname $0; exec mpirun \"$@\"",
            &name,
        ]);
        command.args(["--allow-run-as-root", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]);
        command.args(["--mca", "btl", "tcp,self", "--mca", "plm_rsh_agent"]).arg(&self.agent);
        for key in ["btl_tcp_if_include", "oob_tcp_if_include"] {
            command.args(["--mca", key, &format!("{NETWORK}.0/24")]);
        }
        command.args(["--host", &format!("{NETWORK}.1:1,{NETWORK}.2:1"), "-n", "2"]).arg(segue()).args(args);
        command
    }

    /// Takes the cable of the second host out.
    fn cut(&self) {
        assert!(ip(&format!("link set {} down", self.port(1))));
    }

    /// Ranks that run on both hosts.
    fn ranks(&self) -> Vec<u32> {
        let listed =
            |host| Command::new("ip").args(["netns", "pids", &self.name(host)]).output().expect("ip starts");
        let pids = (0..2).map(listed).flat_map(|output| {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
        });
        let is_rank = |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == segue());
        pids.filter(is_rank).collect()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in 0..2 {
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
    let Some(hosts) = Hosts::new(&place) else { return };
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
    hosts.cut();
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
