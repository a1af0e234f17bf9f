//! The command that starts the ranks of an attempt.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use super::hosts::Host;

/// The program that starts ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Starter {
    /// None: one rank, on this host.
    Alone,
    /// Open MPI's `mpirun`.
    Mpirun,
    /// Slurm's `srun`, inside a job.
    Srun,
}

/// What an attempt starts.
#[derive(Debug, Clone)]
pub struct Start {
    /// By which program.
    pub starter: Starter,
    /// Where, and how many ranks on each; none for this host alone.
    pub hosts: Vec<Host>,
    /// How many ranks.
    pub ranks: usize,
    /// The program of a rank.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Variables that every rank gets, whatever host it is on.
    pub variables: Vec<(&'static str, String)>,
    /// What else the starter is told.
    pub options: Vec<String>,
    /// There are more ranks than cores on this host, and so they must not spin while they wait.
    pub crowded: bool,
}

impl Start {
    /// The command. Ranks are bound to nothing: their threads share the cores of a host.
    pub fn command(&self) -> Command {
        let mut command = match self.starter {
            Starter::Alone => Command::new(&self.program),
            Starter::Mpirun => self.mpirun(),
            Starter::Srun => self.srun(),
        };
        command.args(&self.arguments).envs(self.variables.iter().map(|(name, value)| (*name, value)));
        command
    }

    /// The words of the command.
    pub fn words(&self) -> Vec<String> {
        let command = self.command();
        let words = [command.get_program()].into_iter().chain(command.get_args());
        words.map(|word| word.to_string_lossy().into_owned()).collect()
    }

    fn mpirun(&self) -> Command {
        let mut command = Command::new("mpirun");
        command.args(["-n", &self.ranks.to_string(), "--bind-to", "none", "--map-by", "slot"]);
        if self.hosts.is_empty() {
            // Open MPI counts cores, and not their threads; how many ranks this host takes was said.
            command.arg("--oversubscribe");
        } else {
            let hosts: Vec<String> =
                self.hosts.iter().map(|host| format!("{}:{}", host.name, host.slots)).collect();
            command.args(["--host", &hosts.join(",")]);
        }
        if self.crowded {
            command.args(["--mca", "mpi_yield_when_idle", "1"]);
        }
        if rustix::process::geteuid().is_root() {
            command.arg("--allow-run-as-root");
        }
        // Daemons on other hosts do not inherit what is set here.
        for (name, _) in &self.variables {
            command.args(["-x", name]);
        }
        command.args(&self.options).arg(&self.program);
        command
    }

    fn srun(&self) -> Command {
        let mut command = Command::new("srun");
        command.args([
            "--mpi=pmix",
            "--kill-on-bad-exit=1",
            "--cpu-bind=none",
            // Where a job was submitted without its environment, steps would have none, and not find the supervisor.
            "--export=ALL",
            &format!("--ntasks={}", self.ranks),
        ]);
        if !self.hosts.is_empty() {
            let names: Vec<&str> = self.hosts.iter().map(|host| host.name.as_str()).collect();
            command.arg(format!("--nodelist={}", names.join(",")));
            command.arg(format!("--nodes={}", names.len()));
        }
        if self.crowded {
            command.arg("--overcommit");
        }
        command.args(&self.options).arg(&self.program);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(starter: Starter, hosts: &[(&str, usize)]) -> Start {
        Start {
            starter,
            hosts: hosts.iter().map(|(name, slots)| Host { name: (*name).into(), slots: *slots }).collect(),
            ranks: 4,
            program: "/bin/segue".into(),
            arguments: vec!["pretrain".into(), "a=b c".into()],
            variables: vec![("SEGUE_SUPERVISOR", "10.0.0.1:7".into())],
            options: vec!["--tag".into()],
            crowded: false,
        }
    }

    fn words(start: &Start) -> String {
        start.words().join(" ").replace(" --allow-run-as-root", "")
    }

    #[test]
    fn each_starter_is_told_ranks_hosts_grace_and_variables() {
        assert_eq!(words(&start(Starter::Alone, &[])), "/bin/segue pretrain a=b c");
        assert_eq!(
            words(&start(Starter::Mpirun, &[("a", 3), ("b", 1)])),
            "mpirun -n 4 --bind-to none --map-by slot --host a:3,b:1 -x SEGUE_SUPERVISOR --tag /bin/segue \
             pretrain a=b c"
        );
        let crowded = Start { crowded: true, ..start(Starter::Mpirun, &[]) };
        assert_eq!(
            words(&crowded),
            "mpirun -n 4 --bind-to none --map-by slot --oversubscribe --mca mpi_yield_when_idle 1 -x \
             SEGUE_SUPERVISOR --tag /bin/segue pretrain a=b c"
        );
        assert_eq!(
            words(&start(Starter::Srun, &[("a", 3), ("b", 1)])),
            "srun --mpi=pmix --kill-on-bad-exit=1 --cpu-bind=none --export=ALL --ntasks=4 --nodelist=a,b --nodes=2 --tag /bin/segue \
             pretrain a=b c"
        );
        let set = start(Starter::Alone, &[]).command();
        let found: Vec<_> =
            set.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
        assert_eq!(found, [("SEGUE_SUPERVISOR".into(), Some("10.0.0.1:7".into()))]);
    }
}
