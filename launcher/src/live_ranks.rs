//! What the supervisor hears of the ranks of an attempt, for whoever watches the run: `launch/ranks.json`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use segue_cluster::launch::hearing::Heard;
use segue_cluster::launch::pulse::Beat;
use segue_watch::{LiveRanks, RANKS_FILE, RankState, WaitState, now};

/// How often the file is written at most.
const EVERY: Duration = Duration::from_secs(1);

/// The file, as long as an attempt runs: dropped, it goes. It is written on a thread of its own, as a file system that takes its time
/// must not keep the supervisor from its ranks.
pub struct LiveRanksFile {
    attempt: u64,
    world_size: usize,
    ranks: BTreeMap<usize, Heeded>,
    written: Option<Instant>,
    /// Closed when the attempt has ended.
    to_write: Option<SyncSender<LiveRanks>>,
    writer: Option<JoinHandle<()>>,
}

/// A rank, and when it was heard of last.
struct Heeded {
    state: RankState,
    at: Instant,
}

impl LiveRanksFile {
    /// Begins the file of an attempt in the folder of reports.
    pub fn begin(reports: &Path, attempt: u64, world_size: usize) -> Self {
        let path = reports.join(RANKS_FILE);
        let (to_write, news) = sync_channel(1);
        let writer = thread::Builder::new().name("ranks-file".into()).spawn(move || write(&path, &news)).ok();
        let mut file = Self {
            attempt,
            world_size,
            ranks: BTreeMap::new(),
            written: None,
            to_write: Some(to_write),
            writer,
        };
        file.tell();
        file
    }

    /// Takes note of what is heard, and passes it on where it is time.
    pub fn hear(&mut self, heard: &Heard) {
        match heard {
            Heard::Joined(hello) => {
                let state = RankState { rank: hello.rank, host: hello.host.clone(), ..RankState::default() };
                self.ranks.insert(hello.rank, Heeded { state, at: Instant::now() });
            }
            Heard::Beat(rank, beat, at) => {
                if let Some(rank) = self.ranks.get_mut(rank) {
                    rank.at = *at;
                    take(&mut rank.state, beat);
                }
            }
            Heard::Left(rank) => {
                if let Some(rank) = self.ranks.get_mut(rank) {
                    rank.state.left = true;
                }
            }
            Heard::Line(_) | Heard::Result(_) | Heard::Straggles(_) | Heard::Hung(_) => {}
        }
        if self.written.is_none_or(|written| written.elapsed() >= EVERY) {
            self.tell();
        }
    }

    fn tell(&mut self) {
        let state =
            |rank: &Heeded| RankState { age_s: rank.at.elapsed().as_secs_f64(), ..rank.state.clone() };
        let ranks = self.ranks.values().map(state).collect();
        let live = LiveRanks { attempt: self.attempt, world_size: self.world_size, written: now(), ranks };
        // Where the last one is not written yet, the next second brings another.
        let _ = self.to_write.as_ref().map(|to_write| to_write.try_send(live));
        self.written = Some(Instant::now());
    }
}

impl Drop for LiveRanksFile {
    fn drop(&mut self) {
        drop(self.to_write.take());
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

fn take(state: &mut RankState, beat: &Beat) {
    let wait = |wait: &segue_cluster::launch::pulse::Wait| WaitState {
        call: wait.call.clone(),
        peer: wait.peer,
        seconds: wait.seconds,
    };
    state.step = beat.step;
    state.resident = beat.resident;
    state.waits = beat.waits.as_ref().map(wait);
    state.left = beat.leaving.is_some();
}

/// Writes what comes, and removes the file at the end. It is for those who watch: where it cannot be written, training goes on.
fn write(path: &Path, news: &Receiver<LiveRanks>) {
    while let Ok(live) = news.recv() {
        if let Ok(text) = serde_json::to_vec(&live) {
            let _ = segue_publish::write_passing_file(path, &text);
        }
    }
    let _ = fs::remove_file(path);
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use segue_cluster::launch::pulse::Hello;

    use super::*;

    fn read(path: &PathBuf) -> Option<LiveRanks> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    #[test]
    fn the_file_follows_the_ranks_and_goes_with_the_attempt() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(RANKS_FILE);
        let mut file = LiveRanksFile::begin(dir.path(), 3, 2);
        let hello =
            Hello { token: String::new(), rank: 1, host: "n1".into(), process: 1, identity: String::new() };
        file.hear(&Heard::Joined(hello));
        let beat = Beat { step: 7, resident: 4096, ..Beat::default() };
        file.hear(&Heard::Beat(1, beat, Instant::now()));
        let begun = Instant::now();
        loop {
            file.hear(&Heard::Line(String::new()));
            match read(&path) {
                Some(live) if !live.ranks.is_empty() => {
                    assert_eq!((live.attempt, live.world_size, live.ranks[0].step), (3, 2, 7));
                    assert_eq!((live.ranks[0].host.as_str(), live.ranks[0].resident), ("n1", 4096));
                    break;
                }
                _ => assert!(begun.elapsed() < Duration::from_secs(20)),
            }
            thread::sleep(Duration::from_millis(50));
        }
        drop(file);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
