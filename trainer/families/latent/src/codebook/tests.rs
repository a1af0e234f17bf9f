use super::*;

/// A codebook of one latent with two vectors of two numbers, (0, 0) and (4, 4).
fn codebook() -> Codebook {
    let mut codebook = Codebook::new([1, 2, 2], 0.75, 3);
    let vectors = Tensor::from_slice(&[0f32, 0.0, 4.0, 4.0]).view([1, 2, 2]);
    codebook.vectors.copy_(&vectors);
    codebook.sums.copy_(&vectors);
    codebook
}

fn states(values: &[f32]) -> Tensor {
    Tensor::from_slice(values).view([-1, 1, 2])
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    Vec::try_from(tensor.to_kind(Kind::Double).flatten(0, -1)).unwrap()
}

/// Row V18.
#[test]
fn the_nearest_vector_stands_for_what_is_told() {
    let codebook = codebook();
    let codes = codebook.nearest(&states(&[1.0, 1.0, 3.0, 2.0, 9.0, -4.0]));
    assert_eq!(numbers(&codes), [0.0, 1.0, 1.0]);
    assert_eq!(numbers(&codebook.vectors(&codes)), [0.0, 0.0, 4.0, 4.0, 4.0, 4.0]);
}

/// Row V18: vectors are means of what they were the nearest of, a quarter of which is new.
#[test]
fn vectors_follow_what_they_are_the_nearest_of() {
    let mut codebook = codebook();
    let states = states(&[3.0, 5.0, 5.0, 5.0, 6.0, 2.0]);
    let codes = codebook.nearest(&states);
    let uses: Vec<f64> = codebook.uses(&states, &codes).iter().flat_map(numbers).collect();
    assert_eq!(uses, [0.0, 3.0, 0.0, 0.0, 14.0, 12.0]);
    codebook.follow(&uses);
    assert_eq!(numbers(&codebook.counts), [0.75, 1.5]);
    // (0.75 · 4 + 0.25 · 14) / 1.5 and (0.75 · 4 + 0.25 · 12) / 1.5; what nothing is near to stays.
    let vectors = numbers(&codebook.vectors);
    assert!((vectors[2] - 6.5 / 1.5).abs() < 1e-6 && (vectors[3] - 4.0).abs() < 1e-6, "{vectors:?}");
    assert_eq!(vectors[..2], [0.0, 0.0]);
    // However long nothing comes near.
    (0..2000).for_each(|_| codebook.follow(&uses));
    let vectors = numbers(&codebook.vectors);
    assert_eq!(vectors[..2], [0.0, 0.0]);
    assert!((vectors[2] - 14.0 / 3.0).abs() < 1e-5, "{vectors:?}");
}

/// Vectors begin with the mean and the deviations of what they are to be near.
#[test]
fn vectors_begin_among_what_they_are_to_be_near() {
    let mut codebook = Codebook::new([1, 400, 2], 0.9, 5);
    let states = states(&[3.0, 5.0, 5.0, 5.0, 4.0, 5.0, 4.0, 5.0]);
    let sums: Vec<f64> = Codebook::moments(&states).iter().flat_map(numbers).collect();
    codebook.begin(&sums, 4.0);
    let mean = numbers(&codebook.vectors.mean_dim(1, false, Kind::Double));
    assert!((mean[0] - 4.0).abs() < 0.1 && (mean[1] - 5.0).abs() < 1e-6, "{mean:?}");
    let deviation = numbers(&codebook.vectors.std_dim(1, true, false));
    // A truncated normal distribution has less than the variance of the whole.
    assert!((deviation[0] - 0.5f64.sqrt()).abs() < 0.12 && deviation[1] < 1e-6, "{deviation:?}");
}
