//! Adam's means on the way to here and back.

use segue_configs::OptimConfig;
use segue_engine::optim::{Adam, Optimizer};

use super::*;

/// A checkpoint in which every trained variable has both means, with a head and a count of steps.
fn trained(untie_r: bool, suffixes: [&str; 2], powers: bool) -> TempDir {
    let mut owners = shapes(untie_r, 11, 3);
    owners.extend(OUTPUTS.iter().map(|(name, shape)| (name.to_string(), shape.to_vec())));
    owners.push(("model/classification_cola/logit/kernel".into(), vec![6, 2]));
    owners.push(("model/classification_cola/logit/bias".into(), vec![2]));
    let slots = owners
        .iter()
        .flat_map(|(name, shape)| suffixes.map(|suffix| (format!("{name}{suffix}"), shape.clone())));
    let slots: Vec<_> = slots.collect();
    let mut all = numbered([owners, slots].concat());
    let step = 4_000_000_017i64.to_le_bytes().to_vec();
    let scalar =
        |name: &str, dtype, bytes| BundleTensor { name: name.into(), dtype, shape: Vec::new(), bytes };
    all.push(scalar("global_step", ElementType::I64, step));
    if powers {
        all.push(scalar("beta1_power", ElementType::F32, 0.1f32.to_le_bytes().to_vec()));
        all.push(scalar("beta2_power", ElementType::F32, 0.998_001f32.to_le_bytes().to_vec()));
    }
    bundle(untie_r, 3, all)
}

fn with_optimizer(target: Target, source: &Path) -> (TempDir, PathBuf, Conversion) {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("made");
    let options = ConvertOptions { optimizer: true, ..options(target) };
    let made = convert(source, &folder, &options, |_, _| {}).unwrap_or_else(|e| panic!("{e}"));
    (dir, folder, made)
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect()
}

#[test]
fn means_and_steps_change_no_bit_on_the_way_there_and_back() {
    for (untie_r, suffixes, powers) in
        [(true, ["/adam_m", "/adam_v"], false), (false, ["/Adam", "/Adam_1"], true)]
    {
        let source = trained(untie_r, suffixes, powers);
        let (_first, folder, made) = with_optimizer(Target::HuggingFace, source.path());
        assert!(!made.report.counts.contains_key("skipped"), "{:?}", made.report.counts);
        assert_eq!(json_of(&folder.join("conversion.json"))["optimizer"]["step"], json!(4_000_000_017i64));
        // Through a second folder, as if it had been copied.
        let (_second, again, _) = with_optimizer(Target::HuggingFace, &folder);
        let bytes = |folder: &Path| fs::read(folder.join("optimizer.safetensors")).unwrap();
        assert!(bytes(&folder) == bytes(&again));
        let (_third, back, _) = with_optimizer(Target::TensorFlow, &again);
        assert_eq!(variables(&back), variables(source.path()));
        for name in ["xlnet_model.ckpt.index", "xlnet_model.ckpt.data-00000-of-00001"] {
            assert!(fs::read(back.join(name)).unwrap() == fs::read(source.path().join(name)).unwrap());
        }
    }
}

#[test]
fn means_are_turned_and_cut_like_their_variables_and_named_as_the_optimizer_here_names_them() {
    let source = trained(true, ["/adam_m", "/adam_v"], false);
    let (_dir, folder, made) = with_optimizer(Target::HuggingFace, source.path());
    let stored = read_tensors(&folder.join("optimizer.safetensors")).unwrap().tensors;
    let theirs = variables(source.path());
    let [kernel, stack] = ["layer_1/ff/layer_1/kernel/adam_v", "r_w_bias/adam_m"]
        .map(|name| floats(&theirs[&format!("model/transformer/{name}")].1));
    let turned = &stored["exp_avg_sq.transformer.layer.1.ff.layer_1.weight"];
    assert_eq!(turned.size(), [5, 6]);
    for (row, column) in [(0, 0), (4, 1), (2, 5)] {
        assert_eq!(turned.double_value(&[row, column]) as f32, kernel[(column * 5 + row) as usize]);
    }
    let cut = &stored["exp_avg.transformer.layer.2.rel_attn.r_w_bias"];
    assert_eq!(Vec::<f32>::try_from(cut.reshape([-1])).unwrap(), stack[12..]);
    let config = made.config.get::<XlnetConfig>().unwrap();
    let parameters = Parameters::initialise(segue_language::specs(&config.clone().into()), 1, Kind::Float);
    for (table, tensors) in Adam::new(&OptimConfig::default(), &parameters).tables() {
        for (spec, tensor) in parameters.specs().iter().zip(tensors) {
            let name = format!("{table}.{}", spec.name);
            assert_eq!(stored[&name].size(), tensor.size(), "{name}");
        }
    }
    let listing = inspect(source.path()).unwrap();
    let marked = listing.variables.iter().filter(|variable| variable.optimizer).count();
    // All but the variables themselves: two means of each, and the step.
    assert_eq!(marked, (listing.variables.len() - 1) / 3 * 2 + 1);
}

#[test]
fn without_being_asked_for_means_stay_behind_with_a_reason() {
    let source = trained(true, ["/adam_m", "/adam_v"], false);
    let (_dir, folder, made) = to(Target::HuggingFace, source.path()).unwrap();
    assert!(!folder.join("optimizer.safetensors").exists() && made.report.optimizer.is_none());
    let of_adam = |v: &&segue_convert::VariableFate| v.name.contains("/adam_");
    let reasons = made.report.variables.iter().filter(of_adam).map(|v| v.reason.clone().unwrap());
    assert!(reasons.into_iter().all(|reason| reason.contains("--optimizer")));
    let none = tensorflow(true, &OUTPUTS);
    let path = none.path().join("plain");
    let (_dir, plain, _) = to(Target::HuggingFace, none.path()).unwrap();
    let options = ConvertOptions { optimizer: true, ..options(Target::HuggingFace) };
    let error = convert(&plain, &path, &options, |_, _| {}).err().unwrap();
    assert!(error.exit_code() == 78 && error.to_string().contains("--optimizer"), "{error}");
}
