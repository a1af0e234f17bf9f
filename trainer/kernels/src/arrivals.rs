//! Weights that other ranks have updated and that are still on their way here, where updates are divided: whoever reads one waits for it. A forward
//! pass begins while those of its last layers travel (as in Megatron-LM's distributed optimizer; Narayanan et al. 2021).

use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use segue_world::{Receiver, Sender, channel};
use tch::Device;
use tracing::trace_span;

use crate::libtorch::stream::Event;

/// Which parameters of a network are here, told by their numbers. While none is on its way, which is always where nothing is divided, asking costs next
/// to nothing.
#[derive(Default)]
pub struct Arrivals {
    /// Whether any may be on its way.
    under_way: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Numbers that are taken while something is built that waits for them by itself.
    building: Option<Vec<usize>>,
    /// By number; never, beyond the end.
    taken: Vec<Taken>,
    /// What is on its way.
    missing: Vec<Range<usize>>,
    coming: Option<Coming>,
    /// How long somebody has waited, but for what a card had work to do meanwhile: at most so long.
    waited: Duration,
    /// Whether what was on its way will not come.
    is_lost: bool,
}

/// What somebody has taken a parameter for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Taken {
    #[default]
    Never,
    /// For what waits for it by itself, and nothing else.
    Awaited,
    /// To read it whenever.
    Read,
}

struct Coming {
    numbers: Receiver<Range<usize>>,
    /// Where they come to.
    device: Device,
}

impl Arrivals {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that somebody takes parameter `number`, to read it: now, unless it is for something under [`Arrivals::awaited`].
    pub fn take(&self, number: usize) {
        let mut state = self.lock();
        if state.taken.len() <= number {
            state.taken.resize(number + 1, Taken::Never);
        }
        if let Some(numbers) = &mut state.building {
            numbers.push(number);
            if state.taken[number] == Taken::Never {
                state.taken[number] = Taken::Awaited;
            }
            return;
        }
        state.taken[number] = Taken::Read;
        drop(state);
        self.wait(|parameter| parameter == number);
    }

    /// What `build` makes of parameters that it takes and does not read. Whoever reads the result waits for them.
    pub fn awaited<T>(self: &Arc<Self>, build: impl FnOnce() -> T) -> Awaited<T> {
        let building = Building { arrivals: self, outer: self.lock().building.replace(Vec::new()) };
        let what = build();
        let taken = self.lock().building.take().unwrap_or_default();
        drop(building);
        Awaited { what, taken, arrivals: self.clone() }
    }

    /// Lets parameters of these numbers be on their way to `device` from now on: whoever brings some says so with what is returned, range by range. Gone
    /// without a word, what is left is lost.
    pub fn announce(
        &self,
        parameters: impl IntoIterator<Item = Range<usize>>,
        device: Device,
    ) -> Sender<Range<usize>> {
        self.wait_for_all();
        let (bring, numbers) = channel();
        let mut state = self.lock();
        state.missing = parameters.into_iter().filter(|numbers| !numbers.is_empty()).collect();
        self.under_way.store(!state.missing.is_empty(), Ordering::Release);
        state.coming = Some(Coming { numbers, device });
        bring
    }

    /// Waits for all that is on its way.
    pub fn wait_for_all(&self) {
        self.wait(|_| true);
    }

    /// Waits for all that nobody waits for who reads it: what is taken otherwise than under [`Arrivals::awaited`], or not at all.
    pub fn wait_for_the_rest(&self) {
        if self.under_way.load(Ordering::Acquire) {
            let taken = self.lock().taken.clone();
            self.wait(|number| taken.get(number) != Some(&Taken::Awaited));
        }
    }

    /// Waits for those that are `wanted`. It ends as well when they are lost: whoever goes on then asks [`Arrivals::is_lost`].
    fn wait(&self, wanted: impl Fn(usize) -> bool) {
        if !self.under_way.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.lock();
        let is_missing = |state: &State| state.missing.iter().any(|numbers| numbers.clone().any(&wanted));
        if !is_missing(&state) {
            return;
        }
        let _span = trace_span!(target: "communication", "wait for weights").entered();
        let (began, queued) = (Instant::now(), state.coming.as_ref().map(|coming| Event::now(coming.device)));
        while is_missing(&state) {
            match state.coming.as_ref().and_then(|coming| coming.numbers.recv().ok()) {
                Some(here) => state.missing.retain(|numbers| *numbers != here),
                None => {
                    state.missing.clear();
                    state.is_lost = true;
                }
            }
        }
        // The host is ahead of a card: no time is lost where that still has work when the weights come. Else how much is not known, and all of it counts.
        if let Some(Ok(queued)) = queued
            && queued.has_passed().unwrap_or(true)
        {
            state.waited += began.elapsed();
        }
        self.under_way.store(!state.missing.is_empty(), Ordering::Release);
    }

    /// Whether what was on its way will not come: whoever was to bring it knows why.
    pub fn is_lost(&self) -> bool {
        self.lock().is_lost
    }

    /// How long somebody has waited since this was asked last: on a card an upper bound of what is lost.
    pub fn waited(&self) -> Duration {
        std::mem::take(&mut self.lock().waited)
    }
}

/// While it lives something is built; what was being built around it goes on afterwards, also where this has failed.
struct Building<'a> {
    arrivals: &'a Arrivals,
    outer: Option<Vec<usize>>,
}

impl Drop for Building<'_> {
    fn drop(&mut self) {
        self.arrivals.lock().building = self.outer.take();
    }
}

/// Something built over parameters: whoever reads it waits for them.
pub struct Awaited<T> {
    what: T,
    taken: Vec<usize>,
    arrivals: Arc<Arrivals>,
}

impl<T> Awaited<T> {
    fn wait(&self) {
        self.arrivals.wait(|number| self.taken.contains(&number));
    }
}

impl<T> Deref for Awaited<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.wait();
        &self.what
    }
}

impl<T> DerefMut for Awaited<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.wait();
        &mut self.what
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers 1 and 3 for something that waits by itself, 2 for others, 0 and 4 for nobody.
    fn arrivals() -> (Arc<Arrivals>, Awaited<&'static str>) {
        let arrivals = Arc::new(Arrivals::default());
        let awaited = arrivals.awaited(|| {
            [3, 1].into_iter().for_each(|number| arrivals.take(number));
            "both"
        });
        arrivals.take(2);
        (arrivals, awaited)
    }

    /// Lets these be on their way, of which those of `here` have come.
    fn announce(arrivals: &Arrivals, all: &[Range<usize>], here: usize) -> Sender<Range<usize>> {
        let bring = arrivals.announce(all.iter().cloned(), Device::Cpu);
        all[..here].iter().for_each(|numbers| bring.send(numbers.clone()).unwrap());
        bring
    }

    /// What comes next stays missing: who does not want it has not waited for it.
    #[test]
    fn nobody_waits_for_more_than_it_reads() {
        let (arrivals, awaited) = arrivals();
        let bring = announce(&arrivals, &[1..2, 3..4, 2..3, 4..5, 0..1, 5..5], 2);
        assert_eq!(*awaited, "both");
        assert_eq!(arrivals.lock().missing, [2..3, 4..5, 0..1]);
        [2..3, 4..5, 0..1].into_iter().for_each(|numbers| bring.send(numbers).unwrap());
        arrivals.wait_for_the_rest();
        assert!(!arrivals.under_way.load(Ordering::Acquire) && !arrivals.is_lost());
        // Nobody has taken 0 and 4, who might read them whenever.
        let bring = announce(&arrivals, &[2..3, 0..1, 4..5, 3..4, 1..2], 3);
        arrivals.wait_for_the_rest();
        assert_eq!(arrivals.lock().missing, [3..4, 1..2]);
        [3..4, 1..2].into_iter().for_each(|numbers| bring.send(numbers).unwrap());
        arrivals.wait_for_all();
        assert!(!arrivals.under_way.load(Ordering::Acquire));
    }

    #[test]
    fn what_somebody_takes_to_read_whenever_is_waited_for_before() {
        let (arrivals, awaited) = arrivals();
        arrivals.take(1);
        // Again for something that waits by itself.
        drop(arrivals.awaited(|| arrivals.take(1)));
        let bring = announce(&arrivals, &[1..2, 3..4], 1);
        arrivals.wait_for_the_rest();
        assert!(arrivals.lock().missing.iter().eq([&(3..4)]));
        bring.send(3..4).unwrap();
        assert_eq!(*awaited, "both");
    }

    #[test]
    fn what_is_built_inside_of_another_keeps_its_own() {
        let arrivals = Arc::new(Arrivals::default());
        let outer = arrivals.awaited(|| {
            arrivals.take(0);
            let inner = arrivals.awaited(|| arrivals.take(1));
            arrivals.take(2);
            inner
        });
        assert_eq!((&outer.taken, &outer.what.taken), (&vec![0, 2], &vec![1]));
        // What fails leaves nothing behind.
        let failed = std::panic::AssertUnwindSafe(|| drop(arrivals.awaited(|| panic!("on purpose"))));
        assert!(std::panic::catch_unwind(failed).is_err());
        assert!(arrivals.lock().building.is_none());
    }

    #[test]
    fn a_bringer_that_is_gone_keeps_nobody_waiting() {
        let (arrivals, awaited) = arrivals();
        drop(announce(&arrivals, &[0..2, 2..5], 0));
        assert_eq!(*awaited, "both");
        assert!(arrivals.is_lost());
        // Where nothing is on its way nobody waits, and nothing can be lost.
        let (arrivals, awaited) = self::arrivals();
        assert_eq!((*awaited, arrivals.is_lost(), arrivals.waited()), ("both", false, Duration::ZERO));
    }
}
