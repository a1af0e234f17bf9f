use std::fmt;

use segue_configs::counted;

/// Size of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// 1 for grey levels, 3 for red, green and blue.
    pub channels: usize,
    /// Rows.
    pub height: usize,
    /// Pixels of a row.
    pub width: usize,
}

impl Shape {
    /// Bytes of an image; `None` where there are more than a number holds.
    pub fn bytes(self) -> Option<usize> {
        self.channels.checked_mul(self.height)?.checked_mul(self.width)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let channels = counted(self.channels, "channel");
        write!(f, "{channels} of {} x {} pixels (rows x columns)", self.height, self.width)
    }
}

/// Classes of images.
#[derive(Clone, Debug, PartialEq)]
pub struct Labels {
    /// Class of each image, from 0: `[images]`.
    pub of_images: Vec<u16>,
    /// Number of classes. Not every one needs to have images.
    pub classes: usize,
    /// Names of the classes, in their order, where the source has them: `[classes]`.
    pub names: Option<Vec<String>>,
}

/// Images of one size in memory, as torchvision's data sets hold them before they are scaled, but with channels first.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageSet {
    source: &'static str,
    shape: Shape,
    pixels: Vec<u8>,
    labels: Option<Labels>,
    files: Option<Vec<String>>,
    image_bytes: usize,
}

impl ImageSet {
    /// A set of images. `pixels: [images, channels, height, width]`. `source` names where they come from, for messages.
    ///
    /// # Errors
    ///
    /// No images, pixels that are not whole images, more or fewer labels than images, labels beyond the classes, or names of more
    /// or fewer classes.
    pub fn new(
        source: &'static str,
        shape: Shape,
        pixels: Vec<u8>,
        labels: Option<Labels>,
    ) -> Result<Self, String> {
        let image_bytes = shape.bytes().filter(|bytes| *bytes > 0);
        let image_bytes = image_bytes.ok_or_else(|| format!("images of {shape}"))?;
        if pixels.is_empty() || !pixels.len().is_multiple_of(image_bytes) {
            return Err(format!("{} bytes of pixels, expected images of {image_bytes}", pixels.len()));
        }
        let images = pixels.len() / image_bytes;
        // Subsets name images by such numbers.
        if u32::try_from(images).is_err() {
            return Err(format!("{images} images, expected fewer than 2^32"));
        }
        if let Some(labels) = &labels {
            labels.check(images)?;
        }
        Ok(Self { source, shape, pixels, labels, files: None, image_bytes })
    }

    /// The same, of which each image is a file of that name: `[images]`.
    pub(crate) fn of_files(self, files: Vec<String>) -> Self {
        debug_assert_eq!(files.len(), self.len());
        Self { files: Some(files), ..self }
    }

    /// Where the images come from.
    pub fn source(&self) -> &'static str {
        self.source
    }

    /// Size of each image.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Number of images, at least 1.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.pixels.len() / self.image_bytes
    }

    /// All pixels: `[images, channels, height, width]`.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// Pixels of image `i`: `[channels, height, width]`.
    ///
    /// # Panics
    ///
    /// Where there are no more than `i` images.
    pub fn image(&self, i: usize) -> &[u8] {
        &self.pixels[i * self.image_bytes..][..self.image_bytes]
    }

    /// Classes of all images, where they are known.
    pub fn labels(&self) -> Option<&Labels> {
        self.labels.as_ref()
    }

    /// Name of the file of each image, within the folder that was read, where each has one: `[images]`.
    pub fn files(&self) -> Option<&[String]> {
        self.files.as_deref()
    }

    /// Class of image `i`, where it is known.
    ///
    /// # Panics
    ///
    /// Where there are no more than `i` images.
    pub fn label(&self, i: usize) -> Option<u16> {
        self.labels.as_ref().map(|labels| labels.of_images[i])
    }
}

impl Labels {
    /// Labels of a file that does not say how many classes there are: as many as its highest label shows.
    pub(crate) fn up_to_highest(of_images: Vec<u16>) -> Self {
        let classes = of_images.iter().max().map_or(0, |highest| usize::from(*highest) + 1);
        Self { of_images, classes, names: None }
    }

    fn check(&self, images: usize) -> Result<(), String> {
        let classes =
            || if self.classes == 1 { "1 class".into() } else { format!("{} classes", self.classes) };
        if self.of_images.len() != images {
            return Err(format!(
                "{} for {}",
                counted(self.of_images.len(), "label"),
                counted(images, "image")
            ));
        }
        if let Some(image) = self.of_images.iter().position(|label| usize::from(*label) >= self.classes) {
            let label = self.of_images[image];
            return Err(format!("label {label} of image {image}, expected one of {}", classes()));
        }
        match &self.names {
            Some(names) if names.len() != self.classes => {
                Err(format!("{} for {}", counted(names.len(), "name"), classes()))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { channels: 1, height: 2, width: 3 };

    fn labels(of_images: &[u16], classes: usize, names: Option<&[&str]>) -> Option<Labels> {
        let names = names.map(|names| names.iter().map(|name| name.to_string()).collect());
        Some(Labels { of_images: of_images.to_vec(), classes, names })
    }

    #[test]
    fn images_and_labels_are_told_apart_by_their_numbers() {
        let set = ImageSet::new("made", SHAPE, (0..12).collect(), labels(&[1, 0], 2, None)).unwrap();
        assert_eq!((set.len(), set.image(1), set.label(0)), (2, &[6, 7, 8, 9, 10, 11][..], Some(1)));
        let set = ImageSet::new("made", SHAPE, vec![0; 6], None).unwrap();
        assert_eq!((set.len(), set.label(0), set.labels(), set.source()), (1, None, None, "made"));
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let refusal =
            |shape, bytes, labels| ImageSet::new("made", shape, vec![0; bytes], labels).unwrap_err();
        assert_eq!(refusal(SHAPE, 7, None), "7 bytes of pixels, expected images of 6");
        assert_eq!(refusal(SHAPE, 0, None), "0 bytes of pixels, expected images of 6");
        let flat = Shape { height: 0, ..SHAPE };
        assert_eq!(refusal(flat, 6, None), "images of 1 channel of 0 x 3 pixels (rows x columns)");
        assert!(refusal(Shape { height: usize::MAX, ..SHAPE }, 6, None).starts_with("images of 1 channel"));
        assert_eq!(refusal(SHAPE, 12, labels(&[0], 1, None)), "1 label for 2 images");
        let beyond = refusal(SHAPE, 12, labels(&[0, 2], 2, None));
        assert_eq!(beyond, "label 2 of image 1, expected one of 2 classes");
        assert_eq!(refusal(SHAPE, 6, labels(&[0], 2, Some(&["a"]))), "1 name for 2 classes");
    }
}
