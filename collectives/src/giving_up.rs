//! What a rank does that cannot go on: it finds out whether the others cannot either.

use std::time::Duration;

use crate::{CollectiveError, Communicator};

/// How long a rank that gives up waits for the others to do the same.
const PATIENCE: Duration = Duration::from_secs(3);

/// A channel for ranks that give up. Nobody else uses it, so that one that does not come is one that goes on.
pub struct GivingUp(Box<dyn Communicator>);

impl GivingUp {
    /// Collective. Opens the channel.
    pub fn open(comm: &dyn Communicator) -> Result<Self, CollectiveError> {
        comm.duplicate().map(Self)
    }

    /// What every rank gave up for, in rank order, where all do within a few seconds. `None` where one goes on, or may: it
    /// has to be ended.
    pub fn together(&self, why: &str) -> Option<Vec<String>> {
        let all = self.0.barrier_within(PATIENCE).unwrap_or(false);
        let said = all.then(|| self.0.all_gather(why.as_bytes()).ok()).flatten()?;
        Some(said.iter().map(|why| String::from_utf8_lossy(why).into_owned()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::Local;
    use crate::simulated;

    #[test]
    fn ranks_that_all_give_up_hear_of_each_other() {
        let said = simulated::run(3, |comm| {
            let channel = GivingUp::open(comm).unwrap();
            channel.together(if comm.rank() == 1 { "no corpus" } else { "no recipe" }).unwrap()
        });
        assert_eq!(said, vec![["no recipe", "no corpus", "no recipe"]; 3]);
        assert_eq!(GivingUp::open(&Local).unwrap().together("alone").unwrap(), ["alone"]);
    }
}
