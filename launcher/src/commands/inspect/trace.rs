use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use clap::Args;
use segue_configs::counted;
use segue_publish::open_regular;
use segue_publish::write_file;
use serde_json::{Value, json};

use crate::failure::{Failure, NO_INPUT};
use crate::folder::Force;
use crate::output::Output;
use crate::trace::{CATEGORIES, FOLDER, Header, Span};

/// The thread that makes steps.
const MAIN: &str = "main";

/// Arguments of `segue inspect trace`.
#[derive(Args)]
#[command(after_help = "\
    Open the file in https://ui.perfetto.dev or chrome://tracing. Ranks are processes there, on one time \
    line: clocks of hosts are compared when a trace begins.\n\n\
    Examples:\n  \
    segue pretrain --config my.toml run.dir=runs/one \\\n      \
    log.trace_from=100 log.trace_steps=5\n  \
    segue inspect trace runs/one --output trace.json")]
pub struct TraceArgs {
    /// Run folder.
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// File for the spans of all ranks, as Perfetto reads them.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
}

/// What a rank has written.
struct Trace {
    header: Header,
    spans: Vec<Span>,
}

/// Prints what the main thread of each rank spends its time on, and writes the spans of all where asked.
pub fn run(args: &TraceArgs, out: &Output) -> Result<Value, Failure> {
    args.force.allow(args.output.as_deref(), "--output")?;
    let traces = read_all(&args.run.join(FOLDER))?;
    let Some(first) = traces.first().map(|trace| trace.header.clone()) else {
        let message = format!(
            "there is no trace in {}\nhint: train with log.trace_steps=5, and log.trace_from=N to begin at another step than the first",
            args.run.join(FOLDER).display()
        );
        return Err(Failure::new(NO_INPUT, message));
    };
    if traces.len() != first.world_size {
        out.line(&format!("warning: traces of {} of {}", traces.len(), counted(first.world_size, "rank")));
    }
    let (from, to) = first.steps;
    out.line(&format!("steps {from} to {}, in seconds of each rank's main thread", to - 1));
    out.line(&format!("{:>5} {:>9}{}  {:>13}", "rank", "all", titles(), "clock ahead"));
    let rows: Vec<Value> = traces.iter().map(|trace| row(trace, out)).collect();
    if let Some(path) = &args.output {
        let written = json!({ "displayTimeUnit": "ms", "traceEvents": events(&traces) });
        write_file(path, written.to_string().as_bytes())
            .map_err(|e| Failure::cannot_write(path, &e.source, "--output"))?;
        out.line(&format!("{} is for https://ui.perfetto.dev", path.display()));
    }
    Ok(
        json!({ "run": args.run, "attempt": first.attempt, "steps": [from, to], "ranks": rows, "output": args.output }),
    )
}

fn titles() -> String {
    CATEGORIES.iter().chain(&["other"]).map(|title| format!(" {title:>13}")).collect()
}

/// A rank's line.
fn row(trace: &Trace, out: &Output) -> Value {
    let Header { rank, host, ahead_us, .. } = &trace.header;
    let (all, shares) = shares(&trace.spans);
    let seconds = |micros: f64| micros / 1e6;
    let other = all - shares.values().sum::<f64>();
    let cells =
        CATEGORIES.iter().map(|category| shares.get(*category).copied().unwrap_or(0.0)).chain([other]);
    let text: String = cells.map(|micros| format!(" {:>13.4}", seconds(micros))).collect();
    out.line(&format!("{rank:>5} {:>9.4}{text}  {:>10} us", seconds(all), ahead_us));
    let mut row = json!({ "rank": rank, "host": host, "clock_ahead_us": ahead_us, "all_s": seconds(all), "other_s": seconds(other) });
    for category in CATEGORIES {
        row[format!("{category}_s")] = json!(seconds(shares.get(category).copied().unwrap_or(0.0)));
    }
    row
}

/// How long the main thread was traced, and how much of that each category took, in microseconds. What is done within something else counts as
/// itself alone.
fn shares(spans: &[Span]) -> (f64, BTreeMap<&str, f64>) {
    let mut own: Vec<&Span> = spans.iter().filter(|span| span.thread == MAIN).collect();
    // Of those that begin together the longest is around the others.
    own.sort_by(|a, b| a.at_us.total_cmp(&b.at_us).then(b.took_us.total_cmp(&a.took_us)));
    let (mut shares, mut around): (BTreeMap<&str, f64>, Vec<&Span>) = Default::default();
    let end_of = |span: &Span| span.at_us + span.took_us;
    for span in &own {
        while around.last().is_some_and(|outer| end_of(outer) <= span.at_us) {
            around.pop();
        }
        if let Some(outer) = around.last() {
            *shares.entry(&outer.category).or_default() -= span.took_us;
        }
        *shares.entry(&span.category).or_default() += span.took_us;
        around.push(span);
    }
    let begin = own.first().map_or(0.0, |span| span.at_us);
    let end = own.iter().map(|span| end_of(span)).fold(begin, f64::max);
    (end - begin, shares)
}

/// Spans in the Trace Event Format, which Perfetto and Chrome read: ranks are its processes.
fn events(traces: &[Trace]) -> Vec<Value> {
    let begin_of = |header: &Header| header.began_us - header.ahead_us;
    let zero = traces.iter().map(|trace| begin_of(&trace.header)).min().unwrap_or(0);
    let mut events = Vec::new();
    for Trace { header, spans } in traces {
        let rank = header.rank;
        let about = |name: &str, thread: usize, what: Value| json!({ "ph": "M", "name": name, "pid": rank, "tid": thread, "args": what });
        let title = format!("rank {rank} on {}", header.host);
        events.push(about("process_name", 0, json!({ "name": title })));
        events.push(about("process_sort_index", 0, json!({ "sort_index": rank })));
        let mut threads = vec![MAIN];
        for span in spans {
            if !threads.contains(&span.thread.as_str()) {
                threads.push(&span.thread);
            }
        }
        for (number, thread) in threads.iter().enumerate() {
            events.push(about("thread_name", number, json!({ "name": thread })));
            events.push(about("thread_sort_index", number, json!({ "sort_index": number })));
        }
        let shift = (begin_of(header) - zero) as f64;
        events.extend(spans.iter().map(|span| {
            let thread = threads.iter().position(|thread| *thread == span.thread);
            json!({
                "ph": "X", "name": span.name, "cat": span.category, "pid": rank, "tid": thread,
                "ts": span.at_us + shift, "dur": span.took_us, "args": span.more,
            })
        }));
    }
    events
}

/// By rank.
fn read_all(folder: &Path) -> Result<Vec<Trace>, Failure> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|e| Failure::cannot_read(folder, &e))?,
    };
    let mut traces = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| Failure::cannot_read(folder, &e))?.path();
        if path.extension().is_some_and(|ending| ending == "jsonl") {
            traces.extend(read(&path).map_err(|e| Failure::cannot_read(&path, &e))?);
        }
    }
    traces.sort_by_key(|trace| trace.header.rank);
    Ok(traces)
}

/// What a file holds; `None` where a rank has not come to write its first line. The last line may be cut by the death of its rank.
fn read(path: &Path) -> io::Result<Option<Trace>> {
    let mut lines = BufReader::new(open_regular(path)?).lines();
    let header = lines.next().transpose()?.and_then(|line| serde_json::from_str(&line).ok());
    let Some(header) = header else { return Ok(None) };
    let mut spans = Vec::new();
    for line in lines {
        spans.extend(serde_json::from_str::<Span>(&line?).ok());
    }
    Ok(Some(Trace { header, spans }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(category: &str, thread: &str, at_us: f64, took_us: f64) -> Span {
        let [name, category, thread] = ["x", category, thread].map(String::from);
        Span { name, category, thread, at_us, took_us, more: Default::default() }
    }

    #[test]
    fn what_is_within_something_else_counts_as_itself_alone() {
        let spans = [
            span("communication", MAIN, 30.0, 10.0),
            span("compute", MAIN, 10.0, 50.0),
            span("compute", MAIN, 12.0, 5.0),
            span("communication", "reduce", 0.0, 500.0),
            span("data", MAIN, 70.0, 20.0),
        ];
        let (all, shares) = shares(&spans);
        assert_eq!(all, 80.0);
        assert_eq!(shares, BTreeMap::from([("communication", 10.0), ("compute", 40.0), ("data", 20.0)]));
    }

    #[test]
    fn ranks_share_one_time_line() {
        let trace = |rank, began_us, ahead_us| Trace {
            header: Header {
                rank,
                world_size: 2,
                host: "h".into(),
                attempt: 1,
                steps: (1, 2),
                began_us,
                ahead_us,
            },
            spans: vec![span("compute", MAIN, 5.0, 1.0), span("checkpoint", "checkpoint", 6.0, 1.0)],
        };
        let traces = [trace(0, 4_000, 0), trace(1, 5_300, 300)];
        let events = events(&traces);
        let begins: Vec<(u64, u64, f64)> = events
            .iter()
            .filter(|event| event["ph"] == "X")
            .map(|event| {
                let number = |key: &str| event[key].as_u64().unwrap();
                (number("pid"), number("tid"), event["ts"].as_f64().unwrap())
            })
            .collect();
        assert_eq!(begins, [(0, 0, 5.0), (0, 1, 6.0), (1, 0, 1_005.0), (1, 1, 1_006.0)]);
    }

    #[test]
    fn a_file_that_its_rank_did_not_finish_is_read_as_far_as_it_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-00000.jsonl");
        fs::write(&path, "").unwrap();
        assert!(read(&path).unwrap().is_none());
        let header = Header {
            rank: 0,
            world_size: 1,
            host: "h".into(),
            attempt: 1,
            steps: (1, 2),
            began_us: 0,
            ahead_us: 0,
        };
        let [header, whole] = [
            serde_json::to_string(&header).unwrap(),
            serde_json::to_string(&span("data", MAIN, 1.0, 2.0)).unwrap(),
        ];
        fs::write(&path, format!("{header}\n{whole}\n{}", &whole[..20])).unwrap();
        assert_eq!(read(&path).unwrap().unwrap().spans.len(), 1);
    }
}
