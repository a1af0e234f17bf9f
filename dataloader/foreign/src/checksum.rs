/// The checksum of TensorFlow's files: CRC-32C, disguised, because data that holds checksums of its own is summed too.
pub(super) fn masked_crc32c(bytes: &[u8]) -> u32 {
    mask(crc32c::crc32c(bytes))
}

/// The disguise of a checksum.
pub(super) fn mask(crc: u32) -> u32 {
    const DELTA: u32 = 0xA282_EAD8;
    crc.rotate_right(15).wrapping_add(DELTA)
}
