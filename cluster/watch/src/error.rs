//! What can go wrong between the folder of a run and whoever looks at it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::exit_code;

/// A run cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The folder that was named holds no run.
    #[error("there is no run in {path}")]
    NoRun {
        /// The folder.
        path: PathBuf,
    },
    /// The address cannot be listened at.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The server cannot be run.
    #[error("cannot serve: {source}")]
    Serve {
        /// What the system said.
        source: io::Error,
    },
    /// The terminal cannot be drawn on.
    #[error("cannot draw on the terminal: {source}")]
    Terminal {
        /// What the system said.
        source: io::Error,
    },
}

impl WatchError {
    /// Exit code, one of [`exit_code`].
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NoRun { .. } => exit_code::NO_INPUT,
            Self::Listen { .. } => exit_code::UNAVAILABLE,
            Self::Serve { .. } | Self::Terminal { .. } => exit_code::IO_FAILED,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoRun { .. } => {
                Some("name the run.dir of a run; `segue runs DIR` lists those below a folder".into())
            }
            Self::Listen { .. } => {
                Some("choose another port: --serve=127.0.0.1:0 takes any that is free".into())
            }
            Self::Serve { .. } => None,
            Self::Terminal { .. } => Some("use --serve for a page, or --json for what is known now".into()),
        }
    }
}
