//! Errors between ranks.

use thiserror::Error;

use crate::{deadline, exit_code};

/// A collective call that did not come through. Every variant names the rank that saw it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CollectiveError {
    /// The peer ended, or its connection broke, while this rank needed it.
    #[error("rank {rank} lost rank {peer} during {during}: that rank has ended")]
    PeerGone {
        /// The rank that noticed.
        rank: usize,
        /// The rank that is gone.
        peer: usize,
        /// The call that noticed.
        during: &'static str,
    },

    /// The MPI library refused or failed a call.
    #[error("rank {rank}: {call}{} failed: {message}", with_peer(*.peer))]
    Mpi {
        /// The rank that made the call.
        rank: usize,
        /// The other side, where the call has one.
        peer: Option<usize>,
        /// The MPI function.
        call: &'static str,
        /// What the library says.
        message: String,
    },

    /// MPI could not be started in this process.
    #[error("MPI cannot be used: {reason}")]
    MpiUnavailable {
        /// Why.
        reason: &'static str,
        /// What to do about it.
        advice: &'static str,
    },

    /// NCCL refused or failed a call, or has lost a peer.
    #[error("rank {rank}: {call}{} failed: {message}", with_peer(*.peer))]
    Nccl {
        /// The rank that made the call.
        rank: usize,
        /// The other side, where the call has one.
        peer: Option<usize>,
        /// NCCL's function, or what went on when it noticed.
        call: &'static str,
        /// What the library says.
        message: String,
    },

    /// Other ranks have given no answer for as long as the job's deadline allows.
    #[error("rank {rank}: {call} has waited {seconds} s for other ranks")]
    Overdue {
        /// The rank that has waited.
        rank: usize,
        /// The call that it gave up.
        call: &'static str,
        /// For how long it has waited.
        seconds: u64,
    },

    /// Sums over cards were asked for, and NCCL cannot be used.
    #[error("NCCL cannot be used: {reason}")]
    NcclUnavailable {
        /// Why, the same on all ranks.
        reason: String,
    },

    /// Two ranks disagree on the length of a message.
    #[error(
        "rank {rank} expected {expected} bytes from rank {peer} in {during} and received {received}: \
         the ranks do not run the same program on the same configuration"
    )]
    LengthMismatch {
        /// The receiving rank.
        rank: usize,
        /// The sending rank.
        peer: usize,
        /// The receiving call.
        during: &'static str,
        /// Bytes the receiver made room for.
        expected: usize,
        /// Bytes that came.
        received: usize,
    },

    /// A call named a rank that is not there to talk to.
    #[error("rank {rank} of {world_size} cannot talk to rank {peer} in {during}")]
    NoSuchPeer {
        /// The calling rank.
        rank: usize,
        /// The rank it named: outside the world, or itself.
        peer: usize,
        /// Ranks in the world.
        world_size: usize,
        /// The call.
        during: &'static str,
    },

    /// The micro-steps of a global step cannot be shared by this many ranks in the fixed order.
    #[error(
        "{micro_steps} micro-steps cannot be shared by {world_size} ranks: each rank needs the same \
         number of them, and that number must be a power of two"
    )]
    UnevenMicroSteps {
        /// Micro-steps in a global step.
        micro_steps: usize,
        /// Ranks in the job.
        world_size: usize,
    },
}

impl CollectiveError {
    /// The process exit code for this error: one of [`exit_code`], or that of the [`deadline`].
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::PeerGone { .. } | Self::Mpi { .. } | Self::Nccl { .. } | Self::MpiUnavailable { .. } => {
                exit_code::UNAVAILABLE
            }
            Self::UnevenMicroSteps { .. } | Self::NcclUnavailable { .. } => exit_code::BAD_CONFIG,
            Self::LengthMismatch { .. } | Self::NoSuchPeer { .. } => exit_code::BUG,
            Self::Overdue { .. } => deadline::EXIT_CODE,
        }
    }

    /// What the library says where it has refused or failed a call, else the whole message.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Mpi { message, .. } | Self::Nccl { message, .. } => message.clone(),
            other => other.to_string(),
        }
    }

    /// What the user can do about it, where that is known: a sentence in the imperative, for a line of its own.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::PeerGone { peer, .. } => Some(format!(
                "look for the message of rank {peer}, then start the job again: it resumes from the last checkpoint"
            )),
            Self::Nccl { .. } => Some(
                "look for the message of another rank, then start the job again: it resumes from the last checkpoint; NCCL_DEBUG=INFO \
                 lets NCCL say more"
                    .to_owned(),
            ),
            Self::Overdue { .. } => Some(deadline::ADVICE.to_owned()),
            Self::NcclUnavailable { .. } => Some(
                "set train.collectives=auto to add up in the memory of hosts where it cannot, or look at the line NCCL of `segue doctor`"
                    .to_owned(),
            ),
            Self::MpiUnavailable { advice, .. } => Some((*advice).to_owned()),
            Self::LengthMismatch { .. } => {
                Some("start all ranks with the same program, configuration and corpus".to_owned())
            }
            // Who shares out the micro-steps knows what else would fit.
            Self::UnevenMicroSteps { .. } | Self::Mpi { .. } | Self::NoSuchPeer { .. } => None,
        }
    }
}

fn with_peer(peer: Option<usize>) -> String {
    peer.map(|peer| format!(" with rank {peer}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_rank_and_peer() {
        let gone = CollectiveError::PeerGone { rank: 3, peer: 1, during: "exchange" };
        assert_eq!(gone.to_string(), "rank 3 lost rank 1 during exchange: that rank has ended");
        assert!(gone.hint().unwrap().starts_with("look for the message of rank 1"));
        assert_eq!(gone.exit_code(), 69);
        let failed =
            CollectiveError::Mpi { rank: 0, peer: Some(2), call: "MPI_Sendrecv", message: "broken".into() };
        assert_eq!(failed.to_string(), "rank 0: MPI_Sendrecv with rank 2 failed: broken");
        assert_eq!(failed.hint(), None);
    }
}
