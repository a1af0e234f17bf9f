//! Files for tests, byte by byte as their formats are described, and not by the code that reads them.

use std::io::Write;

use png::{BitDepth, ColorType, Encoder};
use segue_data_error::DataError;

use crate::{ImageSet, Split};

/// Splits of the shared digits: images, `zlib.crc32` of their pixels and of their labels, images of each class.
pub const MNIST: [(Split, usize, u32, u32, [usize; 10]); 2] = [
    (Split::Train, 8000, 0x7c72_ad0b, 0x04c9_5609, [805, 896, 797, 811, 789, 695, 805, 859, 767, 776]),
    (Split::Test, 2000, 0xf4af_0835, 0xa00d_ca2e, [196, 231, 194, 221, 191, 168, 209, 211, 177, 202]),
];

/// Every beginning of a file has to be refused; its end is what makes it whole.
pub fn refusals_of_beginnings(file: &[u8], read: impl Fn(&[u8]) -> Result<ImageSet, DataError>) {
    read(file).unwrap();
    for end in 0..file.len() {
        let error = read(&file[..end]).unwrap_err();
        assert_eq!(error.exit_code(), 65, "{end}: {error}");
    }
}

/// Pixels of an image of `tests/files/make.py`: `[3, 4, 5]`.
pub fn peer_image(image: usize) -> Vec<u8> {
    let values = (0..60).map(|i| 101 * image + 37 * (i / 20) + 11 * (i / 5 % 4) + 3 * (i % 5));
    values.map(|value| value as u8).collect()
}

pub fn idx(sizes: &[u32], values: &[u8]) -> Vec<u8> {
    let sizes_of = sizes.iter().flat_map(|size| size.to_be_bytes());
    [0, 0, 8, sizes.len() as u8].into_iter().chain(sizes_of).chain(values.iter().copied()).collect()
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

/// A record of CIFAR-10 whose byte `i` of pixels is `first + i`.
pub fn cifar_record(label: u8, first: u8) -> Vec<u8> {
    std::iter::once(label).chain((0..3072u32).map(|i| first.wrapping_add(i as u8))).collect()
}

/// A batch of CIFAR-10 as Python 2 writes it, protocol 2. Byte `i` of image `n` is `7 n + i`.
pub fn pickled_batch(labels: &[u8], element: &str, key: &str) -> Vec<u8> {
    let text = |text: &str| [&[b'U', text.len() as u8], text.as_bytes()].concat();
    let count = labels.len() as u8;
    let pixels: Vec<u8> =
        (0..u32::from(count)).flat_map(|n| (0..3072).map(move |i| (7 * n + i) as u8)).collect();
    [
        b"\x80\x02}(",
        &text("data")[..],
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85U\x01b\x87R(K\x01K",
        &[count],
        // 3072 as a number of two bytes.
        b"M\0\x0C\x86cnumpy\ndtype\n",
        &text(element),
        b"K\0K\x01\x87R(K\x03U\x01|NNNJ\xFF\xFF\xFF\xFFJ\xFF\xFF\xFF\xFFK\0tb\x89T",
        &(pixels.len() as u32).to_le_bytes(),
        &pixels,
        b"tb",
        &text(key),
        b"](",
        &labels.iter().flat_map(|label| [b'K', *label]).collect::<Vec<_>>(),
        b"eu.",
    ]
    .concat()
}

/// `batches.meta` with this number of classes.
pub fn pickled_names(classes: u8) -> Vec<u8> {
    let names: Vec<u8> = (0..classes).flat_map(|class| format!("U\x06class{class}").into_bytes()).collect();
    [b"\x80\x02}U\x0Blabel_names](", &names[..], b"es."].concat()
}

/// A PNG file whose byte `i` of values is `i`.
pub fn png(width: u32, height: u32, color: ColorType, depth: BitDepth) -> Vec<u8> {
    let line = (width as usize * color.samples() * depth as usize).div_ceil(8);
    let values: Vec<u8> = (0..line * height as usize).map(|i| i as u8).collect();
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, width, height);
    encoder.set_color(color);
    encoder.set_depth(depth);
    if color == ColorType::Indexed {
        encoder.set_palette(vec![0; 3 * 256]);
    }
    encoder.write_header().unwrap().write_image_data(&values).unwrap();
    file
}

/// Files of MATLAB.
pub mod mat {
    use super::*;

    pub fn word(big_endian: bool, value: u32) -> [u8; 4] {
        if big_endian { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    pub fn header(big_endian: bool) -> Vec<u8> {
        let end = if big_endian { [1, 0, b'M', b'I'] } else { [0, 1, b'I', b'M'] };
        [&[b' '; 116][..], &[0; 8], &end].concat()
    }

    /// An element; one of at most four bytes in its small form.
    pub fn element(big_endian: bool, kind: u32, data: &[u8]) -> Vec<u8> {
        let length = data.len() as u32;
        let tag = match data.len() {
            1..=4 => word(big_endian, length << 16 | kind).to_vec(),
            _ => [word(big_endian, kind), word(big_endian, length)].concat(),
        };
        let mut element = [&tag[..], data].concat();
        element.resize(element.len().next_multiple_of(8), 0);
        element
    }

    pub fn array(big_endian: bool, name: &str, class: u32, sizes: &[u32], values: (u32, &[u8])) -> Vec<u8> {
        let words =
            |words: &[u32]| words.iter().flat_map(|value| word(big_endian, *value)).collect::<Vec<_>>();
        let parts = [
            element(big_endian, 6, &words(&[class, 0])),
            element(big_endian, 5, &words(sizes)),
            element(big_endian, 1, name.as_bytes()),
            element(big_endian, values.0, values.1),
        ];
        element(big_endian, 14, &parts.concat())
    }

    pub fn compressed(big_endian: bool, element: &[u8]) -> Vec<u8> {
        let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        packer.write_all(element).unwrap();
        let packed = packer.finish().unwrap();
        [&word(big_endian, 15), &word(big_endian, packed.len() as u32), &packed[..]].concat()
    }

    /// Two images of 2 x 3 pixels of three colours, of which byte `i` in MATLAB's order is `i`; labels 10 and 3.
    pub fn file(big_endian: bool, is_compressed: bool) -> Vec<u8> {
        let pixels: Vec<u8> = (0..36).collect();
        let parts = [
            array(big_endian, "X", 9, &[2, 3, 3, 2], (2, &pixels)),
            array(big_endian, "besides", 6, &[1, 1], (2, &[7])),
            array(big_endian, "y", 9, &[2, 1], (2, &[10, 3])),
        ];
        let pack = |part: &Vec<u8>| if is_compressed { compressed(big_endian, part) } else { part.clone() };
        std::iter::once(header(big_endian)).chain(parts.iter().map(pack)).flatten().collect()
    }
}
