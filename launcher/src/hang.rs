//! How this rank stands where its job hangs, for whoever wants to know afterwards.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use segue_cluster::{host_name, stacks};
use segue_collectives::calls::{self, Recent};
use segue_collectives::{deadline, print_line};
use segue_publish::{empty_regular, make_own_folder};
use serde_json::{Value, json};

/// How long threads are asked where they are.
const STACKS_WITHIN: Duration = Duration::from_secs(1);
/// Where it is written.
static FILE: OnceLock<(PathBuf, usize)> = OnceLock::new();

/// Sets the run that this process trains in as rank `rank`: where it hangs, `RUN/logs/hang-rank-RRRRR.json` tells. Of a run without a folder
/// nothing does.
pub fn of_run(run: &Path, rank: usize) {
    if run.as_os_str().is_empty() {
        return;
    }
    let file = run.join("logs").join(format!("hang-rank-{rank:05}.json"));
    if FILE.set((file, rank)).is_ok() {
        deadline::before_the_end(write_down);
    }
}

/// Writes down where the threads of this rank are, and its last calls to other ranks.
pub fn write_down() {
    let Some((file, rank)) = FILE.get() else { return };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let mut told = json!({
        "rank": rank,
        "host": host_name(),
        "process": std::process::id(),
        "time": now,
        "step": deadline::step(),
        "points": segue_faults::visits(),
        "threads": null,
        "calls": calls::recent().iter().map(call).collect::<Vec<Value>>(),
    });
    // The process is about to end, and a thread may not answer: what is known comes first, and nobody waits for the disk.
    let write = |told: &Value| empty_regular(file)?.write_all(format!("{told:#}\n").as_bytes());
    let begun = file.parent().map_or(Ok(()), make_own_folder).and_then(|()| write(&told));
    told["threads"] = json!(stacks::of_threads(STACKS_WITHIN));
    let written = begun.and_then(|()| write(&told));
    print_line(&match written {
        Ok(()) => format!("segue: rank {rank} hangs: {} tells how it stands", file.display()),
        Err(error) => format!("segue: rank {rank} hangs, and cannot write {}: {error}", file.display()),
    });
}

fn call(recent: &Recent) -> Value {
    let call = &recent.call;
    json!({
        "thread": call.thread,
        "sequence": call.sequence,
        "call": call.name,
        "peer": call.peer,
        "bytes": call.bytes,
        "seconds_ago": recent.ago.as_secs_f64(),
        "took": recent.took.map(|took| took.as_secs_f64()),
        "state": if recent.took.is_some() { "done" } else { "waits" },
    })
}
