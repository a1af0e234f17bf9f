//! How ranks write one checkpoint: each the files of its own lanes, rank 0 all else, the manifest, and the name.
//!
//! Nothing but names, lengths and hashes goes from rank to rank, and to rank 0 the parts of tables that ranks have divided.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use segue_collectives::busy::{self, Rhythm, with_signs};
use segue_collectives::{CollectiveError, Communicator};
use segue_faults as faults;
use segue_kernels::TrainError;
use serde::{Deserialize, Serialize};
use tracing::trace_span;

use super::scattered;
use crate::checkpoint::{Contents, Draft, FileRecord, FileRecords, Stay, write_tensors};

/// A checkpoint that is to appear.
pub(super) struct Publication {
    /// Folder of the checkpoints.
    pub(super) folder: PathBuf,
    /// Its step.
    pub(super) step: u64,
    /// Which others stay.
    pub(super) stay: Stay,
}

/// What a rank tells rank 0 of its files: each as soon as it is written, so that rank 0 never waits for long, and an end.
#[derive(Serialize, Deserialize)]
enum Written {
    File(String, FileRecord),
    All,
    /// A file is not through yet, and the rank gets on with it.
    GetsOn,
    Failed {
        path: String,
        /// Number of the system's error, where there is one.
        code: Option<i32>,
        what: String,
    },
}

impl Publication {
    /// Writes `contents`, which is what this rank has of the checkpoint. Where any rank fails, rank 0 does, and nothing of
    /// the checkpoint is left. Rank 0 gets the folder. A collective call.
    pub(super) fn write(
        &self,
        contents: &Contents,
        comm: &dyn Communicator,
    ) -> Result<Option<PathBuf>, TrainError> {
        faults::thread_at_step(self.step);
        let _span = trace_span!(target: "checkpoint", "write", step = self.step).entered();
        match comm.rank() {
            0 => self.publish(contents, comm).map(Some),
            _ => self.contribute(contents, comm).map(|()| None),
        }
    }

    /// Rank 0's part.
    fn publish(&self, contents: &Contents, comm: &dyn Communicator) -> Result<PathBuf, TrainError> {
        faults::point("checkpoint.begin");
        let draft = Draft::begin(&self.folder, self.step);
        // The name alone: hosts may see the run in different places.
        let name = draft.as_ref().ok().and_then(|draft| draft.path().file_name());
        let name = name.map_or(&[][..], |name| name.as_bytes());
        let sent = (1..comm.world_size()).try_for_each(|peer| send(comm, peer, name));
        let draft = draft?;
        let mut known = FileRecords::new();
        let gets_on = || busy::gets_on(comm);
        let mut rhythm = Rhythm::new();
        let written = sent.and_then(|()| {
            // First what the others wait for.
            let own = scattered::write(draft.path(), contents, comm)?;
            let own =
                with_signs(faults::visits, gets_on, || own.and_then(|()| contents.write(draft.path())))?;
            // Every rank is heard to its end, whatever has failed: when the folder goes, nobody writes to it any more.
            (1..comm.world_size())
                .try_fold(own, |all, peer| Ok(all.and(hear(comm, peer, &mut known, &mut rhythm)?)))
        });
        let written = match written {
            Ok(written) => written,
            Err(lost) => {
                // A rank is gone, and the others may still write: a folder that went now would look to them like another file system.
                draft.leave();
                return Err(lost.into());
            }
        };
        let publish = || {
            written?;
            faults::point("checkpoint.publish");
            draft.publish(known, self.stay)
        };
        let published = with_signs(faults::visits, gets_on, publish)?;
        busy::end(comm)?;
        published
    }

    /// The part of any other rank.
    fn contribute(&self, contents: &Contents, comm: &dyn Communicator) -> Result<(), TrainError> {
        let name = receive(comm, 0)?;
        if name.is_empty() {
            // Rank 0 has no folder, and says why.
            return Ok(());
        }
        let folder = self.folder.join(std::ffi::OsStr::from_bytes(&name));
        faults::point("checkpoint.contribute");
        scattered::serve(contents, comm)?;
        let written = self.fill(contents, &folder, comm);
        let end = match &written {
            Ok(()) => Written::All,
            Err(error) => Written::failed(error, &folder),
        };
        tell(comm, &end)?;
        // Until the checkpoint is there: while rank 0 gets on with it, nobody's patience comes to an end.
        busy::await_end(comm)?;
        written
    }

    /// Writes the files of a rank's lanes into rank 0's folder, and tells rank 0 of each.
    fn fill(&self, contents: &Contents, folder: &Path, comm: &dyn Communicator) -> Result<(), TrainError> {
        for (name, tensors) in &contents.tables {
            let path = folder.join(name);
            let write = || {
                write_tensors(&path, tensors)
                    .map_err(|error| self.unless_unseen(error, folder, comm.rank()))?;
                FileRecord::of(&path)
            };
            let record = with_signs(faults::visits, || tell(comm, &Written::GetsOn), write)??;
            tell(comm, &Written::File(name.clone(), record))?;
        }
        Ok(())
    }

    /// The error of writing into `folder`; another one where that is not there for this rank, which no other checkpoint
    /// will change.
    fn unless_unseen(&self, error: TrainError, folder: &Path, rank: usize) -> TrainError {
        let seen = fs::metadata(folder);
        if seen.is_ok() || seen.is_err_and(|error| error.kind() != io::ErrorKind::NotFound) {
            return error;
        }
        TrainError::Layout(format!(
            "rank {rank} does not see the checkpoint that rank 0 has begun in {}\nhint: put run.dir on a file system that all \
             hosts share",
            self.folder.display()
        ))
    }
}

impl Written {
    fn failed(error: &TrainError, folder: &Path) -> Self {
        let (path, code, what) = match error {
            TrainError::Write { path, source } | TrainError::Read { path, source } => {
                (path.as_path(), source.raw_os_error(), source.to_string())
            }
            other => (folder, None, other.to_string()),
        };
        Self::Failed { path: path.display().to_string(), code, what }
    }
}

fn tell(comm: &dyn Communicator, written: &Written) -> Result<(), CollectiveError> {
    send(comm, 0, &serde_json::to_vec(written).unwrap_or_default())
}

/// Hears to the end what rank `rank` has written; an error of its own is given only then. The others wait meanwhile, and hear that it gets on.
fn hear(
    comm: &dyn Communicator,
    rank: usize,
    known: &mut FileRecords,
    rhythm: &mut Rhythm,
) -> Result<Result<(), TrainError>, CollectiveError> {
    loop {
        let word = receive(comm, rank)?;
        if rhythm.is_due() {
            busy::gets_on(comm)?;
        }
        match serde_json::from_slice(&word) {
            Ok(Written::GetsOn) => {}
            Ok(Written::File(name, record)) => _ = known.insert(name, record),
            Ok(Written::All) => return Ok(Ok(())),
            Ok(Written::Failed { path, code, what }) => {
                let kind =
                    code.map_or(io::ErrorKind::Other, |code| io::Error::from_raw_os_error(code).kind());
                let source = io::Error::new(kind, format!("{what}, on rank {rank}"));
                return Ok(Err(TrainError::Write { path: path.into(), source }));
            }
            Err(e) => {
                return Ok(Err(TrainError::Layout(format!("rank {rank} sends what cannot be read: {e}"))));
            }
        }
    }
}

/// Sends a message whose length the receiver does not know.
fn send(comm: &dyn Communicator, peer: usize, message: &[u8]) -> Result<(), CollectiveError> {
    comm.send(peer, &(message.len() as u64).to_le_bytes())?;
    comm.send(peer, message)
}

fn receive(comm: &dyn Communicator, peer: usize) -> Result<Vec<u8>, CollectiveError> {
    let mut length = [0; 8];
    comm.recv(peer, &mut length)?;
    let mut message = vec![0; u64::from_le_bytes(length) as usize];
    comm.recv(peer, &mut message)?;
    Ok(message)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use segue_collectives::local::Local;
    use segue_collectives::simulated;
    use segue_configs::CheckpointConfig;
    use tch::{Device, Kind, Tensor};

    use super::*;
    use crate::checkpoint::{Manifest, OPTIMIZER, Scattered, ScatteredTensor, carry_file, find};

    const LANES: usize = 4;

    fn publication(dir: &Path, step: u64) -> Publication {
        Publication { folder: dir.into(), step, stay: Stay::of(&CheckpointConfig::default(), None) }
    }

    /// What a rank has of a checkpoint: a file for each of its lanes, and on rank 0 one document.
    fn contents(comm: &dyn Communicator) -> Contents {
        let own = LANES / comm.world_size();
        let lanes = comm.rank() * own..(comm.rank() + 1) * own;
        let table =
            |lane: usize| (carry_file(lane), vec![("lane".into(), Tensor::from_slice(&[lane as f32; 100]))]);
        let document = ("config.json".to_string(), serde_json::json!({ "lanes": LANES }));
        Contents {
            tables: lanes.map(table).collect(),
            documents: (comm.rank() == 0).then_some(document).into_iter().collect(),
            ..Contents::default()
        }
    }

    /// The same with a table of two tensors besides, of which each rank has an equal part, or rank 0 all.
    fn with_scattered(comm: &dyn Communicator, divided: bool) -> Contents {
        let (rank, world_size) = (comm.rank(), comm.world_size());
        let mut contents = contents(comm);
        let values = |n: usize| Tensor::arange_start(n as i64, n as i64 + 8, (Kind::Float, Device::Cpu));
        let names = ["b", "a"];
        if !divided {
            if rank == 0 {
                let whole = names.iter().enumerate();
                let whole = whole.map(|(n, name)| (name.to_string(), values(n).view([2, 4]))).collect();
                contents.tables.push((OPTIMIZER.into(), whole));
            }
            return contents;
        }
        let each = 8 / world_size;
        let tensor = |(n, name): (usize, &&str)| ScatteredTensor {
            name: name.to_string(),
            shape: vec![2, 4],
            parts: (0..world_size).map(|rank| (rank, each)).collect(),
            own: Some(values(n).narrow(0, (rank * each) as i64, each as i64)),
        };
        let tensors = names.iter().enumerate().map(tensor).collect();
        contents.scattered.push(Scattered { file: OPTIMIZER.into(), tensors });
        contents
    }

    #[test]
    fn a_table_in_parts_on_all_ranks_becomes_the_file_that_it_would_be_on_one() {
        let published = |ranks: usize, divided: bool| {
            let dir = tempfile::tempdir().unwrap();
            simulated::run(ranks, |comm| {
                publication(dir.path(), 3).write(&with_scattered(comm, divided), comm).unwrap()
            });
            files(&dir.path().join("step-00000003"))
        };
        let expected = published(1, false);
        assert!(expected.contains_key(OPTIMIZER));
        for ranks in [1, 2, 4] {
            assert!(published(ranks, true) == expected, "{ranks} ranks");
        }
    }

    /// Whoever fails, all others go on to the end of this checkpoint, and to the next one.
    #[test]
    fn a_table_in_parts_that_cannot_be_written_fails_the_checkpoint_alone() {
        for failing in 0..3 {
            let dir = tempfile::tempdir().unwrap();
            simulated::run(2, |comm| {
                let mut broken = with_scattered(comm, true);
                match failing {
                    0 if comm.rank() == 0 => broken.scattered[0].file = "no-folder/table".into(),
                    0 => {}
                    rank if rank - 1 == comm.rank() => broken.tables[1].0 = "no-folder/lane".into(),
                    _ => {}
                }
                let found = publication(dir.path(), 1).write(&broken, comm);
                assert!(comm.rank() != 0 || found.is_err_and(|error| error.is_of_storage()));
                publication(dir.path(), 2).write(&with_scattered(comm, true), comm).unwrap();
            });
            assert!(find(dir.path()).unwrap().unwrap().0.ends_with("step-00000002"));
        }
    }

    #[test]
    fn a_rank_that_is_lost_with_its_part_ends_the_checkpoint() {
        for call in 2..6 {
            let dir = tempfile::tempdir().unwrap();
            let mut faults = vec![simulated::Faults::default(); 2];
            faults[1].dies_at_call = Some(call);
            let found = simulated::run_with(faults, |comm| {
                publication(dir.path(), 1).write(&with_scattered(comm, true), comm).map(drop)
            });
            assert!(
                found.iter().all(|found| found.as_ref().is_err_and(|e| e.exit_code() == 69)),
                "{found:?}"
            );
            assert!(find(dir.path()).unwrap().is_none());
        }
    }

    fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        entries.map(|e| (e.file_name().into_string().unwrap(), fs::read(e.path()).unwrap())).collect()
    }

    #[test]
    fn a_checkpoint_has_the_same_files_and_bytes_at_any_number_of_ranks() {
        let alone = tempfile::tempdir().unwrap();
        let published = publication(alone.path(), 3).write(&contents(&Local), &Local).unwrap().unwrap();
        let expected = files(&published);
        assert_eq!(expected.len(), LANES + 2);
        for ranks in [1, 2, 4] {
            let dir = tempfile::tempdir().unwrap();
            let published = simulated::run(ranks, |comm| {
                publication(dir.path(), 3).write(&contents(comm), comm).unwrap()
            });
            let folder = dir.path().join("step-00000003");
            assert_eq!((&published[0], published.iter().flatten().count()), (&Some(folder.clone()), 1));
            Manifest::verify(&folder).unwrap();
            assert!(files(&folder) == expected, "{ranks} ranks");
        }
    }

    #[test]
    fn a_rank_that_cannot_write_fails_the_checkpoint_and_leaves_nothing_of_it() {
        for failing in 0..2 {
            let dir = tempfile::tempdir().unwrap();
            simulated::run(2, |comm| {
                let write = |step, contents: &Contents| publication(dir.path(), step).write(contents, comm);
                write(1, &contents(comm)).unwrap();
                let mut broken = contents(comm);
                if comm.rank() == failing {
                    broken.tables[1].0 = "no-folder/lane".into();
                }
                let found = write(2, &broken);
                assert_eq!(found.is_err(), comm.rank() == 0 || comm.rank() == failing);
                if let Err(error) = found {
                    assert!(error.is_of_storage() && error.to_string().contains("no-folder/lane"), "{error}");
                    let said = error.to_string().contains("on rank 1");
                    assert_eq!(said, comm.rank() == 0 && failing == 1, "{error}");
                }
                write(3, &contents(comm)).unwrap();
            });
            let mut names: Vec<String> = files_and_folders(dir.path());
            names.sort();
            assert_eq!(names, ["latest", "step-00000001", "step-00000003"]);
            assert!(find(dir.path()).unwrap().unwrap().0.ends_with("step-00000003"));
        }
    }

    fn files_and_folders(dir: &Path) -> Vec<String> {
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_rank_that_has_another_folder_of_the_same_name_ends_the_run() {
        let (shared, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let codes = simulated::run(2, |comm| {
            let dir = [&shared, &own][comm.rank()].path();
            let error = publication(dir, 1).write(&contents(comm), comm).unwrap_err();
            assert!(error.to_string().contains("rank 1 does not see"), "{error}");
            (error.is_of_storage(), error.exit_code())
        });
        assert_eq!(codes[1], (false, 78));
        assert_eq!(fs::read_dir(shared.path()).unwrap().count(), 0);
    }

    #[test]
    fn all_ranks_hear_that_there_is_no_folder() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("file");
        fs::write(&place, "").unwrap();
        let found =
            simulated::run(3, |comm| publication(&place, 1).write(&contents_of_three(comm), comm).is_err());
        assert_eq!(found, [true, false, false]);
    }

    fn contents_of_three(comm: &dyn Communicator) -> Contents {
        let tables = vec![(carry_file(comm.rank()), Vec::new())];
        Contents { tables, ..Contents::default() }
    }
}
