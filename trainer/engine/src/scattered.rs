//! How tables whose tensors lie in parts on several ranks become files like all others: rank 0 writes them, and asks for the parts of a
//! tensor when it is that tensor's turn. So no rank ever holds more than its own parts and one tensor.

use std::cell::RefCell;
use std::path::Path;

use segue_collectives::busy::Rhythm;
use segue_collectives::{CollectiveError, Communicator, deadline};
use segue_faults as faults;
use segue_foreign::{ElementType, SafetensorsTensor};
use segue_kernels::TrainError;

use crate::checkpoint::{Contents, ScatteredTensor, bytes_of, write_stored};

/// What rank 0 asks for: table and tensor, by number.
type Request = [u64; 2];

/// There is nothing more to ask for.
const NONE: Request = [u64::MAX; 2];
/// There is nothing to ask for yet, and rank 0 gets on.
const WAIT: Request = [u64::MAX - 1; 2];

/// Rank 0's part: writes the scattered tables of `contents` into `folder`. The other ranks [`serve`]. They are told of the end even where writing
/// fails, which is the inner result.
pub fn write(
    folder: &Path,
    contents: &Contents,
    comm: &dyn Communicator,
) -> Result<Result<(), TrainError>, CollectiveError> {
    if contents.scattered.is_empty() {
        return Ok(Ok(()));
    }
    let asking = RefCell::new(Asking { comm, rhythm: Rhythm::new(), lost: None });
    let mut written = Ok(());
    for (number, table) in contents.scattered.iter().enumerate() {
        let stored = |(place, tensor)| to_stored(tensor, [number as u64, place as u64], &asking);
        let stored = table.tensors.iter().enumerate().map(stored).collect();
        written = written.and_then(|()| write_stored(&folder.join(&table.file), stored));
    }
    if let Some(error) = asking.into_inner().lost {
        return Err(error);
    }
    tell_all(comm, NONE)?;
    Ok(written)
}

/// Rank 0's way to what other ranks have.
struct Asking<'a> {
    comm: &'a dyn Communicator,
    /// Of its signs to those that it does not ask for long.
    rhythm: Rhythm,
    lost: Option<CollectiveError>,
}

impl Asking<'_> {
    /// The bytes of a tensor, from those who have them. Once a rank is lost the file comes to nothing; what is written of it until then does not
    /// matter.
    fn ask(&mut self, tensor: &ScatteredTensor, request: Request) -> Vec<u8> {
        faults::gets_on();
        if self.lost.is_none() {
            let told = if self.rhythm.is_due() { tell_all(self.comm, WAIT) } else { Ok(()) };
            match told.and_then(|()| collect(tensor, request, self.comm)) {
                Ok(bytes) => return bytes,
                Err(error) => self.lost = Some(error),
            }
        }
        vec![0; tensor.shape.iter().product::<i64>() as usize * size_of::<f32>()]
    }
}

fn tell_all(comm: &dyn Communicator, request: Request) -> Result<(), CollectiveError> {
    (1..comm.world_size()).try_for_each(|peer| comm.send(peer, &to_bytes(request)))
}

/// The part of any other rank: gives rank 0 what it asks for, until it asks no more.
pub fn serve(contents: &Contents, comm: &dyn Communicator) -> Result<(), CollectiveError> {
    if contents.scattered.is_empty() {
        return Ok(());
    }
    loop {
        let mut request = to_bytes(NONE);
        comm.recv(0, &mut request)?;
        deadline::gets_on();
        if request == to_bytes(WAIT) {
            continue;
        }
        let [table, tensor] = of_bytes(request).map(|number| number as usize);
        let asked = contents.scattered.get(table).and_then(|table| table.tensors.get(tensor));
        // Rank 0 asks for what its own list of parts says is here.
        let Some(asked) = asked else { return Ok(()) };
        comm.send(0, &asked.own.as_ref().map_or(Vec::new(), bytes_of))?;
    }
}

fn to_stored<'a, 'c: 'a>(
    tensor: &'a ScatteredTensor,
    request: Request,
    asking: &'a RefCell<Asking<'c>>,
) -> SafetensorsTensor<'a> {
    let values = move || asking.borrow_mut().ask(tensor, request);
    let shape = tensor.shape.iter().map(|&n| n as usize).collect();
    SafetensorsTensor {
        name: &tensor.name,
        dtype: ElementType::F32,
        shape,
        values: Box::new(std::iter::once_with(values)),
    }
}

/// The bytes of a tensor, from those who have them.
fn collect(
    tensor: &ScatteredTensor,
    request: Request,
    comm: &dyn Communicator,
) -> Result<Vec<u8>, CollectiveError> {
    let mut bytes = Vec::new();
    for &(rank, values) in &tensor.parts {
        match &tensor.own {
            Some(own) if rank == comm.rank() => bytes.extend(bytes_of(own)),
            _ => {
                let start = bytes.len();
                bytes.resize(start + values * size_of::<f32>(), 0);
                comm.send(rank, &to_bytes(request))?;
                comm.recv(rank, &mut bytes[start..])?;
            }
        }
    }
    Ok(bytes)
}

fn to_bytes(request: Request) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&request[0].to_le_bytes());
    bytes[8..].copy_from_slice(&request[1].to_le_bytes());
    bytes
}

fn of_bytes(bytes: [u8; 16]) -> Request {
    [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i])))
}
