use std::collections::BTreeMap;
use std::fs;

use segue_configs::study::SearchKind;
use serde_json::json;

use super::*;

/// A study by a name alone.
fn study(name: &str) -> Identity {
    Identity { name: name.into(), of: json!({ "name": name }) }
}

fn asked(trial: usize) -> Asked {
    let settings = BTreeMap::from([("optim.lr".to_string(), "0.1".to_string())]);
    Asked { trial, by: SearchKind::Random, point: vec![0.1 + 0.2, 1.0 / 3.0], settings }
}

/// Row M16.
#[test]
fn a_trial_without_a_loss_is_never_the_best() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(&dir.path().join("j"), &study("s"), 2).unwrap();
    let losses = [f64::NAN, 3.0, f64::NEG_INFINITY, 2.5, f64::INFINITY, 2.5];
    for (trial, loss) in losses.into_iter().enumerate() {
        journal.ask(asked(trial)).unwrap();
        assert_ne!(journal.best().map(|best| best.asked.trial), Some(trial), "pending");
        journal.tell(Told::new(trial, State::Done, loss, vec![1.0, loss])).unwrap();
        assert!(journal.best().is_none_or(|best| best.loss().unwrap().is_finite()));
    }
    assert_eq!(journal.best().unwrap().asked.trial, 3);
    let states: Vec<State> = journal.trials().iter().map(|t| t.told.as_ref().unwrap().state).collect();
    assert_eq!(states[0], State::Infeasible);
    assert_eq!(states.iter().filter(|state| **state == State::Done).count(), 3);
    // Of a state that says so, too.
    assert_eq!(Told::new(0, State::Infeasible, 1.0, Vec::new()).loss, None);
}

/// Row M16.
#[test]
fn a_journal_is_read_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.jsonl");
    let mut journal = Journal::open(&path, &study("s"), 2).unwrap();
    for trial in 0..3 {
        journal.ask(asked(trial)).unwrap();
        assert_eq!(Journal::open(&path, &study("s"), 2).unwrap(), journal);
    }
    journal.tell(Told::new(1, State::Stopped, 0.1 + 0.7, vec![1.0 / 3.0, 0.7])).unwrap();
    journal.rerun(Rerun { trial: 1, seed: 5, loss: None, cause: None }).unwrap();
    let again = Journal::open(&path, &study("s"), 2).unwrap();
    assert_eq!(again, journal);
    assert_eq!((again.pending(), again.curves().len(), again.reruns(1).len()), (vec![0, 2], 1, 1));
    assert!(matches!(Journal::open(&path, &study("other"), 2), Err(TunerError::OtherStudy { .. })));
    // A last line without its end is one, and stays apart from the next.
    fs::write(&path, again.text.trim_end()).unwrap();
    let mut again = Journal::open(&path, &study("s"), 2).unwrap();
    assert_eq!(again, journal);
    again.tell(Told::new(0, State::Done, 1.0, Vec::new())).unwrap();
    assert_eq!(Journal::open(&path, &study("s"), 2).unwrap(), again);
}

#[test]
fn a_damaged_journal_is_refused_with_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.jsonl");
    let mut journal = Journal::open(&path, &study("s"), 2).unwrap();
    journal.ask(asked(0)).unwrap();
    let good = fs::read_to_string(&path).unwrap();
    let fail =
        |more: &str| format!("{good}{{\"event\":\"fail\",{more},\"cause\":{{\"code\":1,\"why\":\"x\"}}}}\n");
    let tell = |more: &str| format!("{good}{{\"event\":\"tell\",\"turns\":[],{more}}}\n");
    for (text, number, words) in [
        (good[..good.len() - 9].to_string(), 2, "EOF"),
        (good.lines().nth(1).unwrap().to_string(), 1, "not the first"),
        (format!("{good}{good}"), 3, "first line"),
        (good.replace("\"trial\":0", "\"trial\":7"), 2, "expected trial 0"),
        (good.replace("0.30000000000000004", "1.5"), 2, "in [0, 1]"),
        (tell("\"trial\":3,\"state\":\"done\",\"loss\":1.0"), 3, "not pending"),
        (tell("\"trial\":0,\"state\":\"done\",\"loss\":null"), 3, "neither"),
        (tell("\"trial\":0,\"state\":\"infeasible\",\"loss\":1.0"), 3, "infeasible"),
        (
            tell("\"trial\":0,\"state\":\"done\",\"loss\":1.0,\"cause\":{\"code\":1,\"why\":\"x\"}"),
            3,
            "cause",
        ),
        (good.clone() + "{\"event\":\"retry\",\"trial\":0}\n", 3, "failed for good"),
        (good.clone() + "{\"event\":\"retry\",\"trial\":0,\"seed\":2}\n", 3, "failed for good"),
        (fail("\"trial\":4"), 3, "under way"),
        (fail("\"trial\":0,\"seed\":2"), 3, "under way"),
        (String::new(), 1, "missing"),
        (good.replace("\"version\":1", "\"version\":2"), 1, "first line"),
    ] {
        fs::write(&path, &text).unwrap();
        let error = Journal::open(&path, &study("s"), 2).unwrap_err();
        assert_eq!(error.exit_code(), 65);
        let message = error.to_string();
        assert!(message.contains(&format!("line {number} of")) && message.contains(words), "{message}");
    }
    fs::write(&path, [0xff]).unwrap();
    assert_eq!(Journal::open(&path, &study("s"), 2).unwrap_err().exit_code(), 65);
}

const TRIAL: Training = Training { trial: 0, seed: None };

fn cause(why: &str) -> Cause {
    Cause { code: 65, why: why.into() }
}

/// Row M16.
#[test]
fn failures_are_counted_over_kills_until_a_training_is_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.jsonl");
    let mut journal = Journal::open(&path, &study("s"), 2).unwrap();
    journal.ask(asked(0)).unwrap();
    journal.fail(TRIAL, cause("one")).unwrap();
    assert_eq!(journal.pending(), [0], "it may be tried again");
    journal.fail(TRIAL, cause("two")).unwrap();
    let mut read = Journal::open(&path, &study("s"), 2).unwrap();
    assert_eq!(read, journal);
    assert_eq!(read.failures(TRIAL), [cause("one"), cause("two")]);
    read.tell(Told::failed(0, cause("two"))).unwrap();
    assert_eq!((read.pending(), read.trials()[0].cause()), (vec![], Some(&cause("two"))));
    // Of a rerun, by itself.
    read.ask(asked(1)).unwrap();
    read.tell(Told::new(1, State::Done, 2.0, Vec::new())).unwrap();
    let rerun = Training { trial: 1, seed: Some(7) };
    read.fail(rerun, cause("three")).unwrap();
    read.rerun(Rerun { trial: 1, seed: 7, loss: None, cause: Some(cause("three")) }).unwrap();
    read.rerun(Rerun { trial: 1, seed: 8, loss: None, cause: None }).unwrap();
    assert_eq!((read.failures(TRIAL).len(), read.failures(rerun).len()), (2, 1));

    assert_eq!(read.retry().unwrap(), 2);
    assert_eq!(Journal::open(&path, &study("s"), 2).unwrap(), read);
    assert_eq!((read.pending(), read.failures(TRIAL), read.failures(rerun)), (vec![0], vec![], vec![]));
    assert_eq!(read.reruns(1).len(), 1, "the one whose loss was not a number stays");
    assert_eq!(read.best().unwrap().asked.trial, 1);
    assert_eq!(read.retry().unwrap(), 0);
}

/// Row M16.
#[test]
fn a_study_is_hopeless_where_one_trial_after_another_fails_alike() {
    let dir = tempfile::tempdir().unwrap();
    let ended = |ends: &[Option<&str>]| {
        let path = dir.path().join("j");
        let _ = fs::remove_file(&path);
        let mut journal = Journal::open(&path, &study("s"), 2).unwrap();
        for (trial, end) in ends.iter().enumerate() {
            journal.ask(asked(trial)).unwrap();
            let told = match end {
                Some(why) => {
                    // Settings that are refused have no training that failed.
                    if *why != "refused" {
                        journal.fail(Training { trial, seed: None }, cause(why)).unwrap();
                    }
                    Told::failed(trial, cause(why))
                }
                None => Told::new(trial, State::Done, 1.0, Vec::new()),
            };
            journal.tell(told).unwrap();
        }
        journal.ask(asked(ends.len())).unwrap();
        journal
    };
    let last = |ends: &[Option<&str>], first| ended(ends).hopeless(first).map(|trial| trial.asked.trial);
    let (a, b) = (Some("lane 1"), Some("disk"));
    assert_eq!(last(&[a, a], 3), None);
    assert_eq!(last(&[a, Some("lane 2"), a], 3), Some(2));
    assert_eq!(last(&[a, a, a], 0), None);
    assert_eq!(last(&[a, b, a], 3), None);
    assert_eq!(last(&[a, None, a, a], 3), None);
    // The cause may come in the middle of a study.
    assert_eq!(last(&[None, b, a, a, a], 3), Some(4));
    let refused = Some("refused");
    assert_eq!(last(&[refused, refused, refused], 3), None);
    assert_eq!(last(&[a, refused, a, refused, a, refused], 3), Some(4));
    assert_eq!(last(&[], 1), None);
}

#[test]
fn a_journal_without_the_values_of_its_study_is_still_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    fs::write(&path, "{\"event\":\"study\",\"study\":\"s\",\"version\":1}\n").unwrap();
    assert!(Journal::open(&path, &study("s"), 2).unwrap().trials().is_empty());
    let error = Journal::open(&path, &study("other"), 2).unwrap_err().to_string();
    assert!(error.ends_with("is the journal of another study"), "{error}");
    fs::remove_file(&path).unwrap();
    Journal::open(&path, &study("s"), 2).unwrap().ask(asked(0)).unwrap();
    let error = Journal::open(&path, &study("other"), 2).unwrap_err().to_string();
    assert!(error.ends_with(r#"another study: `name` was "s" and is "other""#), "{error}");
}
