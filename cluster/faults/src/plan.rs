//! What is to happen, as text.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::points::{POINTS, Takes};

/// What may happen at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `kill`: SIGKILL, after which nothing of the process runs.
    Kill,
    /// `stop`: SIGSTOP, which leaves it there until somebody sends SIGCONT.
    Stop,
    /// `segv`: SIGSEGV, as a bad pointer gives.
    Segv,
    /// `term`: SIGTERM, as a batch system sends before a time limit.
    Term,
    /// `panic`: a panic of the thread at the point.
    Panic,
    /// `exit=CODE`: the process ends without a word.
    Exit(i32),
    /// `slow=MS`: the thread at the point sleeps for so many milliseconds.
    Slow(u64),
    /// `no-space`: the disk is full (`ENOSPC`).
    NoSpace,
    /// `io-error`: the disk fails (`EIO`).
    IoError,
    /// `read-only`: the file system has become read-only (`EROFS`).
    ReadOnly,
    /// `unsupported`: the file system has no such call (`EINVAL`).
    Unsupported,
    /// `nan`: a value of the tensor at the point becomes NaN.
    Nan,
    /// `flip`: a bit of the tensor at the point flips.
    Flip,
    /// `trace`: a line on stderr, for a list of the points that a run comes by.
    Trace,
}

/// A plan that cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub struct BadPlan(String);

impl fmt::Display for BadPlan {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadPlan {}

/// The faults of one process.
#[derive(Debug)]
pub struct Plan(Vec<Fault>);

#[derive(Debug)]
struct Fault {
    kind: Kind,
    /// A point's name, or the beginning of several.
    point: String,
    is_prefix: bool,
    step: Option<u64>,
    /// Which of the process' visits to points that are meant, in the step that is meant, from 1.
    hits: RangeInclusive<u64>,
    seen: AtomicU64,
}

impl Plan {
    /// Reads a plan: faults with `;` between them, each `KIND[=NUMBER]@POINT[:rank=R][:attempt=A][:step=N][:hit=H]`. `POINT` is one of [`POINTS`], or
    /// the beginning of several and `*`; `hit` is a number, by default 1, or a range such as `2..5` (both ends count) or `3..`. Faults of
    /// ranks other than `rank`, and of attempts other than `attempt`, are left out.
    ///
    /// # Errors
    ///
    /// The first fault that cannot be read, or that can never happen.
    pub fn parse(text: &str, rank: usize, attempt: u64) -> Result<Self, BadPlan> {
        let mut faults = Vec::new();
        for one in text.split(';').map(str::trim).filter(|one| !one.is_empty()) {
            let bad = |what: &str| BadPlan(format!("cannot read the fault `{one}`: {what}"));
            let (kind, place) = one.split_once('@').ok_or_else(|| bad("there is no `@` before its point"))?;
            let mut words = place.split(':');
            let point = words.next().unwrap_or_default();
            let mut fault = Fault {
                kind: Kind::parse(kind).ok_or_else(|| bad(&format!("unknown kind `{kind}`")))?,
                point: point.trim_end_matches('*').into(),
                is_prefix: point.ends_with('*'),
                step: None,
                hits: 1..=1,
                seen: AtomicU64::new(0),
            };
            let mut is_ours = true;
            for word in words {
                let (key, value) =
                    word.split_once('=').ok_or_else(|| bad(&format!("`{word}` has no `=`")))?;
                let number = |text: &str| text.parse().map_err(|_| bad(&format!("`{text}` is not a number")));
                match key {
                    "rank" => is_ours &= number(value)? == rank as u64,
                    "attempt" => is_ours &= number(value)? == attempt,
                    "step" => fault.step = Some(number(value)?),
                    "hit" => {
                        fault.hits = match value.split_once("..") {
                            None => number(value)?..=number(value)?,
                            Some((first, "")) => number(first)?..=u64::MAX,
                            Some((first, last)) => number(first)?..=number(last)?,
                        }
                    }
                    _ => return Err(bad(&format!("`{key}` is none of rank, attempt, step, hit"))),
                }
            }
            if fault.hits.is_empty() || *fault.hits.start() == 0 {
                return Err(bad("visits are counted from 1, and a range rises"));
            }
            if !POINTS.iter().any(|(point, takes)| fault.is_at(point) && fault.kind.is_taken(*takes)) {
                return Err(bad(&format!("no point called `{point}` takes a `{kind}`")));
            }
            faults.extend(is_ours.then_some(fault));
        }
        Ok(Self(faults))
    }

    /// Whether this process suffers nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What happens at this visit to the point `name`, in step `step`.
    pub fn due(&self, name: &str, step: u64) -> Vec<Kind> {
        let here = |fault: &&Fault| fault.is_at(name) && fault.step.is_none_or(|wanted| wanted == step);
        let visited = |fault: &Fault| {
            let hit = fault.seen.fetch_add(1, Ordering::Relaxed) + 1;
            fault.hits.contains(&hit).then_some(fault.kind)
        };
        self.0.iter().filter(here).filter_map(visited).collect()
    }
}

impl Fault {
    fn is_at(&self, point: &str) -> bool {
        if self.is_prefix { point.starts_with(&self.point) } else { point == self.point }
    }
}

impl Kind {
    fn is_taken(self, by: Takes) -> bool {
        match self {
            Self::NoSpace | Self::IoError | Self::ReadOnly | Self::Unsupported => by == Takes::Refusals,
            Self::Nan | Self::Flip => by == Takes::Spoils,
            _ => true,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (name, number) = match text.split_once('=') {
            Some((name, number)) => (name, Some(number)),
            None => (text, None),
        };
        match (name, number) {
            ("exit", Some(code)) => code.parse().ok().map(Self::Exit),
            ("slow", Some(ms)) => ms.parse().ok().map(Self::Slow),
            ("kill", None) => Some(Self::Kill),
            ("stop", None) => Some(Self::Stop),
            ("segv", None) => Some(Self::Segv),
            ("term", None) => Some(Self::Term),
            ("panic", None) => Some(Self::Panic),
            ("no-space", None) => Some(Self::NoSpace),
            ("io-error", None) => Some(Self::IoError),
            ("read-only", None) => Some(Self::ReadOnly),
            ("unsupported", None) => Some(Self::Unsupported),
            ("nan", None) => Some(Self::Nan),
            ("flip", None) => Some(Self::Flip),
            ("trace", None) => Some(Self::Trace),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_fault_happens_at_its_point_in_its_step_on_its_rank_and_as_often_as_asked() {
        let text = "kill@step.begin:rank=1:step=3; no-space@link.*:hit=2..3; slow=5@gradient:hit=2..;exit=7@gradient";
        let plan = Plan::parse(text, 1, 1).unwrap();
        assert_eq!(plan.due("step.begin", 2), []);
        assert_eq!(plan.due("step.begins", 3), []);
        assert_eq!(plan.due("step.begin", 3), [Kind::Kill]);
        assert_eq!(plan.due("step.begin", 3), []);
        let links: Vec<usize> =
            (0..4).map(|i| plan.due(["link.make", "link.rename"][i % 2], 9).len()).collect();
        assert_eq!(links, [0, 1, 1, 0]);
        assert_eq!(plan.due("gradient", 1), [Kind::Exit(7)]);
        assert_eq!(plan.due("gradient", 1), [Kind::Slow(5)]);
        assert_eq!(Plan::parse(text, 0, 1).unwrap().due("step.begin", 3), []);
        assert!(Plan::parse(" ; ", 0, 1).unwrap().is_empty());
        assert!(Plan::parse("trace@*:hit=1..; kill@*", 0, 1).is_ok());
        let later = "kill@step.begin:attempt=2";
        assert!(
            Plan::parse(later, 0, 1).unwrap().is_empty() && !Plan::parse(later, 0, 2).unwrap().is_empty()
        );
    }

    #[test]
    fn what_cannot_be_read_or_never_happens_is_named() {
        let cases = [
            ("kill", "no `@`"),
            ("kil@gradient", "unknown kind `kil`"),
            ("exit@gradient", "unknown kind `exit`"),
            ("slow=x@gradient", "slow=x"),
            ("kill@gradient:step", "`step` has no `=`"),
            ("kill@gradient:step=x", "`x` is not a number"),
            ("kill@gradient:when=1", "`when` is none of rank, attempt, step, hit"),
            ("kill@gradient:hit=0", "from 1"),
            ("kill@gradient:hit=5..2", "a range rises"),
            ("kill@gradeint", "no point called `gradeint` takes a `kill`"),
            ("kill@", "no point called ``"),
            ("no-space@step.update", "no point called `step.update` takes a `no-space`"),
            ("nan@folder.*", "no point called `folder.*` takes a `nan`"),
        ];
        for (text, words) in cases {
            let said = Plan::parse(text, 0, 1).unwrap_err().to_string();
            assert!(said.contains(words), "{text}: {said}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z@:=.;* 0-9-]{0,60}") {
            if let Ok(plan) = Plan::parse(&text, 0, 1) {
                plan.due("gradient", 1);
            }
        }
    }
}
