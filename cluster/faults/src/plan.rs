//! What is to happen, as text.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// Which of the process' visits to the point, from 1.
    hits: RangeInclusive<u64>,
    seen: AtomicU64,
}

impl Plan {
    /// Reads a plan: faults with `;` between them, each `KIND[=NUMBER]@POINT[:rank=R][:step=N][:hit=H]`. `POINT` may end in `*`; `hit` is
    /// a number, by default 1, or a range such as `2..5` (both ends count) or `3..`. Faults of ranks other than `rank` are
    /// left out.
    ///
    /// # Errors
    ///
    /// What cannot be read.
    pub fn parse(text: &str, rank: usize) -> Result<Self, BadPlan> {
        let mut faults = Vec::new();
        for one in text.split(';').map(str::trim).filter(|one| !one.is_empty()) {
            let bad = |what: &str| BadPlan(format!("the fault `{one}` cannot be read: {what}"));
            let (kind, place) = one.split_once('@').ok_or_else(|| bad("there is no `@` before its point"))?;
            let mut words = place.split(':');
            let point = words.next().unwrap_or_default();
            let mut fault = Fault {
                kind: Kind::parse(kind).ok_or_else(|| bad(&format!("no kind `{kind}` is known")))?,
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
                let number = |text: &str| text.parse().map_err(|_| bad(&format!("`{text}` is no number")));
                match key {
                    "rank" => is_ours = number(value)? == rank as u64,
                    "step" => fault.step = Some(number(value)?),
                    "hit" => {
                        fault.hits = match value.split_once("..") {
                            None => number(value)?..=number(value)?,
                            Some((first, "")) => number(first)?..=u64::MAX,
                            Some((first, last)) => number(first)?..=number(last)?,
                        }
                    }
                    _ => return Err(bad(&format!("`{key}` is none of rank, step, hit"))),
                }
            }
            faults.extend(is_ours.then_some(fault));
        }
        Ok(Self(faults))
    }

    /// What happens at this visit to the point `name`, in step `step`.
    pub fn due(&self, name: &str, step: u64) -> Vec<Kind> {
        let here = |fault: &&Fault| {
            let named = if fault.is_prefix { name.starts_with(&fault.point) } else { name == fault.point };
            named && fault.step.is_none_or(|wanted| wanted == step)
        };
        let visited = |fault: &Fault| {
            let hit = fault.seen.fetch_add(1, Ordering::Relaxed) + 1;
            fault.hits.contains(&hit).then_some(fault.kind)
        };
        self.0.iter().filter(here).filter_map(visited).collect()
    }
}

impl Kind {
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
        let text = "kill@step.begin:rank=1:step=3; no-space@publish.*:hit=2..3; slow=5@a:hit=2..;exit=7@a";
        let plan = Plan::parse(text, 1).unwrap();
        assert_eq!(plan.due("step.begin", 2), []);
        assert_eq!(plan.due("step.begins", 3), []);
        assert_eq!(plan.due("step.begin", 3), [Kind::Kill]);
        assert_eq!(plan.due("step.begin", 3), []);
        let publish: Vec<usize> =
            (0..4).map(|i| plan.due(["publish.link", "publish.sync"][i % 2], 9).len()).collect();
        assert_eq!(publish, [0, 1, 1, 0]);
        assert_eq!(plan.due("a", 1), [Kind::Exit(7)]);
        assert_eq!(plan.due("a", 1), [Kind::Slow(5)]);
        assert_eq!(Plan::parse(text, 0).unwrap().due("step.begin", 3), []);
        assert!(Plan::parse(" ; ", 0).unwrap().due("a", 0).is_empty());
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let said = |text| Plan::parse(text, 0).unwrap_err().to_string();
        assert!(said("kill").contains("no `@`"));
        assert!(said("kil@a").contains("no kind `kil`"));
        assert!(said("exit@a").contains("no kind `exit`"));
        assert!(said("slow=x@a").contains("slow=x"));
        assert!(said("kill@a:step").contains("`step` has no `=`"));
        assert!(said("kill@a:step=x").contains("`x` is no number"));
        assert!(said("kill@a:when=1").contains("`when` is none of rank, step, hit"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z@:=.;* 0-9-]{0,60}") {
            if let Ok(plan) = Plan::parse(&text, 0) {
                plan.due("a", 1);
            }
        }
    }
}
