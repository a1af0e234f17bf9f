use segue_measure::translation::{ReferenceCount, TranslationMetric};

use super::*;

/// The signature of a run's BLEU, or why its keys are refused.
fn signature(keys: &[&str]) -> Result<String, String> {
    let keys: Vec<String> = keys.iter().map(|key| key.to_string()).collect();
    let loaded = segue_testing::models::<TranslationConfig>().load(None, &keys);
    let config = loaded.map_err(|error| error.to_string())?.config;
    Ok(config.own.get::<TranslationEvalConfig>().bleu().signature(ReferenceCount::Fixed(1)))
}

#[test]
fn a_run_scores_as_its_keys_say() {
    let signed = |settings: &str| Ok(format!("nrefs:1|{settings}|version:2.6.0"));
    assert_eq!(signature(&[]), signed("case:mixed|eff:no|tok:13a|smooth:exp"));
    let keys = ["eval.translated=9", "eval.tokenize=none", "eval.compounds=true", "eval.lower_case=true"];
    assert_eq!(signature(&keys), signed("case:lc|eff:no|tok:none+compounds|smooth:exp"));
    let keys = ["eval.translated=9", "eval.tokenize=intl", "eval.smooth=add-k"];
    assert_eq!(signature(&keys), signed("case:mixed|eff:no|tok:intl|smooth:add-k[1.00]"));
    let keys = ["eval.translated=9", "eval.smooth=floor", "eval.smooth_value=0.5"];
    assert_eq!(signature(&keys), signed("case:mixed|eff:no|tok:13a|smooth:floor[0.50]"));
}

#[test]
fn keys_of_scores_without_effect_are_refused() {
    for (keys, needed) in [
        (&["eval.tokenize=intl"][..], "eval.translated above 0"),
        (&["eval.translated=9", "eval.smooth_value=0.5"], "eval.smooth of floor or add-k"),
        (
            &["eval.translated=9", "eval.smooth=none", "eval.smooth_value=0.5"],
            "eval.smooth of floor or add-k",
        ),
    ] {
        let refused = signature(keys).unwrap_err();
        assert!(refused.contains(needed), "{refused}");
    }
}
