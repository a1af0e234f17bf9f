//! The best model of a run as it lies in the run's folder: what it says of itself, and how a run that goes on finds it.

use std::path::Path;

use segue_collectives::Communicator;
use segue_kernels::TrainError;
use segue_publish::read_regular;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::best::{BestSoFar, Rating};
use super::event::Event;
use super::family::Measures;
use crate::checkpoint::{BEST, METRICS, refusal, verify_model};

/// What lies where the best model of a run is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Lying {
    /// The model of this evaluation.
    Of(Rating),
    /// A model that does not say of which, as earlier versions wrote it, or one that cannot be read for now.
    Unnamed,
    /// None that is whole, and why.
    Lost(String),
}

/// The file beside the best model that says which evaluation it is of, and what that found.
pub(super) fn metrics_file(rating: Rating, measures: &Measures) -> (String, Vec<u8>) {
    let mut document = measures.row.as_object().cloned().unwrap_or_default();
    document.extend(json!(rating).as_object().cloned().unwrap_or_default());
    (METRICS.into(), format!("{:#}\n", Value::from(document)).into_bytes())
}

/// Lets `task` of a run that goes on stand with the model that lies in the run's folder, on all ranks: whoever was killed between the two has
/// written one without the other. A collective call.
pub(super) fn reconcile(
    run: &Path,
    task: &mut BestSoFar,
    comm: &dyn Communicator,
    on_event: &mut dyn FnMut(Event),
) -> Result<(), TrainError> {
    let seen = match comm.rank() {
        0 => serde_json::to_vec(&look(&run.join(BEST))).unwrap_or_default(),
        _ => Vec::new(),
    };
    let said = comm.all_gather(&seen)?;
    let lying = said.first().and_then(|seen| serde_json::from_slice(seen).ok());
    match (lying, task.kept()) {
        (Some(Lying::Of(found)), _) => task.find(found),
        (Some(Lying::Lost(why)), Some(kept)) => {
            let step = kept.step;
            let what =
                format!("the best model, of step {step}, is lost: {why}; a better one takes its place");
            on_event(Event::Warning { what });
        }
        _ => {}
    }
    Ok(())
}

/// What lies in `folder`.
fn look(folder: &Path) -> Lying {
    if folder.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return Lying::Lost(format!("{} is not there", folder.display()));
    }
    match refusal(verify_model(folder)) {
        Ok(None) => {
            let said = read_regular(folder.join(METRICS)).ok();
            said.and_then(|said| serde_json::from_slice(&said).ok()).map_or(Lying::Unnamed, Lying::Of)
        }
        Ok(Some(why)) => Lying::Lost(why),
        Err(_) => Lying::Unnamed,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::checkpoint::{WEIGHTS, replace};

    fn measures(row: Value) -> Measures {
        let better = super::super::family::Better::Lower;
        Measures { lead: 2.5, better, decide: None, tie: None, row, scalars: Vec::new(), lines: Vec::new() }
    }

    #[test]
    fn a_best_model_says_which_evaluation_it_is_of() {
        let run = tempfile::tempdir().unwrap();
        let folder = run.path().join(BEST);
        assert!(matches!(look(&folder), Lying::Lost(why) if why.contains("is not there")));
        let write = |files: &[(String, Vec<u8>)]| {
            let fill = |dir: &Path| {
                files.iter().for_each(|(name, bytes)| fs::write(dir.join(name), bytes).unwrap());
                fs::write(dir.join(WEIGHTS), "weights").unwrap();
                Ok(())
            };
            replace(&folder, fill).unwrap();
        };
        let rating = Rating { value: 0.1 + 0.2, tie: Some(1e-300), step: 40 };
        let (name, bytes) = metrics_file(rating, &measures(json!({ "step": 7, "ppl": 12.5 })));
        assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap()["ppl"], 12.5);
        write(&[(name, bytes)]);
        assert_eq!(look(&folder), Lying::Of(rating));
        fs::write(folder.join(WEIGHTS), "weightz").unwrap();
        assert!(matches!(look(&folder), Lying::Lost(why) if why.contains("BLAKE3")));
        // As earlier versions wrote them: of pre-training, and of a task.
        write(&[]);
        assert_eq!(look(&folder), Lying::Unnamed);
        write(&[(METRICS.into(), br#"{"step": 3, "value": 0.5, "scores": []}"#.to_vec())]);
        assert_eq!(look(&folder), Lying::Of(Rating { value: 0.5, tie: None, step: 3 }));
    }
}
