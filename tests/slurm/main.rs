//! A real Slurm on this machine, with two nodes: what a batch system does to a job.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use segue_tests::{Workplace, alone, finish, may_mount, segue, stderr, succeed, wait_for};
use tempfile::TempDir;

/// Longest wait for a daemon or a job.
const PATIENCE: Duration = Duration::from_secs(60);

/// Its daemons, in the foreground as our children; they end when this is dropped.
struct Slurm {
    dir: TempDir,
    daemons: Vec<Child>,
}

impl Slurm {
    /// `None`, said in a line, where Slurm is not installed or may not be started.
    fn start() -> Option<Self> {
        let installed = ["munged", "slurmctld", "slurmd", "srun"].iter().all(|program| is_installed(program));
        if !installed || !may_mount() {
            let why = "root and the packages slurm-wlm, slurm-wlm-basic-plugins and munge are needed";
            segue_skip::skip(segue_skip::Need::Slurm, why);
            return None;
        }
        let mut slurm = Self { dir: tempfile::tempdir().expect("a temporary folder"), daemons: Vec::new() };
        slurm.write_files();
        slurm.run(
            "munged",
            &[
                "--foreground",
                "--force",
                &slurm.option("key-file", "key"),
                &slurm.option("socket", "socket"),
                &slurm.option("log-file", "munged.log"),
                &slurm.option("pid-file", "munged.pid"),
                &slurm.option("seed-file", "seed"),
            ],
        );
        wait_for("munge", PATIENCE, || slurm.path("socket").exists());
        slurm.run("slurmctld", &["-D"]);
        for node in ["n1", "n2"] {
            slurm.run("slurmd", &["-D", "-N", node]);
        }
        wait_for("two idle nodes", PATIENCE, || {
            let listed =
                slurm.command("sinfo", &["--noheader", "--format=%D %t"]).output().expect("sinfo starts");
            String::from_utf8_lossy(&listed.stdout).trim() == "2 idle"
        });
        Some(slurm)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn option(&self, name: &str, file: &str) -> String {
        format!("--{name}={}", self.path(file).display())
    }

    fn write_files(&self) {
        fs::set_permissions(self.dir.path(), fs::Permissions::from_mode(0o755)).expect("a folder of ours");
        fs::write(self.path("key"), [7; 128]).expect("a file");
        fs::set_permissions(self.path("key"), fs::Permissions::from_mode(0o600)).expect("a file of ours");
        let (dir, host) = (self.dir.path().display(), host_name());
        let mut text = format!(
            "ClusterName=segue\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={}\nSlurmUser=root\nSlurmdUser=root\n\
             AuthType=auth/munge\nAuthInfo=socket={dir}/socket\nStateSaveLocation={dir}/state\nSlurmdSpoolDir={dir}/%n\n\
             SlurmctldPidFile={dir}/slurmctld.pid\nSlurmdPidFile={dir}/%n.pid\nSlurmctldLogFile={dir}/slurmctld.log\n\
             SlurmdLogFile={dir}/%n.log\nProctrackType=proctrack/pgid\nTaskPlugin=task/none\nMpiDefault=none\n\
             SelectType=select/cons_tres\nReturnToService=2\nSlurmdTimeout=10\nKillWait=5\nTmpFS={dir}/tmp-%n\n",
            free_port()
        );
        for node in ["n1", "n2"] {
            fs::create_dir_all(self.path(node)).expect("a folder");
            fs::create_dir_all(self.path(&format!("tmp-{node}"))).expect("a folder");
            text.push_str(&format!(
                "NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={} CPUs=2\n",
                free_port()
            ));
        }
        text.push_str("PartitionName=all Nodes=n1,n2 Default=YES State=UP OverSubscribe=FORCE:4\n");
        fs::create_dir_all(self.path("state")).expect("a folder");
        fs::write(self.path("slurm.conf"), text).expect("a file");
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).env("SLURM_CONF", self.path("slurm.conf")).stdin(Stdio::null());
        command
    }

    fn run(&mut self, program: &str, args: &[&str]) {
        let log =
            fs::File::create(self.path(&format!("{program}-{}.out", self.daemons.len()))).expect("a file");
        let mut command = self.command(program, args);
        command.stdout(Stdio::null()).stderr(log);
        self.daemons.push(command.spawn().expect("the daemon starts"));
    }

    /// Writes the script of a job of two ranks on a node with `segue batch`, and submits it. Gives its number.
    fn submit(&self, place: &Workplace, options: &[&str], args: &[String]) -> String {
        let (script, log) = (place.text("job.sh"), place.text("job.out"));
        let common = [
            "batch",
            "slurm",
            "--json",
            "--ranks-per-node",
            "2",
            "--log",
            &log,
            "--output",
            &script,
            "--submit",
        ];
        let mut command = self.command(&segue().display().to_string(), &common);
        command.args(options).args(args.iter().filter(|word| *word != "--json"));
        let result = succeed(command);
        result["jobs"][0].as_str().expect("the number of a job").into()
    }

    /// What `squeue` says of a job in this format; nothing once it is over.
    fn queue(&self, job: &str, format: &str) -> String {
        let (job, format) = (format!("--jobs={job}"), format!("--format={format}"));
        let listed = self.command("squeue", &["--noheader", &job, &format]).output().expect("squeue starts");
        String::from_utf8_lossy(&listed.stdout).trim().into()
    }

    /// Waits until a job is over that was queued again. Slurm lets those wait for two minutes, which nobody has to.
    fn wait_for_end(&self, job: &str, limit: Duration) {
        wait_for("the end of the job", limit, || {
            if self.queue(job, "%t") == "PD" {
                let now = format!("JobId={job}");
                let _ = self
                    .command("scontrol", &["update", &now, "StartTime=now"])
                    .stderr(Stdio::null())
                    .status();
            }
            let shown = self.command("scontrol", &["show", "job", job]).output().expect("scontrol starts");
            let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
            shown.contains("JobState=COMPLETED") || shown.contains("JobState=FAILED")
        });
    }

    /// Two ranks of a job step.
    fn srun(&self, options: &[&str], args: &[String]) -> Command {
        let mut command = self.command("srun", &["--mpi=pmix", "--ntasks=2", "--nodes=1"]);
        command.args(options).arg(segue()).args(args);
        command
    }
}

impl Slurm {
    /// Ends a node as a power cut does: its daemon, and all that runs of jobs there.
    fn lose(&mut self, node: &str) {
        let number: usize = node.trim_start_matches('n').parse().expect("a node's number");
        // munged and slurmctld come first.
        let daemon = &mut self.daemons[1 + number];
        daemon.kill().expect("the daemon is ours");
        daemon.wait().expect("the daemon has ended");
        let name = format!("SLURMD_NODENAME={node}\0");
        let conf = format!("SLURM_CONF={}\0", self.path("slurm.conf").display());
        for entry in fs::read_dir("/proc").expect("processes").flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|pid| pid.parse::<i32>().ok()) else {
                continue;
            };
            let of = |file: &str| fs::read(entry.path().join(file)).unwrap_or_default();
            let environment = String::from_utf8_lossy(&of("environ")).into_owned();
            let is_step = of("cmdline").starts_with(b"slurmstepd: [") && environment.contains(&conf);
            if is_step || (environment.contains(&name) && environment.contains(&conf)) {
                // SAFETY: plain system call, to a process that a node of this test has started.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        }
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").expect("a host has a name").trim().to_string()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port").port()
}

fn rows_of(run: &Path) -> usize {
    fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default().lines().count()
}

/// Ranks that `srun` starts are those of one job, and one that dies ends it: by the flag, and through PMIx without it.
#[test]
fn srun_starts_a_job_and_ends_it_where_a_rank_dies() {
    let Some(slurm) = Slurm::start() else { return };
    let place = Workplace::new();
    let steps = ["train.steps=6", "checkpoint.every=2", "log.every=1"];
    succeed(alone(&place.pretrain("one", &steps)));
    for (run, options) in [("flag", &["--kill-on-bad-exit=1"][..]), ("no-flag", &[])] {
        let args = place.pretrain(run, &steps);
        let mut killed = slurm.srun(options, &args);
        killed.env("SEGUE_FAULTS", "kill@step.backward:rank=1:step=5");
        let ended = finish(killed);
        assert_eq!(ended.status.code(), Some(137), "{run}: {}", stderr(&ended));
        assert!(rows_of(&place.path(run)) > 0, "{run}: no step was made");
        let again = finish(slurm.srun(options, &args));
        assert!(again.status.success(), "{run}: {}", stderr(&again));
        place.assert_same("one", run);
    }
}

/// The signal that Slurm sends before a time limit leaves a checkpoint, and 75.
#[test]
fn a_signal_through_slurm_stops_a_job_with_a_checkpoint() {
    let Some(slurm) = Slurm::start() else { return };
    let place = Workplace::new();
    let endless =
        place.pretrain("run", &["train.steps=1000000", "log.every=1", "checkpoint.every=0", "eval.every=0"]);
    let mut job = slurm
        .srun(&["--job-name=endless"], &endless)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("srun starts");
    wait_for("ten steps", PATIENCE, || rows_of(&place.path("run")) > 10);
    let sent =
        slurm.command("scancel", &["--signal=USR1", "--name=endless"]).status().expect("scancel starts");
    assert!(sent.success());
    assert_eq!(job.wait().expect("srun ends").code(), Some(75));
    assert!(place.path("run/checkpoints/latest/config.json").is_file());
}

/// The warning before the time limit leads to a checkpoint, and the job is queued again and goes on to its end.
#[test]
fn a_batch_job_that_is_warned_is_queued_again_and_goes_on() {
    let Some(slurm) = Slurm::start() else { return };
    let place = Workplace::new();
    let steps = ["train.steps=900", "checkpoint.every=300", "log.every=1", "eval.every=0"];
    succeed(alone(&place.pretrain("one", &steps)));
    let job = slurm.submit(&place, &[], &place.pretrain("run", &steps));
    wait_for("ten steps", PATIENCE, || rows_of(&place.path("run")) > 10);
    let sent =
        slurm.command("scancel", &["--batch", "--signal=USR1", &job]).status().expect("scancel starts");
    assert!(sent.success());
    let first = place.path("run/launch/attempt-0001.json");
    wait_for("the first attempt's report", PATIENCE, || first.is_file());
    slurm.wait_for_end(&job, 2 * PATIENCE);
    let said = fs::read_to_string(place.path("job.out")).expect("the job's output");
    for words in [
        "started for the 1. time",
        "stopped after step",
        "started for the 2. time",
        "step 900 of 900 is done",
    ] {
        assert!(said.contains(words), "`{words}` is not in what the job said:\n{said}");
    }
    place.assert_same("one", "run");
}

/// A node that is lost takes its part of the job along; Slurm queues it again, and it goes on on the other one.
#[test]
fn a_batch_job_goes_on_on_another_node_when_its_own_is_lost() {
    let Some(mut slurm) = Slurm::start() else { return };
    let place = Workplace::new();
    let steps = ["train.steps=900", "checkpoint.every=100", "log.every=1", "eval.every=0"];
    succeed(alone(&place.pretrain("one", &steps)));
    let job = slurm.submit(&place, &[], &place.pretrain("run", &steps));
    wait_for("a checkpoint", PATIENCE, || place.path("run/checkpoints/latest").exists());
    let node = slurm.queue(&job, "%N");
    slurm.lose(&node);
    slurm.wait_for_end(&job, 3 * PATIENCE);
    let said = fs::read_to_string(place.path("job.out")).expect("the job's output");
    let other = if node == "n1" { "n2" } else { "n1" };
    assert!(said.contains(&format!("on {other}, started for the 2. time")), "{said}");
    place.assert_same("one", "run");
}
