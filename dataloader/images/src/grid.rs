//! Images side by side in a PNG file, for people to look at.

use std::path::Path;

use png::{BitDepth, ColorType, Compression, Encoder, EncodingError};
use segue_configs::counted;
use segue_data_error::DataError;

use crate::Shape;

/// Black pixels around each image, as torchvision's `make_grid` has them.
const PADDING: usize = 2;

/// Writes images as a PNG file, row by row, `columns` of them in a row. `images: [images, channels, height, width]`, of 1 or 3 channels.
/// The same images give the same bytes.
///
/// # Errors
///
/// No columns, no images, or bytes that are not whole images; what the system refused.
pub fn write(path: &Path, images: &[u8], shape: Shape, columns: usize) -> Result<(), DataError> {
    let file = encoded(images, shape, columns).map_err(|why| DataError::Usage(format!("a grid of {why}")))?;
    Ok(segue_publish::write_file(path, &file)?)
}

/// Where images stand.
struct Grid {
    columns: usize,
    /// Pixels of a row of the file.
    width: usize,
    /// Rows of the file.
    height: usize,
}

impl Grid {
    fn of(count: usize, shape: Shape, columns: usize) -> Self {
        let columns = columns.min(count);
        let length = |cells: usize, size: usize| PADDING + cells * (size + PADDING);
        let (width, height) = (length(columns, shape.width), length(count.div_ceil(columns), shape.height));
        Self { columns, width, height }
    }

    /// Puts an image, `[channels, height, width]`, at a place of `pixels: [height, width, channels]`.
    fn put(&self, pixels: &mut [u8], place: usize, image: &[u8], shape: Shape) {
        let left = PADDING + place % self.columns * (shape.width + PADDING);
        let top = PADDING + place / self.columns * (shape.height + PADDING);
        for (i, row) in image.chunks_exact(shape.width).enumerate() {
            let (channel, row_of_image) = (i / shape.height, i % shape.height);
            let start = (top + row_of_image) * self.width + left;
            for (column, value) in row.iter().enumerate() {
                pixels[(start + column) * shape.channels + channel] = *value;
            }
        }
    }

    fn encoded(&self, pixels: &[u8], color: ColorType) -> Result<Vec<u8>, EncodingError> {
        // A size that is no u32 is one that no PNG file has.
        let [width, height] = [self.width, self.height].map(|size| u32::try_from(size).unwrap_or(u32::MAX));
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, width, height);
        encoder.set_color(color);
        encoder.set_depth(BitDepth::Eight);
        encoder.set_compression(Compression::Balanced);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(pixels)?;
        writer.finish()?;
        Ok(file)
    }
}

fn encoded(images: &[u8], shape: Shape, columns: usize) -> Result<Vec<u8>, String> {
    let color = match shape.channels {
        1 => ColorType::Grayscale,
        3 => ColorType::Rgb,
        channels => return Err(format!("images of {}, expected 1 or 3", counted(channels, "channel"))),
    };
    let bytes = shape.bytes().filter(|bytes| *bytes > 0 && images.len().is_multiple_of(*bytes));
    let bytes = bytes.filter(|_| !images.is_empty());
    let bytes = bytes.ok_or_else(|| format!("{} bytes, expected images with {shape}", images.len()))?;
    let count = images.len() / bytes;
    if columns == 0 {
        return Err(format!("{} in no columns", counted(count, "image")));
    }
    let grid = Grid::of(count, shape, columns);
    let mut pixels = vec![0; grid.width * grid.height * shape.channels];
    for (place, image) in images.chunks_exact(bytes).enumerate() {
        grid.put(&mut pixels, place, image, shape);
    }
    grid.encoded(&pixels, color)
        .map_err(|e| format!("{} x {} pixels, which cannot be encoded: {e}", grid.width, grid.height))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::png_file;

    const SHAPE: Shape = Shape { channels: 3, height: 1, width: 2 };

    /// Three images of 1 x 2 pixels in two columns: 10 x 8 pixels with padding, of which the second plane shows the places.
    #[test]
    fn images_stand_in_rows_with_black_around_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("grid.png");
        let images: Vec<u8> = (1..=18).collect();
        write(&path, &images, SHAPE, 2).unwrap();
        let (shape, pixels) = png_file::read(&path, None).unwrap();
        assert_eq!(shape, Shape { channels: 3, height: 8, width: 10 });
        let plane = &pixels[80..160];
        let mut expected = [0; 80];
        expected[22..24].copy_from_slice(&[3, 4]);
        expected[26..28].copy_from_slice(&[9, 10]);
        expected[52..54].copy_from_slice(&[15, 16]);
        assert_eq!(plane, expected);
        assert_eq!(std::fs::read(&path).unwrap(), encoded(&images, SHAPE, 2).unwrap());
    }

    #[test]
    fn what_makes_no_grid_is_named() {
        let refusal = |bytes: usize, shape, columns| {
            let error = write(Path::new("none/grid.png"), &vec![0; bytes], shape, columns).unwrap_err();
            (error.exit_code(), error.to_string())
        };
        assert_eq!(refusal(6, SHAPE, 0), (64, "a grid of 1 image in no columns".into()));
        assert!(refusal(7, SHAPE, 1).1.starts_with("a grid of 7 bytes, expected images with 3 channels of"));
        assert!(refusal(0, SHAPE, 1).1.starts_with("a grid of 0 bytes"));
        assert_eq!(
            refusal(6, Shape { channels: 2, ..SHAPE }, 1).1,
            "a grid of images of 2 channels, expected 1 or 3"
        );
        assert_eq!(refusal(6, SHAPE, 1).0, 73);
    }
}
