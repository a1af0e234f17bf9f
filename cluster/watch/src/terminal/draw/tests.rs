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

/// The metric of a task goes by its name, and a narrow terminal has fewer columns, each whole.
#[test]
fn no_number_is_cut_in_sixty_columns() {
    let mut tuned = run("sst2");
    tuned.series.insert("eval/value".into(), vec![(20, 0.9375)]);
    tuned.series.insert("eval/scores/sst2/dev/accuracy".into(), vec![(20, 0.9375)]);
    tuned.series.insert("eval/scores/sst2/dev/loss".into(), vec![(20, 0.5)]);
    let found = lines(&[tuned], Screen::default(), 60, 24);
    assert_eq!(found[1], "    run  state    step           loss     accuracy");
    assert_eq!(found[2], "  ■ sst2 training 40/50          2.5000   0.9375");
    // Of several measures none stands for all.
    let mut other = run("rte");
    other.series.insert("eval/value".into(), vec![(20, 0.5)]);
    let found = lines(&[run("sst2"), other], Screen::default(), 100, 24);
    assert!(found[1].contains("evaluation"), "{found:#?}");
}

#[test]
fn ranks_leave_room_for_the_newest_attempts_and_say_how_many_are_not_shown() {
    let mut many = run("tiny");
    let rank = |rank| RankState { rank, step: 41, ..RankState::default() };
    many.ranks.seen.world_size = 8;
    many.ranks.seen.ranks = (0..8).map(rank).collect();
    let ends_in = |run: &RunView, beginnings: &[&str]| {
        let found = lines(std::slice::from_ref(run), Screen::default(), 100, 24);
        let last = &found[found.len() - 1 - beginnings.len()..];
        assert!(last.iter().zip(beginnings).all(|(line, begin)| line.starts_with(begin)), "{found:#?}");
    };
    ends_in(
        &many,
        &[
            "8 of 8 ranks",
            "rank 0",
            "rank 1",
            "rank 2",
            "rank 3",
            "rank 4",
            "… and 3 more ranks",
            "attempt 1:",
        ],
    );
    many.attempts = (1..=5).map(|attempt| AttemptView { attempt, ..AttemptView::default() }).collect();
    ends_in(&many, &["rank 3", "… and 4 more ranks", "attempt 5:", "… and 4 more attempts"]);
}

#[test]
fn a_table_that_does_not_fit_shows_the_chosen_run() {
    let runs: Vec<RunView> = (0..12).map(|i| run(&format!("run-{i}"))).collect();
    for selected in [0, 11] {
        let found = lines(&runs, Screen { selected, logarithmic: false }, 100, 24);
        assert_eq!(found[0], "Segue, 7 of 12 runs");
        let chosen = format!("> ■ run-{selected} ");
        assert!(found.iter().any(|line| line.starts_with(&chosen)), "{found:#?}");
    }
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

#[test]
fn whatever_values_curves_have_is_drawn_or_said_to_be_left_out() {
    let sizes = [0.0, 5e-324, 1e-300, 1e-3, 1e16, 1.000_000_000_000_000_2e16, 1e280, f64::MAX, f64::INFINITY];
    let values: Vec<f64> = sizes.into_iter().flat_map(|size| [size, -size]).chain([f64::NAN]).collect();
    let dots = |found: &[String]| {
        let dot = |c: char| ('\u{2801}'..='\u{28ff}').contains(&c);
        found.iter().any(|line| line.chars().any(dot))
    };
    for one in &values {
        for other in &values {
            let mut run = RunView { name: "tiny".into(), step: u64::MAX, ..RunView::default() };
            run.series.insert("train/loss".into(), vec![(1, *one), (u64::MAX, *other)]);
            for logarithmic in [false, true] {
                let shown =
                    |v: &&&f64| if logarithmic { v.is_finite() && ***v > 0.0 } else { v.abs() <= 1e280 };
                let count = [one, other].iter().filter(shown).count();
                let found = lines(&[run.clone()], Screen { selected: 0, logarithmic }, 100, 24);
                let said = ["2 values left out", "1 value left out", "loss"][count];
                assert!(found[3].contains(said), "{one} {other}: {found:#?}");
                assert_eq!(dots(&found), count > 0, "{one} {other}: {found:#?}");
            }
        }
    }
}

/// Rows and reports come from files, and hold what somebody has written there.
#[test]
fn numbers_of_any_size_are_drawn() {
    let mut odd = run("odd");
    let values = [f64::MAX, f64::MIN, f64::MIN_POSITIVE, 0.0, -0.0, 1e-3, f64::INFINITY];
    let curve: Vec<(u64, f64)> =
        [0, 1, u64::MAX].iter().flat_map(|step| values.map(|value| (*step, value))).collect();
    for name in ["train/loss", "train/tokens_per_s", "eval/loss"] {
        odd.series.insert(name.into(), curve.clone());
    }
    (odd.step, odd.steps, odd.attempt, odd.superseded) = (u64::MAX, u64::MAX, u64::MAX, u64::MAX);
    (odd.checkpoints, odd.updated) = (vec![u64::MAX], Some(f64::MIN));
    let rank =
        |rank, step, age_s| RankState { rank, step, age_s, resident: u64::MAX, ..RankState::default() };
    let ranks = vec![rank(usize::MAX, u64::MAX, f64::MAX), rank(0, 0, f64::MIN)];
    odd.ranks.seen = LiveRanks { attempt: u64::MAX, world_size: usize::MAX, written: f64::MIN, ranks };
    let attempt =
        |seconds| AttemptView { attempt: u64::MAX, seconds, from_step: u64::MAX, ..AttemptView::default() };
    odd.attempts = [f64::MAX, f64::MIN, 0.0].map(attempt).to_vec();
    for logarithmic in [false, true] {
        for (width, height) in [(100, 24), (40, 60), (1, 1), (3, 20)] {
            lines(&[odd.clone(), run("plain")], Screen { selected: 0, logarithmic }, width, height);
        }
    }
}
