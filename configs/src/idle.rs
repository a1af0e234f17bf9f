//! Keys that nothing looks at. A recipe or an override that gives one is refused, so that nobody waits for an effect that cannot come.
//!
//! Two things are no reason: a key that is given its default, and one whose use a later setting has taken away. So a recipe with a mogrifier
//! and the rank of its gates runs without it where the command line, or the cell of a sweep, says `model.mogrifier_rounds=0` and no more. What
//! a checkpoint holds is never refused: it was taken once, and its bytes are what they are. A run goes on from it without such a key.

use crate::Config;

/// A key without effect in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idle {
    /// Its dotted name.
    pub key: String,
    /// Keys that can give it an effect, and take it away.
    pub by: Vec<String>,
    /// What it lacks.
    pub why: &'static str,
}

impl Idle {
    /// What a key that counts evaluations lacks where a run makes none on its way.
    pub const COUNTS_EVALUATIONS: &'static str =
        "counts evaluations; needs eval.every of at least 1\nhint: add eval.every=STEPS";

    /// The key `key` of a section, whose effect hangs on the keys `by`. `why` says what it lacks.
    pub fn new(key: &str, by: &[&str], why: &'static str) -> Self {
        Self { key: key.into(), by: by.iter().map(|key| key.to_string()).collect(), why }
    }

    /// Rates that fall from layer to layer, of a model of these `networks` whose parameters are of no layer, or of one.
    pub fn without_layers(networks: &[&str]) -> Vec<Self> {
        let why = "this model has no layers that could learn at different rates";
        let sections = networks.iter().map(|network| format!("optim.{network}")).chain(["optim".into()]);
        let of = |section: String| {
            Self::all(true, &section, &["layer_decay", "layer_decay_of"], &["model.model_type"], why)
        };
        sections.flat_map(of).collect()
    }

    /// The same of each of several keys of a section, where `idle` holds.
    pub fn all(idle: bool, section: &str, keys: &[&str], by: &[&str], why: &'static str) -> Vec<Self> {
        let keys = keys.iter().filter(|_| idle);
        keys.map(|key| Self::new(&format!("{section}.{key}"), by, why)).collect()
    }
}

/// A key of a section that a network does not look at, the keys that would change that, and what it lacks. A key without a dot is of the
/// section itself.
pub(crate) type Overlooked = (&'static str, &'static [&'static str], &'static str);

impl Config {
    /// Keys that nothing looks at as things are, whether they are given or not.
    pub(crate) fn idle(&self) -> Vec<Idle> {
        let of_sections = [
            self.idle_of_families(),
            self.idle_of_own(),
            self.idle_of_networks("optim", Self::overlooked_of_optim),
            self.idle_of_networks("schedule", Self::overlooked_of_schedule),
            self.idle_loss_scale(),
            self.idle_average(),
            self.idle_task(),
        ];
        let mut all: Vec<Idle> =
            of_sections.into_iter().flatten().chain(self.model.idle(&self.own)).collect();
        for steps in all.iter_mut().filter(|idle| idle.key == "schedule.steps") {
            steps.by.extend(self.follows_by());
        }
        all
    }

    /// Of a section that networks may have values of their own for: what is said of all has an effect where one of them looks at it.
    fn idle_of_networks(&self, section: &str, overlooked: fn(&Self) -> Vec<Overlooked>) -> Vec<Idle> {
        let full = |section: &str, key: &str| match key.contains('.') {
            true => key.to_string(),
            false => format!("{section}.{key}"),
        };
        let networks: Vec<(String, Vec<Overlooked>)> = self
            .networks_of(section)
            .map(|name| (format!("{section}.{name}"), overlooked(&self.of_network(name))))
            .collect();
        let by_none = |key: &str| networks.iter().all(|(_, of)| of.iter().any(|(other, ..)| *other == key));
        let of_all = overlooked(self).into_iter().filter(|(key, ..)| by_none(key)).map(|(key, by, why)| {
            let sections = networks.iter().map(|(own, _)| own.as_str()).chain([section]);
            let by = sections.flat_map(|section| by.iter().map(move |by| full(section, by))).collect();
            Idle { key: full(section, key), by, why }
        });
        let own = networks.iter().flat_map(|(own, of)| {
            of.iter().map(move |(key, by, why)| {
                let by = by.iter().flat_map(|by| [full(own, by), full(section, by)]).collect();
                Idle { key: full(own, key), by, why }
            })
        });
        of_all.chain(own).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::MODELS;

    fn load(recipe: &str, overrides: &[&str]) -> Result<(), String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.toml");
        std::fs::write(&path, recipe).unwrap();
        let overrides: Vec<String> = overrides.iter().map(|key| key.to_string()).collect();
        MODELS.load(Some(&path), &overrides).map(|_| ()).map_err(|e| e.to_string())
    }

    #[test]
    fn keys_without_effect_are_refused_by_name() {
        for (keys, message) in [
            (&["noise.fall=constant"][..], "`noise.fall` = constant is invalid: needs noise.scale above 0"),
            (
                &["model.model_type=paired", "noise.scale=0.1"],
                "`noise.scale` = 0.1 is invalid: a run of this model",
            ),
            (
                &["optim.kind=sgd", "optim.beta1=0.5"],
                "`optim.beta1` = 0.5 is invalid: the rule of optim.kind does not look at it",
            ),
            (&["optim.kind=sgd", "optim.beta2=0.99"], "`optim.beta2` = 0.99"),
            (&["optim.kind=sgd", "optim.eps=1e-6"], "`optim.eps` = "),
            (&["optim.kind=sgd", "optim.bias_correction=false"], "`optim.bias_correction` = false"),
            (&["optim.kind=rmsprop", "optim.beta1=0.5"], "`optim.beta1` = 0.5"),
            (&["optim.trust_limit=10"], "`optim.trust_limit` = 10"),
            (&["optim.kind=radam", "optim.no_trust=[]"], "`optim.no_trust` = []"),
            (&["optim.layer_decay_of=gradient"], "needs optim.layer_decay below 1"),
            (
                &["average.trigger=since_best"],
                "`average.trigger` = since_best is invalid: needs average.patience of at least 1",
            ),
            (
                &["average.repeat_every=5"],
                "`average.repeat_every` = 5 is invalid: needs average.start or average.patience of at least 1",
            ),
            (
                &["average.every=5"],
                "`average.every` = 5 is invalid: needs average.start or average.patience of at least 1",
            ),
            (
                &["average.patience=3"],
                "`average.patience` = 3 is invalid: counts evaluations; needs eval.every of at least 1",
            ),
            (&["eval.patience=3"], "`eval.patience` = 3 is invalid: counts evaluations"),
            (
                &["eval.every=5", "eval.min_delta=0.1"],
                "`eval.min_delta` = 0.1 is invalid: needs eval.patience",
            ),
            (
                &["average.kind=two_tailed", "eval.every=5", "average.variant=core", "average.stagnation=2"],
                "`average.stagnation` = 2 is invalid: needs average.variant = \"extended\"",
            ),
            (
                &[
                    "average.kind=two_tailed",
                    "eval.every=5",
                    "average.variant=monotone",
                    "average.stagnation=2",
                ],
                "`average.stagnation` = 2",
            ),
            (
                &["loss_scale.init=1024"],
                "`loss_scale.init` = 1024.0 is invalid: needs train.precision = \"fp16\" or loss_scale.kind = \"dynamic\"",
            ),
            (
                &["train.precision=fp16", "loss_scale.kind=none", "loss_scale.interval=5"],
                "`loss_scale.interval` = 5",
            ),
            (
                &["schedule.kind=constant", "schedule.decay_from=start"],
                "`schedule.decay_from` = start is invalid: needs schedule.kind = \"cosine\" or \"linear\"",
            ),
            (&["schedule.kind=inverse_sqrt", "schedule.steps=10"], "`schedule.steps` = 10 is invalid"),
            (
                &["schedule.end=last_step"],
                "`schedule.end` = last_step is invalid: needs schedule.kind = \"linear\"",
            ),
            (
                &["schedule.drop_after=[5]"],
                "`schedule.drop_after` = [5] is invalid: needs schedule.kind = \"stepped\"",
            ),
            (
                &["schedule.kind=linear", "schedule.drop_factor=0.5"],
                "`schedule.drop_factor` = 0.5 is invalid",
            ),
            (&["schedule.cycle=5"], "`schedule.cycle` = 5 is invalid: needs schedule.kind = \"cyclical\""),
            (&["schedule.kind=stepped"], "`schedule.drop_after` = [] is invalid"),
            (
                &["schedule.kind=stepped", "schedule.drop_after=[5,5]"],
                "`schedule.drop_after` = [5, 5] is invalid: steps must rise",
            ),
            (
                &["schedule.base_lanes=4"],
                "`schedule.base_lanes` = 4 is invalid: needs schedule.scale = \"linear\" or \"sqrt\"",
            ),
            (&["optim.no_decay=[]"], "`optim.no_decay` = [] is invalid: needs optim.weight_decay above 0"),
        ] {
            let found = load("", keys).unwrap_err();
            assert!(found.contains(message), "{keys:?}: {found}");
        }
    }

    #[test]
    fn keys_with_an_effect_or_at_their_defaults_are_taken() {
        for keys in [
            &[
                "optim.kind=rmsprop",
                "optim.beta1=0",
                "optim.beta2=0.99",
                "optim.eps=1e-6",
                "optim.bias_correction=false",
            ][..],
            &["optim.kind=lamb", "optim.trust_limit=10", "optim.no_trust=[]", "optim.beta1=0.5"],
            &["optim.layer_decay=0.5", "optim.layer_decay_of=gradient"],
            &["average.trigger=since_best", "average.patience=3", "eval.every=5"],
            &["optim.kind=sgd", "optim.beta1=0.9", "optim.eps=1e-8"],
            &["optim.weight_decay=0.1", "optim.no_decay=[]"],
            &["average.kind=two_tailed", "eval.every=5", "average.stagnation=2"],
            &["train.precision=fp16", "loss_scale.init=1024"],
            &["loss_scale.kind=dynamic", "loss_scale.interval=5"],
            &[
                "schedule.kind=linear",
                "schedule.decay_from=start",
                "schedule.hold=0.3",
                "schedule.end=last_step",
                "schedule.steps=10",
            ],
            &["schedule.scale=sqrt", "schedule.base_lanes=4"],
            // Noise falls as long.
            &["schedule.kind=constant", "schedule.steps=10", "noise.scale=0.2"],
            &["noise.fall=linear", "average.trigger=non_monotonic"],
            &["model.model_type=paired", "noise.scale=0"],
        ] {
            load("", keys).unwrap_or_else(|e| panic!("{keys:?}: {e}"));
        }
    }

    /// What is set later wins, and may leave a key of before without effect; in one file, or before it, nothing has taken it away.
    #[test]
    fn a_later_setting_may_take_the_use_of_a_key_away() {
        let with = "[optim]\nbeta1 = 0.5\n";
        load(with, &["optim.kind=sgd"]).unwrap();
        load("", &["optim.beta1=0.5", "optim.kind=sgd"]).unwrap();
        assert!(load("[optim]\nkind = \"sgd\"\nbeta1 = 0.5\n", &[]).unwrap_err().contains("optim.beta1"));
        assert!(load("[optim]\nkind = \"sgd\"\n", &["optim.beta1=0.5"]).unwrap_err().contains("optim.beta1"));
        assert!(load("", &["optim.kind=sgd", "optim.beta1=0.5"]).is_err());
        load("[noise]\nfall = \"constant\"\nscale = 0.1\n", &["noise.scale=0"]).unwrap();
        load("[noise]\nscale = 0.1\n", &["model.model_type=paired"]).unwrap();
        assert!(
            load("[model]\nmodel_type = \"paired\"\n[noise]\nscale = 0.1\n", &[])
                .unwrap_err()
                .contains("noise.scale")
        );
        load("[schedule]\nsteps = 10\n", &["schedule.kind=constant"]).unwrap();
        let noisy = "[schedule]\nkind = \"constant\"\nsteps = 10\n[noise]\nscale = 0.2\n";
        load(noisy, &["noise.scale=0"]).unwrap();
        load("[loss_scale]\ninit = 1024\n[train]\nprecision = \"fp16\"\n", &["train.precision=f32"]).unwrap();
    }

    #[test]
    fn of_several_networks_each_rule_counts() {
        let paired = |keys: &[&str]| load("[model]\nmodel_type = \"paired\"\n", keys);
        paired(&["optim.kind=sgd", "optim.beta1=0.5", "optim.writer.kind=adam"]).unwrap();
        paired(&["optim.writer.beta1=0.5", "optim.writer.kind=sgd"]).unwrap();
        let message = paired(&["optim.kind=sgd", "optim.writer.beta1=0.5"]).unwrap_err();
        assert!(message.contains("`optim.writer.beta1` = 0.5"), "{message}");
        let message = paired(&["optim.writer.kind=sgd", "optim.writer.beta2=0.5"]).unwrap_err();
        assert!(message.contains("`optim.writer.beta2` = 0.5"), "{message}");
        assert!(paired(&["optim.kind=sgd", "optim.writer.kind=sgd", "optim.beta1=0.5"]).is_err());
        paired(&["schedule.kind=constant", "schedule.steps=9", "schedule.writer.kind=linear"]).unwrap();
        paired(&["schedule.writer.steps=9", "schedule.writer.kind=constant"]).unwrap();
        let message = paired(&["schedule.kind=constant", "schedule.writer.steps=9"]).unwrap_err();
        assert!(message.contains("`schedule.writer.steps` = 9"), "{message}");
    }

    /// A run of before there was this rule goes on.
    #[test]
    fn what_a_checkpoint_holds_is_not_refused() {
        let mut stored = MODELS.load(None, &["optim.kind=sgd".into()]).unwrap().config.to_json();
        stored["optim"]["beta1"] = 0.5.into();
        stored["noise"]["fall"] = "constant".into();
        assert_eq!(MODELS.from_json(&stored, "the checkpoint").unwrap().to_json(), stored);
        // Nor is a key that another family reads and this one once had.
        let mut stored = MODELS.load(None, &["model.model_type=paired".into()]).unwrap().config.to_json();
        let own = stored.clone();
        stored["noise"] = json!({ "scale": 0.5, "fall": "linear" });
        let (config, taken) = MODELS.from_run(&stored, "the checkpoint").unwrap();
        assert_eq!((config.to_json(), taken), (own, vec![("noise.scale".into(), json!(0.5))]));
    }
}
