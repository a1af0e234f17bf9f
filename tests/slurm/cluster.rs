//! The daemons of a Slurm of two nodes on this machine, and what is asked of them.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use segue_tests::{Workplace, may_mount, segue, succeed, wait_for};
use tempfile::TempDir;

/// Longest wait for a daemon or a job.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Its daemons, in the foreground as our children; they end when this is dropped.
pub struct Slurm {
    dir: TempDir,
    daemons: Vec<Child>,
}

impl Slurm {
    /// `None`, said in a line, where Slurm is not installed or may not be started.
    pub fn start() -> Option<Self> {
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
             SelectType=select/cons_tres\nReturnToService=2\nSlurmdTimeout=10\nKillWait=5\nTmpFS={dir}/tmp-%n\n\
             FirstJobId={}\n",
            free_port(),
            // Open MPI names shared memory after the number of a job: two clusters on a host must not use the same.
            1000 + std::process::id() % 60_000 * 1000
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

    pub fn command(&self, program: &str, args: &[&str]) -> Command {
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
    pub fn submit(&self, place: &Workplace, options: &[&str], args: &[String]) -> String {
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
            "--force",
            "--submit",
        ];
        let mut command = self.command(&segue().display().to_string(), &common);
        command.args(options).args(args.iter().filter(|word| *word != "--json"));
        let result = succeed(command);
        result["jobs"][0].as_str().expect("the number of a job").into()
    }

    /// What `squeue` says of a job in this format; nothing once it is over.
    pub fn queue(&self, job: &str, format: &str) -> String {
        let (job, format) = (format!("--jobs={job}"), format!("--format={format}"));
        let listed = self.command("squeue", &["--noheader", &job, &format]).output().expect("squeue starts");
        String::from_utf8_lossy(&listed.stdout).trim().into()
    }

    /// States of a job, or of the jobs of an array.
    pub fn states(&self, job: &str) -> Vec<String> {
        let shown = self.command("scontrol", &["show", "job", job]).output().expect("scontrol starts");
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        let words = shown.split_whitespace();
        words.filter_map(|word| word.strip_prefix("JobState=")).map(String::from).collect()
    }

    /// Waits until a job, or all of an array, is over. Slurm lets those that are queued again wait for two minutes, which
    /// nobody has to. Gives their states.
    pub fn wait_for_end(&self, job: &str, limit: Duration) -> Vec<String> {
        let mut states = Vec::new();
        wait_for("the end of the job", limit, || {
            for waiting in self.queue(job, "%t %A").lines().filter_map(|line| line.strip_prefix("PD ")) {
                // Slurm refuses one that starts in the second in which it was queued again: "Job credential revoked".
                std::thread::sleep(Duration::from_secs(2));
                let now = format!("JobId={waiting}");
                let mut update = self.command("scontrol", &["update", &now, "StartTime=now"]);
                let _ = update.stderr(Stdio::null()).status();
            }
            states = self.states(job);
            let over = ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"];
            !states.is_empty() && states.iter().all(|state| over.contains(&state.as_str()))
        });
        states
    }

    /// `scancel` with these options and a job.
    pub fn cancel(&self, args: &[&str]) {
        let status = self.command("scancel", args).status().expect("scancel starts");
        assert!(status.success(), "scancel {args:?}");
    }

    /// Two ranks of a job step.
    pub fn srun(&self, options: &[&str], args: &[String]) -> Command {
        let mut command = self.command("srun", &["--mpi=pmix", "--ntasks=2", "--nodes=1"]);
        command.args(options).arg(segue()).args(args);
        command
    }
}

impl Slurm {
    /// Ends a node as a power cut does: its daemon, and all that runs of jobs there.
    pub fn lose(&mut self, node: &str) {
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
