//! What of a job is checked before it waits in a queue, beyond the words of its command: its data and its run, where they are here, and its cards.

use std::path::Path;

use segue_configs::{CollectivesKind, DeviceKind, counted};
use segue_engine::check_same_run;
use segue_tasks::TaskConfig;
use serde_json::Value;

use crate::commands::check_set;
use crate::commands::finetune::{LEARNT_AND_SCORED, TaskRun};
use crate::commands::pretrain::lacks_corpus;
use crate::failure::{BAD_CONFIG, Failure, NO_INPUT};
use crate::output::Output;

/// Refuses a pre-training that has no data, whose data are here and cannot be trained on, or that is not the run in its folder. Data that are not here may
/// be on the cluster: they are named. `told`: the merged configuration.
pub fn check_pretraining(told: &Value, out: &Output) -> Result<(), Failure> {
    check_set(&[("data.corpus", lacks_corpus(told), "data.corpus=FOLDER")])?;
    let mut config = segue_families::MODELS.from_json(told, "the command")?;
    match (segue_family::of(&config.model).open)(&mut config).map_err(Failure::from) {
        Ok(_) => Ok(check_same_run(&config)?),
        Err(failure) if failure.code == NO_INPUT => {
            out.line(&format!("note: {}: on this host data and run are not checked", failure.message));
            Ok(())
        }
        Err(failure) => Err(failure),
    }
}

/// Refuses a fine-tuning whose tasks are here and cannot be trained on. Files that are not here may be on the cluster: the folder is named. `told`: the merged
/// configuration.
pub fn check_finetuning(told: &Value, out: &Output) -> Result<(), Failure> {
    let config = segue_families::MODELS.from_json(told, "the command")?;
    let data = config.own.get::<TaskConfig>().data.clone();
    if !Path::new(&data).exists() {
        out.line(&format!("note: {data} is not there: on this host the data are not checked"));
        return Ok(());
    }
    out.line(&format!("checking the files of the task in {data}"));
    TaskRun::open(config, None, LEARNT_AND_SCORED, &|_| ()).map(drop)
}

/// What a job has to compute on.
pub struct Cards {
    /// `train.device`, as the script has it.
    pub device: DeviceKind,
    /// `train.collectives`.
    pub collectives: CollectivesKind,
    /// GPUs of each host.
    pub gpus: usize,
    /// Ranks of each host.
    pub ranks: usize,
    /// Whether something else may ask for GPUs.
    pub asked_elsewhere: bool,
}

impl Cards {
    /// What is worth knowing before the job waits.
    ///
    /// # Errors
    ///
    /// The job would be refused at its start: NCCL lacks a card for a rank.
    pub fn check(&self) -> Result<Vec<String>, Failure> {
        let refuse = |message: String| Err(Failure::new(BAD_CONFIG, message));
        let (ranks, gpus) = (counted(self.ranks, "rank"), counted(self.gpus, "GPU"));
        let by_nccl = self.collectives == CollectivesKind::Nccl && self.device != DeviceKind::Cpu;
        if self.gpus == 0 {
            // A queue, or a site's own template, may give GPUs by itself.
            let needs = self.device == DeviceKind::Cuda || by_nccl;
            let note = format!(
                "warning: the job asks for no GPUs, and its command needs some: --gpus-per-node {} is one for each rank of a host",
                self.ranks
            );
            return Ok((needs && !self.asked_elsewhere).then_some(note).into_iter().collect());
        }
        if by_nccl && self.ranks > self.gpus {
            return refuse(format!(
                "train.collectives = nccl needs a GPU for each rank, and a host has {ranks} and {gpus}\n\
                 hint: set --ranks-per-node {} and --gpus-per-node alike",
                self.gpus
            ));
        }
        let note = match (self.device, self.ranks.cmp(&self.gpus)) {
            (DeviceKind::Cpu, _) => {
                Some(format!("train.device is cpu: the {gpus} of each host would be idle"))
            }
            (_, std::cmp::Ordering::Less) => Some(format!(
                "{ranks} of each host would leave GPUs idle: --ranks-per-node {} takes all",
                self.gpus
            )),
            (_, std::cmp::Ordering::Greater) => Some(format!("{ranks} of each host would share {gpus}")),
            _ => None,
        };
        Ok(note.into_iter().map(|note| format!("warning: {note}")).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        device: DeviceKind,
        collectives: CollectivesKind,
        ranks: usize,
        gpus: usize,
    ) -> Result<Vec<String>, Failure> {
        Cards { device, collectives, gpus, ranks, asked_elsewhere: false }.check()
    }

    #[test]
    fn a_job_that_lacks_cards_is_refused_and_idle_ones_are_told_of() {
        use CollectivesKind::{Auto, Nccl};
        use DeviceKind::{Cpu, Cuda};
        let refused = check(Cuda, Nccl, 4, 2).unwrap_err();
        assert_eq!(refused.code, BAD_CONFIG);
        assert!(refused.hint.as_ref().unwrap().contains("set --ranks-per-node 2"), "{refused:?}");
        for (device, collectives, ranks, gpus, note) in [
            (Cuda, Auto, 4, 0, Some("--gpus-per-node 4 is one for each rank")),
            (DeviceKind::Auto, Nccl, 2, 0, Some("--gpus-per-node 2 is one for each rank")),
            (DeviceKind::Auto, Auto, 2, 0, None),
            (Cpu, Nccl, 2, 0, None),
            (Cuda, Nccl, 4, 4, None),
            (Cuda, Auto, 1, 4, Some("--ranks-per-node 4 takes all")),
            (Cuda, Auto, 4, 2, Some("4 ranks of each host would share 2 GPUs")),
            (Cpu, Auto, 1, 1, Some("the 1 GPU of each host would be idle")),
        ] {
            let notes = check(device, collectives, ranks, gpus).unwrap();
            assert_eq!(notes.len(), usize::from(note.is_some()), "{notes:?}");
            assert!(notes.iter().all(|line| line.contains(note.unwrap())), "{notes:?}");
        }
        let by_template = Cards { device: Cuda, collectives: Auto, gpus: 0, ranks: 4, asked_elsewhere: true };
        assert!(by_template.check().unwrap().is_empty());
    }
}
