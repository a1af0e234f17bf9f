//! What is to befall a job.

use rustix::io::Errno;
use segue_random::Draws;

/// A fault, and when it happens.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    pub kind: Kind,
    pub when: When,
    /// On which rank; on whichever comes first where there is none.
    pub rank: Option<usize>,
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// The process is gone.
    Kill,
    /// So are all, and what was not synced is lost in part.
    PowerCut,
    /// The process runs no more, and does not end.
    Stop,
    /// Nothing comes from or to the rank any more.
    Cut,
    /// The system refuses the process so many calls.
    Refuse { error: i32, times: u32 },
    /// Somebody asks the job to stop.
    AskToStop,
    /// A value of the tensor there is not a number.
    Nan,
    /// A bit of it is another.
    Flip,
    /// The process takes so many seconds more.
    Slow(f64),
}

/// When it happens.
#[derive(Debug, Clone, Copy)]
pub enum When {
    /// After so many visits to points and waits.
    Visit(u64),
    /// At a visit to a point.
    Point(&'static str, u64),
}

/// The faults of a history, and how far it is.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    pub faults: Vec<Fault>,
    pub visits: u64,
}

/// Points that a fault may be meant for.
const POINTS: [&str; 18] = [
    "step.begin",
    "step.forward",
    "step.backward",
    "reduce.bucket",
    "step.sum",
    "step.update",
    "evaluation.part",
    "checkpoint.stage",
    "checkpoint.begin",
    "checkpoint.contribute",
    "checkpoint.publish",
    "checkpoint.prune",
    "checkpoint.pruned-half",
    "folder.rename",
    "folder.exchange",
    "folder.sync-parent",
    "folder.remove-old",
    "link.rename",
];

impl Kind {
    /// Whether it can happen at a point that was not chosen for it.
    pub fn fits(self, point: &str) -> bool {
        match self {
            Self::Nan | Self::Flip => false,
            Self::Slow(_) => point != "wait",
            _ => true,
        }
    }

    fn draw(draws: &mut Draws) -> Self {
        match draws.below(16) {
            0..=4 => Self::Kill,
            5..=7 => Self::PowerCut,
            8 => Self::Stop,
            9 => Self::Cut,
            10..=12 => {
                let error = [Errno::NOSPC, Errno::IO, Errno::NOSPC, Errno::ROFS][draws.below(4) as usize];
                Self::Refuse { error: error.raw_os_error(), times: 1 + draws.below(6) as u32 }
            }
            13 => Self::AskToStop,
            14 => [Self::Flip, Self::Flip, Self::Flip, Self::Nan][draws.below(4) as usize],
            _ => Self::Slow(draws.uniform() * 20.0),
        }
    }
}

impl Plan {
    /// The faults of a history: none to five, in a job that comes by `visits` points and waits where nothing befalls it.
    /// Bits flip where replicas are `compared`; elsewhere what is spoiled shows.
    pub fn draw(draws: &mut Draws, ranks: usize, visits: u64, compared: bool) -> Self {
        let count = draws.below(6);
        let one = |_| {
            let kind = match Kind::draw(draws) {
                Kind::Flip if !compared => Kind::Nan,
                kind => kind,
            };
            let when = match kind {
                Kind::Nan => {
                    When::Point(["gradient", "weights"][draws.below(2) as usize], 1 + draws.below(60))
                }
                Kind::Flip => When::Point("weights", 1 + draws.below(60)),
                _ if draws.below(2) == 0 => When::Visit(draws.below(visits)),
                _ => When::Point(POINTS[draws.below(POINTS.len() as u64) as usize], 1 + draws.below(12)),
            };
            let rank = (draws.below(2) == 0).then(|| draws.below(ranks as u64) as usize);
            Fault { kind, when, rank }
        };
        Self { faults: (0..count).map(one).collect(), visits: 0 }
    }
}
