//! Numbers of public packages: outputs, losses and gradients, and the parameter counts of T13.

use segue_language::specs;
use segue_tests::reference_models;
use segue_transfo_xl::TransfoXlConfig;

#[test]
fn reference_numbers_hold_in_every_group() {
    for folder in reference_models("transfo-xl", "transfoxl_tiny") {
        let groups =
            segue_families::parity(&folder, &folder.join("cases.safetensors"), segue_kernels::Compute::CPU)
                .unwrap();
        assert_eq!(groups.len(), 3 * 5);
        for group in groups {
            println!("{:24} {:3} tensors  {:.2e}", group.name, group.tensors, group.error);
            assert!(group.holds(), "{group:?}");
        }
    }
}

fn count(config: TransfoXlConfig) -> usize {
    specs(&config.into()).iter().map(|spec| spec.numel()).sum()
}

/// Counts of docs/book/src/contributing/expected-values.md, none of which needs a byte of weights.
/// Row T13.
#[test]
fn parameter_counts_are_those_of_the_references() {
    let characters = |vocab_size, n_layer, d_model, d_head, d_inner| TransfoXlConfig {
        vocab_size,
        n_layer,
        d_model,
        n_head: 8,
        d_head,
        d_inner,
        untie_r: false,
        ..Default::default()
    };
    assert_eq!(count(characters(204, 12, 512, 64, 2048)), 41_055_436);
    assert_eq!(count(characters(204, 24, 1024, 128, 3072)), 277_231_820);
    assert_eq!(count(characters(27, 24, 1024, 128, 3072)), 277_050_395);
    let base = TransfoXlConfig {
        vocab_size: 267_735,
        cutoffs: vec![20_000, 40_000, 200_000],
        n_layer: 16,
        d_model: 410,
        n_head: 10,
        d_head: 41,
        d_inner: 2100,
        untie_r: false,
        ..Default::default()
    };
    assert_eq!(count(base.clone()), 151_107_538);
    assert_eq!(count(TransfoXlConfig { untie_r: true, ..base.clone() }), 151_119_838);
    let large = |n_layer| TransfoXlConfig {
        n_layer,
        d_model: 1024,
        n_head: 16,
        d_head: 64,
        d_inner: 4096,
        div_val: 4,
        ..base.clone()
    };
    assert_eq!(count(large(18)), 285_170_506);
    assert_eq!(count(large(16)), 257_889_098);
    let billion = |n_layer, d_model, n_head, d_head, d_inner| TransfoXlConfig {
        vocab_size: 793_470,
        cutoffs: vec![60_000, 100_000, 640_000],
        n_layer,
        d_model,
        n_head,
        d_head,
        d_inner,
        div_val: 4,
        proj_share_all_but_first: false,
        proj_same_dim: false,
        ..Default::default()
    };
    assert_eq!(count(billion(20, 1024, 8, 128, 6144)), 466_962_273);
    assert_eq!(count(billion(24, 1280, 16, 80, 8192)), 838_078_041);
}
