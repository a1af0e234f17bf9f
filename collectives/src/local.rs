//! A world of one: every collective returns what it was given.

use crate::CollectiveError;
use crate::communicator::{Communicator, check_peer, check_root};

/// The communicator of a run without a launcher.
///
/// ```
/// use segue_collectives::{local::Local, Communicator};
/// assert_eq!(Local.world_size(), 1);
/// assert_eq!(Local.all_gather(b"own").unwrap(), [b"own"]);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Local;

impl Communicator for Local {
    fn rank(&self) -> usize {
        0
    }

    fn world_size(&self) -> usize {
        1
    }

    fn exchange(&self, peer: usize, _send: &[u8], _recv: &mut [u8]) -> Result<(), CollectiveError> {
        check_peer(self, peer, "exchange")
    }

    fn send(&self, peer: usize, _bytes: &[u8]) -> Result<(), CollectiveError> {
        check_peer(self, peer, "send")
    }

    fn recv(&self, peer: usize, _bytes: &mut [u8]) -> Result<(), CollectiveError> {
        check_peer(self, peer, "recv")
    }

    fn barrier(&self) -> Result<(), CollectiveError> {
        Ok(())
    }

    fn broadcast(&self, root: usize, _bytes: &mut [u8]) -> Result<(), CollectiveError> {
        check_root(self, root, "broadcast")
    }

    fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, CollectiveError> {
        Ok(vec![bytes.to_vec()])
    }

    fn gather(&self, root: usize, bytes: &[u8]) -> Result<Option<Vec<Vec<u8>>>, CollectiveError> {
        check_root(self, root, "gather")?;
        Ok(Some(vec![bytes.to_vec()]))
    }

    fn all_reduce_any_order(&self, _values: &mut [f32]) -> Result<(), CollectiveError> {
        Ok(())
    }

    fn duplicate(&self) -> Result<Box<dyn Communicator>, CollectiveError> {
        Ok(Box::new(Local))
    }

    fn abort(&self, code: i32) -> ! {
        std::process::exit(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_nobody_to_talk_to() {
        let error = Local.exchange(0, b"a", &mut [0]).unwrap_err();
        assert_eq!(
            error,
            CollectiveError::NoSuchPeer { rank: 0, peer: 0, world_size: 1, during: "exchange" }
        );
        assert!(Local.broadcast(1, &mut []).is_err());
        assert_eq!(error.exit_code(), 70);
    }
}
