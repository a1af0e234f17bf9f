use std::collections::HashMap;
use std::io::Cursor;

use zip::{CompressionMethod, ZipArchive};

use crate::pickle::{Kind, Pickle, View};
use crate::{ElementType, SharedBytes};

/// First object of the 2019 layout: 0x1950a86a20f9469cfc6c.
const LEGACY_MAGIC: [u8; 10] = [0x6C, 0xFC, 0x9C, 0x46, 0xF9, 0x20, 0x6A, 0xA8, 0x50, 0x19];
/// Version of that layout.
const LEGACY_PROTOCOL: i64 = 1001;
/// Entries of the zip container beside the storages.
const PICKLE_ENTRY: &str = "data.pkl";
const BYTE_ORDER_ENTRY: &str = "byteorder";

/// A file taken apart: its pickle and the bytes its persistent ids refer to.
pub(super) struct Container {
    pub pickle: Pickle,
    pub storages: HashMap<String, SharedBytes>,
}

/// Takes a file apart, whichever layout it has.
pub(super) fn open(input: &SharedBytes) -> Result<Container, String> {
    if input.starts_with(b"PK\x03\x04") {
        return open_zip(input);
    }
    let first = Pickle::parse(input)?;
    match first.root().kind() {
        Kind::Big(number) if number == LEGACY_MAGIC => open_legacy(input, first.length()),
        _ => Ok(Container { pickle: first, storages: HashMap::new() }),
    }
}

fn open_zip(input: &SharedBytes) -> Result<Container, String> {
    let unreadable = |e: zip::result::ZipError| format!("its zip container is damaged: {e}");
    let mut archive = ZipArchive::new(Cursor::new(&input[..])).map_err(unreadable)?;
    let (mut pickle, mut storages, mut stored) = (None, HashMap::new(), 0);
    for index in 0..archive.len() {
        let entry = archive.by_index_raw(index).map_err(unreadable)?;
        // NAME/data.pkl, NAME/data/0, ..
        let Some((_, name)) = entry.name().split_once('/') else { continue };
        let key = name.strip_prefix("data/");
        if key.is_none() && name != PICKLE_ENTRY && name != BYTE_ORDER_ENTRY {
            continue;
        }
        if entry.compression() != CompressionMethod::Stored {
            return Err(format!("its entry {name} is compressed, which torch.save never does"));
        }
        let start = usize::try_from(entry.data_start()).ok();
        let end = start.and_then(|start| start.checked_add(usize::try_from(entry.size()).ok()?));
        let bytes = start.zip(end).and_then(|(start, end)| input.cut(start..end));
        let bytes = bytes.ok_or_else(|| format!("its entry {name} reaches past the end: it is truncated"))?;
        // Each byte is hashed once at most.
        stored += bytes.len();
        if stored > input.len() {
            return Err("its entries overlap".into());
        }
        let sum = crc32fast::hash(&bytes);
        if entry.crc32() == 0 && sum != 0 {
            let hint = "save it again after torch.serialization.set_crc32_options(True)";
            return Err(format!("its entry {name} has no checksum\nhint: {hint}"));
        }
        if sum != entry.crc32() {
            return Err(format!("its entry {name} does not match its checksum"));
        }
        match key {
            Some(key) if storages.contains_key(key) => return Err(format!("it has more than one {name}")),
            Some(key) => _ = storages.insert(key.to_string(), bytes),
            None if name == BYTE_ORDER_ENTRY && &bytes[..] != b"little" => {
                return Err("it was written on a big-endian machine".into());
            }
            None if name == PICKLE_ENTRY && pickle.is_some() => {
                return Err("it has more than one data.pkl".into());
            }
            None if name == PICKLE_ENTRY => pickle = Some(Pickle::parse(&bytes)?),
            None => {}
        }
    }
    let pickle = pickle.ok_or("it is a zip file without data.pkl, so torch.save did not write it")?;
    Ok(Container { pickle, storages })
}

/// Magic number, version, system, object, keys of the storages: a pickle each. Then the storages: number of
/// elements, elements.
fn open_legacy(input: &SharedBytes, magic_length: usize) -> Result<Container, String> {
    let mut at = magic_length;
    let mut next = || {
        let rest = input.cut(at..input.len()).unwrap_or_else(|| Vec::new().into());
        let pickle = Pickle::parse(&rest)?;
        at += pickle.length();
        Ok::<_, String>(pickle)
    };
    let version = next()?;
    if version.root().int() != Some(LEGACY_PROTOCOL) {
        return Err("unsupported version of its layout".into());
    }
    let system = next()?;
    if system.root().get("little_endian").and_then(View::truth) == Some(false) {
        return Err("it was written on a big-endian machine".into());
    }
    let (pickle, keys) = (next()?, next()?);
    let types = storage_types(&pickle);
    let mut storages = HashMap::new();
    for key in keys.root().elements().into_iter().flatten() {
        let key = key.text().ok_or("the key of a storage is not a string")?;
        let dtype = types.get(key).ok_or_else(|| format!("nothing refers to its storage {key}"))?;
        let truncated = || format!("it ends inside storage {key}");
        let count = input.get(at..at + 8).and_then(|word| word.try_into().ok()).ok_or_else(truncated)?;
        let length = usize::try_from(u64::from_le_bytes(count)).ok();
        let length = length.and_then(|length| length.checked_mul(dtype.bytes())).ok_or_else(truncated)?;
        at += 8;
        let end = at.checked_add(length).ok_or_else(truncated)?;
        storages.insert(key.to_string(), input.cut(at..end).ok_or_else(truncated)?);
        at = end;
    }
    Ok(Container { pickle, storages })
}

/// A pickle's reference to a storage.
pub(super) struct StorageId<'a> {
    /// `None` for storages of bytes without a type.
    pub dtype: Option<ElementType>,
    pub key: &'a str,
    /// First element of a view of a storage, which files of 2019 may name.
    pub view_offset: usize,
}

/// Reads `('storage', class, key, location, size[, view])`.
pub(super) fn storage_id<'a>(reference: View<'a>) -> Option<StorageId<'a>> {
    let mut parts = reference.persistent_id()?.elements()?;
    if parts.next()?.text()? != "storage" {
        return None;
    }
    let Kind::Global { name, .. } = parts.next()?.kind() else { return None };
    let key = parts.next()?.text()?;
    let view = parts.nth(2).and_then(|view| view.elements()?.nth(1)?.size());
    Some(StorageId { dtype: storage_type(name), key, view_offset: view.unwrap_or(0) })
}

/// Element types of all storages that a pickle names.
fn storage_types(pickle: &Pickle) -> HashMap<&str, ElementType> {
    pickle
        .persistent()
        .filter_map(|id| {
            let id = storage_id(id)?;
            Some((id.key, id.dtype.unwrap_or(ElementType::U8)))
        })
        .collect()
}

fn storage_type(class: &str) -> Option<ElementType> {
    Some(match class {
        "FloatStorage" => ElementType::F32,
        "DoubleStorage" => ElementType::F64,
        "HalfStorage" => ElementType::F16,
        "BFloat16Storage" => ElementType::Bf16,
        "LongStorage" => ElementType::I64,
        "IntStorage" => ElementType::I32,
        "ShortStorage" => ElementType::I16,
        "CharStorage" => ElementType::I8,
        "ByteStorage" => ElementType::U8,
        "BoolStorage" => ElementType::Bool,
        _ => return None,
    })
}
