//! Lists of hosts as people and batch systems write them: an option, a host file, and the variables of Slurm and LSF. Lines are the two variables of Slurm.
#![no_main]

use segue_cluster::launch::hosts::{Host, MOST, MOST_HOSTS, from_file, from_option, of_batch_system};

fn check(hosts: &[Host]) {
    let slots: usize = hosts.iter().map(|host| host.slots).sum();
    assert!((1..=MOST).contains(&slots) && hosts.len() <= MOST_HOSTS);
    assert!(hosts.iter().all(|host| !host.name.is_empty()));
}

libfuzzer_sys::fuzz_target!(|text: &str| {
    for hosts in [from_option(text), from_file("hosts".as_ref(), text)].into_iter().flatten() {
        check(&hosts);
    }
    let (list, tasks) = text.split_once('\n').unwrap_or((text, ""));
    let slurm = [("SLURM_JOB_NODELIST", list), ("SLURM_TASKS_PER_NODE", tasks)];
    for variables in [&slurm[..], &[("PBS_NODEFILE", "nodes")], &[("LSB_MCPU_HOSTS", text)]] {
        let variables = variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        if let Ok(Some((_, hosts))) = of_batch_system(&variables, |_| Ok(text.to_string())) {
            check(&hosts);
        }
    }
});
