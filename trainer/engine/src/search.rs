//! How ranks look for a checkpoint: rank 0 leads, and each reads its share of the files.

use std::path::Path;

use segue_collectives::{CollectiveError, Communicator};
use segue_kernels::TrainError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::layout::Layout;
use crate::checkpoint::{Check, Found, Manifest, check_alone, first_lane, refusal};

/// What rank 0 has all ranks do next. Checkpoints are told by name: hosts may see the run in different places.
#[derive(Serialize, Deserialize)]
enum Order {
    Check(String),
    Take(String),
    Nothing,
    /// `for_now`: something cannot be read or written.
    Failed {
        for_now: bool,
    },
}

/// What a rank says of its share of a checkpoint.
#[derive(Serialize, Deserialize)]
enum Verdict {
    Whole,
    Refused(String),
    /// It cannot be read for now.
    Unreadable(String),
}

/// The checkpoint in `folder` that `find` takes on rank 0; all ranks get the same. What `find` is given checks a checkpoint on
/// all ranks: every file is read by one of them, what lanes carry by the rank that goes on with it. A collective call.
pub(super) fn newest_checkpoint(
    folder: &Path,
    comm: &dyn Communicator,
    layout: &Layout,
    find: impl FnOnce(&Path, Check) -> Result<Found, TrainError>,
) -> Result<Found, TrainError> {
    match (comm.world_size(), comm.rank()) {
        (1, _) => find(folder, &mut check_alone),
        (_, 0) => lead(folder, comm, layout, find),
        _ => follow(folder, comm, layout),
    }
}

fn lead(
    folder: &Path,
    comm: &dyn Communicator,
    layout: &Layout,
    find: impl FnOnce(&Path, Check) -> Result<Found, TrainError>,
) -> Result<Found, TrainError> {
    let found = find(folder, &mut |path| {
        all_say(comm, Some(&Order::Check(name_of(path))))?;
        agree(path, &verdicts(path, comm, layout)?)
    });
    let order = match &found {
        Ok(Some((path, _))) => Order::Take(name_of(path)),
        Ok(None) => Order::Nothing,
        // A rank that is gone cannot be told anything.
        Err(TrainError::Collective(_)) => return found,
        Err(error) => Order::Failed { for_now: error.is_of_storage() },
    };
    all_say(comm, Some(&order))?;
    found
}

fn follow(folder: &Path, comm: &dyn Communicator, layout: &Layout) -> Result<Found, TrainError> {
    loop {
        let said = all_say::<Order>(comm, None)?;
        match said.into_iter().next().flatten() {
            Some(Order::Check(name)) => _ = verdicts(&folder.join(name), comm, layout)?,
            Some(Order::Take(name)) => return Ok(Some((folder.join(name), Vec::new()))),
            Some(Order::Nothing) => return Ok(None),
            Some(Order::Failed { for_now: true }) => {
                let source =
                    std::io::Error::other("a checkpoint cannot be used for now; rank 0 says which and why");
                return Err(TrainError::Read { path: folder.into(), source });
            }
            Some(Order::Failed { for_now: false }) | None => {
                let what = "no checkpoint verifies\nhint: rank 0 says which and why".into();
                return Err(TrainError::Damaged { path: folder.into(), what });
            }
        }
    }
}

/// What every rank says of its share of the checkpoint at `path`, in rank order.
fn verdicts(path: &Path, comm: &dyn Communicator, layout: &Layout) -> Result<Vec<Verdict>, CollectiveError> {
    let is_own = |number: usize, name: &str| match first_lane(name) {
        Some(lane) if lane < layout.lanes => layout.lane_range().contains(&lane),
        _ => number % comm.world_size() == comm.rank(),
    };
    let leads = comm.rank() == 0;
    let checked = Manifest::read(path).and_then(|manifest| {
        // What is missing for all is missing for rank 0, whoever is to read it.
        if leads {
            manifest.check_lengths(path)?;
        }
        manifest.check_sound(path, is_own)
    });
    let own = match checked {
        // For another rank it may be out of its sight alone: an old copy, or a mount that lags behind.
        Err(error @ TrainError::Read { .. }) if !leads => Verdict::Unreadable(error.to_string()),
        checked => match refusal(checked) {
            Ok(None) => Verdict::Whole,
            Ok(Some(why)) => Verdict::Refused(why),
            Err(error) => Verdict::Unreadable(error.to_string()),
        },
    };
    let all = all_say(comm, Some(&own))?;
    let nothing = || Verdict::Unreadable("its message cannot be read".into());
    Ok(all.into_iter().map(|said| said.unwrap_or_else(nothing)).collect())
}

/// What is wrong with the checkpoint at `path` by the verdicts of all ranks.
fn agree(path: &Path, verdicts: &[Verdict]) -> Result<Option<String>, TrainError> {
    // What rank 0 finds wrong is wrong, whatever others see.
    if let Some(Verdict::Refused(why)) = verdicts.first() {
        return Ok(Some(why.clone()));
    }
    for (rank, verdict) in verdicts.iter().enumerate() {
        if let Verdict::Unreadable(why) = verdict {
            let source = std::io::Error::other(format!("rank {rank}: {why}"));
            return Err(TrainError::Read { path: path.into(), source });
        }
    }
    let refused = verdicts.iter().find_map(|verdict| match verdict {
        Verdict::Refused(why) => Some(why.clone()),
        _ => None,
    });
    Ok(refused)
}

/// What each rank says, in rank order; `None` of those that say nothing. A collective call.
pub(super) fn all_say<T: Serialize + DeserializeOwned>(
    comm: &dyn Communicator,
    own: Option<&T>,
) -> Result<Vec<Option<T>>, CollectiveError> {
    let own = own.and_then(|own| serde_json::to_vec(own).ok()).unwrap_or_default();
    Ok(comm.all_gather(&own)?.iter().map(|said| serde_json::from_slice(said).ok()).collect())
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
