//! What the `[model]` section of latent-variable models refuses.

use std::any::Any;

use segue_configs::{
    Config, ConfigError, DeviceKind, Idle, ModelSection, OwnSections, SectionType, out_of_range, range,
};

use super::keys::{DataConfig, EstimatorKind, LatentConfig, LatentEvalConfig, LatentKind, ObjectiveConfig};

impl ModelSection for LatentConfig {
    const TYPE: &'static str = "latent";
    const TITLE: &'static str = "Latent variables";
    const READS: &'static [&'static str] = &["data", "objective", "eval.samples", "eval.together"];
    const SECTIONS: &'static [SectionType] = &[
        SectionType::of::<DataConfig>(),
        SectionType::of::<ObjectiveConfig>(),
        SectionType::of::<LatentEvalConfig>(),
    ];
    const NETWORKS: &'static [&'static str] = &["decoder", "encoder"];
    const TRAINS_ON_CARDS: bool = false;

    fn family() -> &'static (dyn Any + Send + Sync) {
        &super::FAMILY
    }

    fn check(&self) -> Result<(), ConfigError> {
        range::check("model", self)
    }

    fn idle(&self, _: &OwnSections) -> Vec<Idle> {
        let why = "latents are normal: needs model.latents of categorical";
        let keys = ["latent_values", "d_latent"];
        let of_values =
            Idle::all(self.latents == LatentKind::Gaussian, "model", &keys, &["model.latents"], why);
        let drops = self.dropout_input + self.dropout_state + self.dropout_output > 0.0;
        let by = ["model.dropout_input", "model.dropout_state", "model.dropout_output"];
        let of_masks = Idle::all(!drops, "model", &["shared_masks"], &by, "needs a rate of dropout above 0");
        Idle::without_layers(Self::NETWORKS).into_iter().chain(of_values).chain(of_masks).collect()
    }

    fn check_sections(&self, sections: &OwnSections) -> Result<(), ConfigError> {
        let own = sections.get::<ObjectiveConfig>();
        let refused = |key, value: &str, why: &str| Err(out_of_range(key, value, why));
        if self.latents == LatentKind::Categorical && own.estimator().needs_paths() {
            let why = "there is no path through categorical latents\nhint: objective.estimator=vimco, or reinforce with one sample";
            return refused("objective.estimator", "that of normal latents", why);
        }
        let counts = own.counts();
        if own.estimator == EstimatorKind::Vimco && counts.bound.max(counts.information) < 2 {
            let why = "a sample is held against the mean of others\nhint: raise objective.samples, or objective.estimator=reinforce";
            return refused("objective.estimator", "vimco", why);
        }
        if own.analytic && (counts.drawn() > 1 || own.estimator == EstimatorKind::DoublyReparametrized) {
            let why = "the closed form is that of one sample\nhint: objective.samples=1 with objective.estimator=reparametrized or reinforce";
            return refused("objective.analytic", "true", why);
        }
        Ok(())
    }

    fn run_defaults(config: &mut Config) {
        config.train.device = DeviceKind::Cpu;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(keys: &[&str]) -> String {
        let keys: Vec<String> =
            ["model.model_type=latent"].iter().chain(keys).map(|key| key.to_string()).collect();
        let loaded = segue_testing::models::<LatentConfig>().load(None, &keys);
        loaded.err().map_or(String::new(), |error| error.to_string())
    }

    #[test]
    fn what_cannot_be_trained_is_refused_by_key() {
        assert_eq!(refused(&[]), "");
        let categorical = "model.latents=categorical";
        assert_eq!(refused(&[categorical, "objective.estimator=vimco"]), "");
        for (keys, why) in [
            (&[categorical][..], "no path through categorical latents"),
            (&["objective.estimator=vimco", "objective.samples=1"], "held against the mean of others"),
            (&["objective.analytic=true"], "closed form is that of one sample"),
            (&["model.latent_values=4"], "needs model.latents of categorical"),
            (&["model.shared_masks=false"], "needs a rate of dropout above 0"),
            (&["objective.information=0.3"], "needs objective.kind of kl or renyi"),
            (&["objective.samples=0"], "`objective.samples` = 0"),
        ] {
            let found = refused(keys);
            assert!(found.contains(why), "{keys:?}: {found}");
        }
    }
}
