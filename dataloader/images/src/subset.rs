//! Images whose labels a semi-supervised learner may read, drawn at random. A draw is a function of a seed and of all labels.

use segue_configs::counted;
use segue_random::{Draws, Purpose};

/// Counter of the stream of held-out images, beyond those of classes.
const HELD_OUT: u64 = 1 << 32;

/// Numbers of `per_class` images of each of `classes` classes, drawn without replacement, in ascending order. The images of a smaller
/// number with the same seed are among those of a larger one.
///
/// # Errors
///
/// A class with fewer images than that, or none.
pub fn labelled(labels: &[u16], classes: usize, per_class: usize, seed: u64) -> Result<Vec<u32>, String> {
    let mut of_class: Vec<Vec<u32>> = vec![Vec::new(); classes];
    for (image, label) in (0u32..).zip(labels) {
        if let Some(images) = of_class.get_mut(usize::from(*label)) {
            images.push(image);
        }
    }
    let mut drawn = Vec::new();
    for (class, mut images) in of_class.into_iter().enumerate() {
        if images.len() < per_class {
            let found = counted(images.len(), "image");
            return Err(format!("class {class} has {found}, {per_class} of each class are asked for"));
        }
        Draws::new(seed, Purpose::LabelledImages, &[class as u64]).shuffle(&mut images);
        drawn.extend(&images[..per_class]);
    }
    drawn.sort();
    Ok(drawn)
}

/// Numbers of `count` of `images` images that are not among the `labelled`, drawn without replacement, in ascending order.
///
/// # Errors
///
/// Fewer images than that.
pub fn held_out(images: usize, labelled: &[u32], count: usize, seed: u64) -> Result<Vec<u32>, String> {
    let mut is_labelled = vec![false; images];
    for image in labelled {
        if let Some(found) = is_labelled.get_mut(*image as usize) {
            *found = true;
        }
    }
    let mut others: Vec<u32> =
        (0u32..).zip(is_labelled).filter(|(_, is_labelled)| !is_labelled).map(|(image, _)| image).collect();
    if others.len() < count {
        let found = counted(others.len(), "image");
        return Err(format!("{found} without a label that is used, {count} to hold out are asked for"));
    }
    Draws::new(seed, Purpose::LabelledImages, &[HELD_OUT]).shuffle(&mut others);
    others.truncate(count);
    others.sort();
    Ok(others)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_class_gives_its_number_and_nothing_is_drawn_twice(
            labels in proptest::collection::vec(0u16..4, 0..60), per_class in 0usize..8, seed: u64, count in 0usize..40,
        ) {
            let sizes = [0u16, 1, 2, 3].map(|class| labels.iter().filter(|label| **label == class).count());
            let drawn = labelled(&labels, 4, per_class, seed);
            prop_assert_eq!(drawn.is_ok(), sizes.iter().all(|size| *size >= per_class));
            let Ok(drawn) = drawn else { return Ok(()) };
            prop_assert!(drawn.is_sorted_by(|one, next| one < next));
            for class in 0..4 {
                let found = drawn.iter().filter(|image| labels[**image as usize] == class).count();
                prop_assert_eq!(found, per_class);
            }
            if let Some(fewer) = per_class.checked_sub(1) {
                let fewer = labelled(&labels, 4, fewer, seed).unwrap();
                prop_assert!(fewer.iter().all(|image| drawn.contains(image)));
            }
            let rest = held_out(labels.len(), &drawn, count, seed);
            prop_assert_eq!(rest.is_ok(), labels.len() - drawn.len() >= count);
            let Ok(rest) = rest else { return Ok(()) };
            prop_assert!(rest.len() == count && rest.is_sorted_by(|one, next| one < next));
            prop_assert!(rest.iter().all(|image| (*image as usize) < labels.len() && !drawn.contains(image)));
        }
    }

    #[test]
    fn classes_with_too_few_images_are_named() {
        let refusal = |per_class| labelled(&[0, 0, 2, 2, 0], 3, per_class, 1).unwrap_err();
        assert_eq!(refusal(1).to_string(), "class 1 has 0 images, 1 of each class are asked for");
        assert_eq!(refusal(4).to_string(), "class 0 has 3 images, 4 of each class are asked for");
        let error = held_out(5, &[0, 3], 4, 1).unwrap_err().to_string();
        assert_eq!(error, "3 images without a label that is used, 4 to hold out are asked for");
    }

    /// Of 4000 seeds each of 5 images is drawn with probability 2 / 5, within five standard deviations of the binomial.
    #[test]
    fn every_image_of_a_class_is_as_likely() {
        let mut counts = [0i32; 5];
        let mut others = [0i32; 5];
        for seed in 0..4000 {
            let drawn = labelled(&[0; 5], 1, 2, seed).unwrap();
            drawn.iter().for_each(|image| counts[*image as usize] += 1);
            held_out(5, &[], 2, seed).unwrap().iter().for_each(|image| others[*image as usize] += 1);
        }
        let deviation = (4000.0 * 0.4 * 0.6_f64).sqrt();
        let near = |count: &i32| f64::from((count - 1600).abs()) < 5.0 * deviation;
        assert!(counts.iter().chain(&others).all(near), "{counts:?} {others:?}");
    }
}
