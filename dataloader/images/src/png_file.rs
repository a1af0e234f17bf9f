//! PNG files of 8 bits a value, grey or of red, green and blue.
//!
//! What has another number of bits, a palette or transparency is refused. Each can be converted in more than one way (rounded or cut
//! off, on a black or a white ground), and a data set that mixes them would be read differently from how other programs read it.

use std::io::Cursor;
use std::path::Path;

use png::{BitDepth, ColorType, Decoder, Info};
use segue_configs::counted;
use segue_data_error::DataError;
use segue_foreign::SharedBytes;

use crate::Shape;
use crate::bytes::MOST_PER_BYTE;

/// Bytes that a decoder may hold besides those of the image, for rows and chunks.
const BESIDES: usize = 1 << 20;

/// Size that all images of a set have.
pub(crate) struct Expected<'a> {
    pub shape: Shape,
    /// The file that showed it.
    pub of: &'a Path,
}

/// Reads an image: `[channels, height, width]`.
///
/// # Errors
///
/// A file that is missing, damaged, of another form, or of another size than `expected`.
pub(crate) fn read(path: &Path, expected: Option<&Expected<'_>>) -> Result<(Shape, Vec<u8>), DataError> {
    let file = SharedBytes::map(path)?;
    decode(&file, expected).map_err(|why| DataError::foreign(path, why))
}

fn decode(file: &[u8], expected: Option<&Expected<'_>>) -> Result<(Shape, Vec<u8>), String> {
    let damaged = |e: png::DecodingError| format!("it is damaged, truncated or not a PNG file: {e}");
    let most = file.len().saturating_mul(MOST_PER_BYTE);
    let limits = png::Limits { bytes: most.saturating_add(BESIDES) };
    let mut decoder = Decoder::new_with_limits(Cursor::new(file), limits);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let shape = shape(decoder.read_header_info().map_err(damaged)?)?;
    if let Some(other) = expected.filter(|other| other.shape != shape) {
        return Err(format!("an image with {shape}, expected {} as in {}", other.shape, other.of.display()));
    }
    let bytes = shape.bytes().filter(|bytes| *bytes <= most);
    let bytes =
        bytes.ok_or_else(|| format!("an image with {shape}, more than a file of its size can hold"))?;
    let mut reader = decoder.read_info().map_err(damaged)?;
    if reader.info().trns.is_some() {
        return Err(unread("transparency"));
    }
    let mut values = vec![0; bytes];
    reader.next_frame(&mut values).map_err(damaged)?;
    reader.finish().map_err(damaged)?;
    Ok((shape, channels_first(values, shape.channels)))
}

fn shape(info: &Info<'_>) -> Result<Shape, String> {
    let channels = match (info.color_type, info.bit_depth) {
        (ColorType::Grayscale, BitDepth::Eight) => 1,
        (ColorType::Rgb, BitDepth::Eight) => 3,
        (ColorType::Indexed, _) => return Err(unread("a palette")),
        (ColorType::GrayscaleAlpha | ColorType::Rgba, _) => return Err(unread("transparency")),
        (_, depth) => return Err(unread(&format!("{} a value", counted(depth as u8, "bit")))),
    };
    Ok(Shape { channels, height: info.height as usize, width: info.width as usize })
}

fn unread(what: &str) -> String {
    format!(
        "an image with {what}, expected 8 bits a value, grey or RGB\nhint: convert all images of the set to one of these"
    )
}

/// `[height, width, channels]` → `[channels, height, width]`.
fn channels_first(values: Vec<u8>, channels: usize) -> Vec<u8> {
    if channels == 1 {
        return values;
    }
    (0..channels).flat_map(|channel| values.iter().skip(channel).step_by(channels).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made::png;

    /// Byte `i` is `i`, with the colours of a pixel side by side.
    #[test]
    fn colours_become_planes_and_grey_levels_stay() {
        let (shape, values) = decode(&png(2, 2, ColorType::Rgb, BitDepth::Eight), None).unwrap();
        assert_eq!(shape, Shape { channels: 3, height: 2, width: 2 });
        assert_eq!(values, [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11]);
        let (shape, values) = decode(&png(3, 2, ColorType::Grayscale, BitDepth::Eight), None).unwrap();
        assert_eq!((shape.height, shape.width, values), (2, 3, vec![0, 1, 2, 3, 4, 5]));
    }

    #[test]
    fn files_of_pillow_hold_what_was_put_in() {
        let expected = crate::made::peer_image(2);
        assert_eq!(decode(include_bytes!("../tests/files/2.png"), None).unwrap().1, expected);
        assert_eq!(decode(include_bytes!("../tests/files/2-grey.png"), None).unwrap().1, expected[..20]);
    }

    #[test]
    fn other_forms_and_sizes_are_named() {
        let of = Path::new("a/0.png");
        let expected = Expected { shape: Shape { channels: 1, height: 2, width: 3 }, of };
        for (color, depth, why) in [
            (ColorType::Rgba, BitDepth::Eight, "transparency"),
            (ColorType::GrayscaleAlpha, BitDepth::Eight, "transparency"),
            (ColorType::Indexed, BitDepth::Eight, "a palette"),
            (ColorType::Rgb, BitDepth::Sixteen, "16 bits a value"),
            (ColorType::Grayscale, BitDepth::One, "1 bit a value"),
            (
                ColorType::Rgb,
                BitDepth::Eight,
                "3 channels of 2 x 3 pixels (rows x columns), expected 1 channel",
            ),
        ] {
            let error = decode(&png(3, 2, color, depth), Some(&expected)).unwrap_err();
            assert!(error.starts_with(&format!("an image with {why}")), "{error}");
        }
        let error = decode(&png(2, 3, ColorType::Grayscale, BitDepth::Eight), Some(&expected)).unwrap_err();
        assert!(
            error.ends_with("expected 1 channel of 2 x 3 pixels (rows x columns) as in a/0.png"),
            "{error}"
        );
    }

    /// IHDR: length and type to byte 16, then width and height; its checksum at byte 29.
    #[test]
    fn a_size_beyond_the_file_is_refused_before_anything_is_made() {
        for size in [[0, 1, 0, 0, 0, 1, 0, 0], [0x7F, 0xFF, 0xFF, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF]] {
            let mut file = png(3, 2, ColorType::Rgb, BitDepth::Eight);
            file[16..24].copy_from_slice(&size);
            let mut sum = flate2::Crc::new();
            sum.update(&file[12..29]);
            file[29..33].copy_from_slice(&sum.sum().to_be_bytes());
            let error = decode(&file, None).unwrap_err();
            assert!(error.ends_with("more than a file of its size can hold"), "{error}");
        }
    }

    #[test]
    fn every_beginning_of_a_file_is_refused() {
        let file = png(3, 2, ColorType::Rgb, BitDepth::Eight);
        for end in 0..file.len() {
            let error = decode(&file[..end], None).unwrap_err();
            assert!(error.contains("it is damaged, truncated or not a PNG file"), "{end}: {error}");
        }
    }
}
