//! A graph as one file that is used where it lies, in a memory map.

use std::io::Write;
use std::path::Path;

use segue_data_error::DataError;
use segue_foreign::SharedBytes;
use segue_publish::FreshFile;

use crate::Graph;
use crate::numbers::Numbers;

/// The first eight bytes of the file.
const MAGIC: [u8; 8] = *b"SEGUEGRF";
/// The version this code writes and the only one it reads.
const VERSION: u32 = 1;
/// Bytes of the header; what follows is therefore aligned in a memory map.
const HEADER_BYTES: usize = 128;
/// The flag of a graph with weights.
const WEIGHTED: u32 = 1;

impl Graph {
    /// Opens a file that [`Graph::write`] wrote. All of it is read once, to check its hash and its numbers; it stays on disk and is
    /// mapped into memory.
    ///
    /// # Errors
    ///
    /// A file that is missing, damaged or not a graph.
    pub fn open(path: &Path) -> Result<Graph, DataError> {
        Graph::from_bytes(&SharedBytes::map(path)?).map_err(|why| DataError::shard(path, why))
    }

    /// The graph in the bytes of a file.
    ///
    /// # Errors
    ///
    /// Which promise of the format the bytes break.
    pub fn from_bytes(file: &SharedBytes) -> Result<Graph, String> {
        let header = Header::parse(file)?;
        let (expected, found) = (header.file_bytes()?, file.len());
        if expected != found {
            return Err(format!("{found} bytes where its header promises {expected}"));
        }
        if *blake3::hash(&file[HEADER_BYTES..]).as_bytes() != header.hash {
            return Err("its content does not match the hash in its header".into());
        }
        let mut at = HEADER_BYTES;
        let mut piece = |bytes: usize| {
            at += bytes;
            file.cut(at - bytes..at).ok_or_else(|| "it is truncated".to_string())
        };
        let offsets: Numbers<u64> = Numbers::mapped(piece((header.nodes + 1) * size_of::<u64>())?);
        let neighbours = Numbers::mapped(piece(header.entries * size_of::<u32>())?);
        let weights = match header.weighted {
            true => Some(Numbers::mapped(piece(header.entries * size_of::<f32>())?)),
            false => None,
        };
        let graph = Graph { offsets, neighbours, weights };
        graph.check()?;
        Ok(graph)
    }

    /// Writes the graph as one file, whole or not at all. The same graph gives the same bytes.
    ///
    /// # Errors
    ///
    /// What the system refused.
    pub fn write(&self, path: &Path) -> Result<(), DataError> {
        let weights = self.weights.as_deref().unwrap_or_default();
        let parts: [&[u8]; 3] = [
            bytemuck::cast_slice(&self.offsets),
            bytemuck::cast_slice(&self.neighbours),
            bytemuck::cast_slice(weights),
        ];
        let mut hasher = blake3::Hasher::new();
        parts.iter().for_each(|part| _ = hasher.update_rayon(part));
        let header = Header {
            weighted: self.is_weighted(),
            nodes: self.nodes(),
            entries: self.entries(),
            hash: *hasher.finalize().as_bytes(),
        };
        let mut file = FreshFile::create(path)?;
        let mut write = || {
            file.write_all(&header.to_bytes())?;
            parts.iter().try_for_each(|part| file.write_all(part))
        };
        write().map_err(|e| DataError::write(path, e))?;
        Ok(file.publish()?)
    }

    /// What the numbers of a file have to promise before rows are cut by them.
    fn check(&self) -> Result<(), String> {
        let (nodes, entries) = (self.nodes(), self.entries() as u64);
        let rises = self.offsets.is_sorted();
        if !rises || self.offsets.first() != Some(&0) || self.offsets.last() != Some(&entries) {
            return Err(format!("its rows do not go from 0 to {entries}"));
        }
        if let Some(node) = self.neighbours.iter().find(|node| **node as usize >= nodes) {
            return Err(format!("neighbour {node} in a graph with {nodes} nodes"));
        }
        let weights = self.weights.as_deref().unwrap_or_default();
        match weights.iter().find(|weight| !(**weight > 0.0 && weight.is_finite())) {
            Some(weight) => Err(format!("a weight of {weight}, expected a positive number")),
            None => Ok(()),
        }
    }
}

/// What stands before the numbers; the table is in `docs/book/src/formats/graphs.md`.
#[derive(Debug, PartialEq)]
struct Header {
    weighted: bool,
    nodes: usize,
    entries: usize,
    /// BLAKE3 of all that follows the header.
    hash: [u8; 32],
}

impl Header {
    fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let flags = if self.weighted { WEIGHTED } else { 0 };
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&flags.to_le_bytes());
        bytes[16..24].copy_from_slice(&(self.nodes as u64).to_le_bytes());
        bytes[24..32].copy_from_slice(&(self.entries as u64).to_le_bytes());
        bytes[32..64].copy_from_slice(&self.hash);
        let checksum = blake3::hash(&bytes[..120]);
        bytes[120..].copy_from_slice(&checksum.as_bytes()[..8]);
        bytes
    }

    fn parse(file: &[u8]) -> Result<Header, String> {
        let bytes = file
            .first_chunk::<HEADER_BYTES>()
            .ok_or_else(|| format!("{} bytes, less than the header's {HEADER_BYTES}", file.len()))?;
        if bytes[0..8] != MAGIC {
            return Err("it does not start with SEGUEGRF, so it is not a graph".into());
        }
        let (words, _) = bytes.as_chunks::<4>();
        let version = u32::from_le_bytes(words[2]);
        if version != VERSION {
            return Err(format!("its version is {version}, expected {VERSION}"));
        }
        if blake3::hash(&bytes[..120]).as_bytes()[..8] != bytes[120..] {
            return Err("the header's checksum does not match the header".into());
        }
        let flags = u32::from_le_bytes(words[3]);
        if flags & !WEIGHTED != 0 || bytes[64..120].iter().any(|byte| *byte != 0) {
            return Err("its header has flags of no meaning".into());
        }
        let (numbers, _) = bytes.as_chunks::<8>();
        let (nodes, entries) = (u64::from_le_bytes(numbers[2]), u64::from_le_bytes(numbers[3]));
        let mut hash = [0; 32];
        hash.copy_from_slice(&bytes[32..64]);
        match (u32::try_from(nodes), usize::try_from(entries)) {
            (Ok(nodes), Ok(entries)) => {
                Ok(Header { weighted: flags & WEIGHTED != 0, nodes: nodes as usize, entries, hash })
            }
            _ => Err(format!("{nodes} nodes and {entries} entries, more than a graph can have")),
        }
    }

    /// Size of the whole file.
    fn file_bytes(&self) -> Result<usize, String> {
        let width = size_of::<u32>() + if self.weighted { size_of::<f32>() } else { 0 };
        let rows = (self.nodes + 1) * size_of::<u64>();
        let entries = self.entries.checked_mul(width);
        entries
            .and_then(|entries| entries.checked_add(HEADER_BYTES + rows))
            .ok_or_else(|| format!("{} entries, more than a file can hold", self.entries))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn example(weight: f32) -> Graph {
        Graph::from_edges(5, [(0, 1, weight), (1, 2, 1.0), (3, 3, 1.0)]).unwrap()
    }

    fn bytes_of(graph: &Graph) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("graph.bin");
        graph.write(&path).unwrap();
        std::fs::read(path).unwrap()
    }

    #[test]
    fn a_file_holds_the_graph_wherever_its_bytes_lie() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("graph.bin");
        for graph in [example(1.0), example(0.5), Graph::from_edges(0, []).unwrap()] {
            graph.write(&path).unwrap();
            let mut shifted = vec![0];
            shifted.extend(std::fs::read(&path).unwrap());
            let shifted = SharedBytes::from(shifted);
            let unaligned = shifted.cut(1..shifted.len()).unwrap();
            for read in [Graph::open(&path).unwrap(), Graph::from_bytes(&unaligned).unwrap()] {
                assert_eq!((read.nodes(), read.entries()), (graph.nodes(), graph.entries()));
                assert_eq!(read.edges().collect::<Vec<_>>(), graph.edges().collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed_and_so_is_every_cut() {
        let good = bytes_of(&example(0.5));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Graph::from_bytes(&bad.into()).is_err(), "bit {bit}");
        }
        for keep in 0..good.len() {
            assert!(Graph::from_bytes(&good[..keep].to_vec().into()).is_err(), "cut to {keep}");
        }
    }

    #[test]
    fn numbers_that_lie_are_refused_though_their_hashes_are_right() {
        let forge = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = bytes_of(&example(0.5));
            change(&mut bytes);
            let hash = *blake3::hash(&bytes[HEADER_BYTES..]).as_bytes();
            bytes[32..64].copy_from_slice(&hash);
            let checksum = blake3::hash(&bytes[..120]);
            bytes[120..128].copy_from_slice(&checksum.as_bytes()[..8]);
            Graph::from_bytes(&bytes.into()).err().unwrap()
        };
        let rows = HEADER_BYTES + 6 * 8;
        assert!(forge(&|bytes| bytes[HEADER_BYTES + 8] = 99).contains("rows"));
        assert!(forge(&|bytes| bytes[rows] = 9).contains("neighbour 9"));
        assert!(forge(&|bytes| bytes[rows + 5 * 4 + 3] = 0xFF).contains("weight"));
        assert!(forge(&|bytes| bytes[31] = 0xFF).contains("entries"));
        assert!(forge(&|bytes| bytes[20] = 1).contains("nodes"));
        assert!(forge(&|bytes| bytes[12] = 3).contains("flags"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50))]

        #[test]
        fn any_graph_survives_a_round_trip(
            edges in proptest::collection::vec((0u32..20, 0u32..20, 0.1f32..9.0), 0..60),
        ) {
            let graph = Graph::from_edges(20, edges).unwrap();
            let read = Graph::from_bytes(&bytes_of(&graph).into()).unwrap();
            prop_assert_eq!(read.edges().collect::<Vec<_>>(), graph.edges().collect::<Vec<_>>());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Graph::from_bytes(&bytes.into());
        }
    }
}
