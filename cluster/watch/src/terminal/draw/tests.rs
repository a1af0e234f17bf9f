//! Pictures of a made-up run, by a terminal that keeps them.

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::{AttemptView, LiveRanks, RankState, RanksView, RunState, WaitState};

fn run(name: &str) -> RunView {
    let mut run =
        RunView { name: name.into(), step: 40, steps: 50, state: RunState::Training, ..RunView::default() };
    run.series.insert("train/loss".into(), (1..=40).map(|step| (step, 5.0 - step as f64 / 16.0)).collect());
    run.series.insert("train/tokens_per_s".into(), (1..=40).map(|step| (step, 2000.0)).collect());
    run.series.insert("eval/loss".into(), vec![(20, 4.125)]);
    run.checkpoints = vec![20, 40];
    run.updated = Some(995.0);
    let rank = |rank, step, waits| RankState {
        rank,
        step,
        waits,
        host: "n0".into(),
        resident: 300 << 20,
        ..RankState::default()
    };
    let wait = WaitState { call: "MPI_Allgather".into(), peer: None, seconds: 3.5 };
    let ranks = vec![rank(0, 41, Some(wait)), rank(1, 40, None)];
    run.ranks = RanksView {
        from: RanksFrom::Live,
        seen: LiveRanks { attempt: 2, world_size: 2, written: 998.0, ranks },
    };
    run.attempts =
        vec![AttemptView { attempt: 1, seconds: 60.0, code: 137, to_step: 20, ..AttemptView::default() }];
    run
}

/// The lines of a terminal of this size.
fn lines(runs: &[RunView], screen: Screen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, runs, &screen, 1000.0)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_string();
    (0..height).map(line).collect()
}

#[test]
fn a_run_is_drawn_with_its_curves_ranks_and_attempts() {
    let found = lines(&[run("tiny")], Screen::default(), 100, 24);
    assert_eq!(found[0], "Segue");
    assert_eq!(
        found[1],
        "    run  state    step           loss     a second  evaluation checkpoint reported"
    );
    assert_eq!(found[2], "  ■ tiny training 40/50          2.5000   2000      4.1250     40         5 s ago");
    assert!(
        found[3].starts_with("┌ loss ─") && found[3].contains("┌ tokens or examples a second ─"),
        "{found:#?}"
    );
    let curve = |line: &&String| line.chars().any(|c| ('\u{2801}'..='\u{28ff}').contains(&c));
    assert!(found.iter().filter(curve).count() > 8, "{found:#?}");
    let said = found[found.len() - 5..].join("\n");
    assert_eq!(
        said,
        "2 of 2 ranks of attempt 2\n\
         rank 1    n0           step 40 (1 behind)  300 MiB  heard 2 s ago\n\
         rank 0    n0           step 41 (0 behind)  300 MiB  heard 2 s ago  waits in MPI_Allgather for 3.5 s\n\
         attempt 1: 60 s, checkpoint 0 to 20: exit code 137\n\
         q quit · ↑↓ choose a run · l logarithmic loss"
    );
}

#[test]
fn every_size_is_drawn_and_text_of_a_run_controls_no_terminal() {
    let runs = [run("a\u{1b}[2Jb\u{7}"), RunView::default()];
    for (width, height) in [(1, 1), (20, 5), (80, 24), (89, 18), (200, 60)] {
        for logarithmic in [false, true] {
            let found = lines(&runs, Screen { selected: 1, logarithmic }, width, height).join("\n");
            assert!(!found.chars().any(|c| c.is_control() && c != '\n'), "{found:?}");
        }
    }
}
