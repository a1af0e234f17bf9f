//! How ranks add up what they hold: in the memory of hosts, or from card to card.

use std::ops::Range;
use std::sync::OnceLock;

use segue_collectives::nccl::library::{Library, NoLibrary, card_identity};
use segue_collectives::nccl::{CardLink, CardStream, Nccl, Stretch};
use segue_collectives::tree::regions::{self, Message, Place, Regions};
use segue_collectives::tree::{Wire, all_gather_slices, tree_all_reduce, tree_reduce_scatter};
use segue_collectives::{CollectiveError, Communicator};
use segue_configs::{CollectivesKind, ReducePrecision, TrainConfig};
use segue_kernels::TrainError;
use segue_kernels::libtorch::stream::{Entered, Event, Stream};
use segue_kernels::libtorch::{as_f32, as_f32_mut, device};
use tch::{Device, Kind, Tensor, no_grad};

/// Sums over ranks of flat f32 tensors that lie where the rank computes. All its calls are collective. From card to card they are queued behind each
/// other and over when [`wait`](Self::wait) returns for a mark behind them, else before they return.
pub struct Sums {
    comm: Box<dyn Communicator>,
    order: Order,
    device: Device,
    /// What comes of a sum is queued here, beside backward.
    stream: Stream,
    way: Way,
}

/// How terms of several ranks meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// In that of the tree, by messages that carry what is said.
    Tree(Wire),
    /// As the library's all-reduce likes; where ranks divide sums, in that of the tree.
    Any,
}

impl Order {
    fn of(train: &TrainConfig) -> Self {
        match (train.exact, train.reduce_precision) {
            (true, _) => Self::Tree(Wire::F32),
            // A library would add in what it sends, and round at each rank.
            (false, ReducePrecision::Bf16) => Self::Tree(Wire::Bf16),
            (false, ReducePrecision::F32) => Self::Any,
        }
    }

    fn wire(self) -> Wire {
        match self {
            Self::Tree(wire) => wire,
            Self::Any => Wire::F32,
        }
    }
}

enum Way {
    /// In the memory of hosts, with room for what is received. What lies on a card is copied there and back.
    Host(Vec<f32>),
    /// From card to card, likewise.
    Cards(Box<dyn CardLink>, Tensor),
}

impl Sums {
    /// Over the ranks of `comm`, each of which computes on its `device`, as `train` asks for. `train.exact` keeps the order of the tree, and so does
    /// a `train.reduce_precision` of 16 bits; else the library's all-reduce may add as it likes. A collective call.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::NcclUnavailable`], on all ranks, where NCCL is asked for and cannot be used.
    pub fn choose(
        train: &TrainConfig,
        device: Device,
        comm: Box<dyn Communicator>,
    ) -> Result<Self, TrainError> {
        let (kind, order) = (train.collectives, Order::of(train));
        let stream = Stream::beside(device)?;
        let mut sums = Self { comm, order, device, stream, way: Way::Host(Vec::new()) };
        match (sums.join(kind)?, kind) {
            (Ok(link), _) => {
                sums.way = Way::Cards(Box::new(link), Tensor::zeros([0], (Kind::Float, device)));
                Ok(sums)
            }
            // Ranks that are asked for different things are told so where configurations are compared.
            (Err(Apart::Asked), _) => Ok(sums),
            (Err(Apart::Because(reason)), CollectivesKind::Nccl) => {
                Err(CollectiveError::NcclUnavailable { reason }.into())
            }
            (Err(Apart::Because(reason)), _) => {
                if sums.comm.rank() == 0 && device != Device::Cpu {
                    tracing::info!(reason, "ranks add up in the memory of hosts");
                }
                Ok(sums)
            }
        }
    }

    /// Joins the ranks' cards where every rank has one of its own and no rank is asked for the memory of hosts. All ranks say what they have,
    /// whatever they are asked for: the calls of a rank may not depend on its configuration before those are compared. The inner error is the same
    /// on all ranks.
    fn join(&self, kind: CollectivesKind) -> Result<Result<Nccl, Apart>, TrainError> {
        let own = if kind == CollectivesKind::Host { None } else { Some(own_card(self.device)) };
        let said = match &own {
            None => vec![ASKED],
            Some(Ok((_, identity))) => [&[CARD][..], identity].concat(),
            Some(Err(why)) => [&[NO_CARD], why.as_bytes()].concat(),
        };
        let all = self.comm.all_gather(&said)?;
        if let Some(apart) = why_apart(&all) {
            return Ok(Err(apart));
        }
        // Each rank has a library, or somebody would have said so.
        let Some(Ok((library, _))) = own else {
            return Ok(Err(Apart::Because("a rank has lost its library".into())));
        };
        // NCCL takes the card that this thread has chosen.
        let _entered = self.stream.enter()?;
        Ok(Nccl::open(&library, self.comm.as_ref())?.map_err(Apart::Because))
    }

    /// What ranks say to each other.
    pub fn comm(&self) -> &dyn Communicator {
        self.comm.as_ref()
    }

    /// Whether ranks exchange what lies on their cards; the same on all.
    pub fn is_from_card_to_card(&self) -> bool {
        matches!(self.way, Way::Cards(..))
    }

    /// Where what ranks exchange has to lie: the host's memory, or this rank's card.
    pub fn place(&self) -> Device {
        match &self.way {
            Way::Host(_) => Device::Cpu,
            Way::Cards(..) => self.device,
        }
    }

    /// Lets this thread queue its work beside that of others, behind what has been `made`, until what is returned is dropped.
    pub fn begin(&self, made: &Event) -> Result<Entered, TrainError> {
        let entered = self.stream.enter()?;
        self.stream.wait_for(made)?;
        Ok(entered)
    }

    /// A mark behind all that this thread has queued.
    pub fn mark(&self) -> Result<Event, TrainError> {
        Event::now(self.device)
    }

    /// Waits until all before `mark` is over. What is there then is there for all streams.
    pub fn wait(&self, mark: &Event) -> Result<(), TrainError> {
        match &self.way {
            Way::Host(_) => mark.wait(),
            Way::Cards(link, _) => Ok(link.wait(&mut || passed(mark))?),
        }
    }

    /// Every rank gets the sums of `values`, in the order of the tree only where the run is exact.
    pub fn all_reduce(&mut self, values: &Tensor) -> Result<(), CollectiveError> {
        if self.order != Order::Any {
            return self.tree_all_reduce(values);
        }
        match self.on_cards(values, Wire::F32)? {
            Some(mut regions) => regions.all_reduce_any_order(),
            None => self.by_host(values, |comm, values, _| comm.all_reduce_any_order(values)),
        }
    }

    /// The same in the order of the tree.
    pub fn tree_all_reduce(&mut self, values: &Tensor) -> Result<(), CollectiveError> {
        let wire = self.order.wire();
        match self.on_cards(values, wire)? {
            Some(mut regions) => regions::all_reduce(&mut regions),
            None => self.by_host(values, |comm, values, room| tree_all_reduce(comm, values, room, wire)),
        }
    }

    /// Rank r gets the sums of `wanted[r]` of `values`, in the order of the tree; what else they hold is undefined afterwards.
    pub fn reduce_scatter(
        &mut self,
        values: &Tensor,
        wanted: &[Range<usize>],
    ) -> Result<(), CollectiveError> {
        let wire = self.order.wire();
        match self.on_cards(values, wire)? {
            Some(mut regions) => regions::reduce_scatter(&mut regions, wanted),
            None => self
                .by_host(values, |comm, values, room| tree_reduce_scatter(comm, values, wanted, room, wire)),
        }
    }

    /// Overwrites `values[slices[r]]` on every rank with those of rank r: all of each value. This rank's own, which nobody may write to, may be read
    /// meanwhile.
    pub fn all_gather(&mut self, values: &Tensor, slices: &[Range<usize>]) -> Result<(), CollectiveError> {
        match self.on_cards(values, Wire::F32)? {
            Some(mut regions) => regions::all_gather(&mut regions, slices),
            None => gather_on_host(self.comm.as_ref(), values, slices),
        }
    }

    /// `values` as what cards exchange, by messages that carry what `wire` says; `None` where hosts do.
    fn on_cards<'a>(
        &'a mut self,
        values: &'a Tensor,
        wire: Wire,
    ) -> Result<Option<OnCard<'a>>, CollectiveError> {
        let (rank, world_size) = (self.comm.rank(), self.comm.world_size());
        let Way::Cards(link, room) = &mut self.way else { return Ok(None) };
        let stream = native(&self.stream, rank)?;
        Ok(Some(OnCard { link: &**link, stream, rank, world_size, values, room, wire }))
    }

    /// Does `work` to `values` in the memory of the host.
    fn by_host(
        &mut self,
        values: &Tensor,
        work: impl FnOnce(&dyn Communicator, &mut [f32], &mut Vec<f32>) -> Result<(), CollectiveError>,
    ) -> Result<(), CollectiveError> {
        let Way::Host(room) = &mut self.way else { unreachable!("cards exchange what lies on them") };
        on_host(values, |values| work(self.comm.as_ref(), values, room))
    }
}

/// Does `work` to values where they lie, or to a copy in the host's memory that is copied back.
fn on_host(
    values: &Tensor,
    work: impl FnOnce(&mut [f32]) -> Result<(), CollectiveError>,
) -> Result<(), CollectiveError> {
    let mut here = values.to_device(Device::Cpu);
    work(as_f32_mut(&mut here))?;
    if values.device() != Device::Cpu {
        no_grad(|| values.shallow_clone().copy_(&here));
    }
    Ok(())
}

/// Overwrites what other ranks own of `values`, which are flat, with what they hold of it. Slices do not overlap, and of this rank's own nothing is
/// borrowed but to read it: another thread may be averaging it.
fn gather_on_host(
    comm: &dyn Communicator,
    values: &Tensor,
    slices: &[Range<usize>],
) -> Result<(), CollectiveError> {
    let part = |slice: &Range<usize>| values.narrow(0, slice.start as i64, slice.len() as i64);
    let is_here = values.device() == Device::Cpu;
    let empty = |len: usize| Tensor::empty([len as i64], (Kind::Float, Device::Cpu));
    let room = |(rank, slice): (usize, &Range<usize>)| match (rank == comm.rank(), is_here) {
        (true, _) => empty(0),
        (false, true) => part(slice),
        (false, false) => empty(slice.len()),
    };
    let own = part(&slices[comm.rank()]).to_device(Device::Cpu);
    let mut others: Vec<Tensor> = slices.iter().enumerate().map(room).collect();
    // SAFETY: who updates weights waits for all of them first.
    let own = unsafe { as_f32(&own) };
    all_gather_slices(comm, own, &mut others.iter_mut().map(as_f32_mut).collect::<Vec<_>>())?;
    if !is_here {
        let received = slices.iter().zip(&others).enumerate().filter(|(rank, _)| *rank != comm.rank());
        received.for_each(|(_, (slice, received))| no_grad(|| part(slice).copy_(received)));
    }
    Ok(())
}

/// NCCL, where it lies beside libtorch or the loader finds it.
pub fn library() -> &'static Result<Library, NoLibrary> {
    static LIBRARY: OnceLock<Result<Library, NoLibrary>> = OnceLock::new();
    LIBRARY.get_or_init(|| Library::load(&device::nccl_places()))
}

/// What this rank brings along.
fn own_card(device: Device) -> Result<(Library, [u8; 16]), String> {
    let Device::Cuda(number) = device else { return Err("computes on a processor".into()) };
    let library = library().as_ref().map_err(|error| error.to_string())?;
    Ok((library.clone(), card_identity(number)?))
}

/// What a rank says first: whether it has a card, or is asked for the memory of hosts.
const NO_CARD: u8 = 0;
const CARD: u8 = 1;
const ASKED: u8 = 2;

/// Why ranks do not exchange what lies on their cards.
#[derive(Debug, PartialEq, Eq)]
enum Apart {
    /// A rank is asked for the memory of hosts.
    Asked,
    /// They cannot.
    Because(String),
}

/// Why ranks that have said this of their cards do not exchange what lies there; `None` where they can.
fn why_apart(all: &[Vec<u8>]) -> Option<Apart> {
    if all.iter().any(|said| said.first() == Some(&ASKED)) {
        return Some(Apart::Asked);
    }
    let without = all.iter().position(|said| said.first() != Some(&CARD));
    if let Some(rank) = without {
        let why = String::from_utf8_lossy(all[rank].get(1..).unwrap_or_default());
        return Some(Apart::Because(format!("rank {rank}: {why}")));
    }
    let first = |rank: &usize| all[..*rank].iter().position(|other| *other == all[*rank]);
    let (rank, other) = (0..all.len()).find_map(|rank| first(&rank).map(|other| (rank, other)))?;
    Some(Apart::Because(format!("ranks {other} and {rank} share a card, which NCCL does not take")))
}

/// What `train` asks for of how ranks add up, and a rank alone does not heed.
pub fn without_effect(train: &TrainConfig, ranks: usize) -> Vec<&'static str> {
    let asked = [
        (
            train.collectives == CollectivesKind::Nccl,
            "train.collectives = \"nccl\" has no effect: one rank has nobody to add up with, and NCCL is not loaded",
        ),
        (
            train.reduce_precision == ReducePrecision::Bf16,
            "train.reduce_precision = \"bf16\" has no effect: one rank has nobody to add up with",
        ),
    ];
    asked.into_iter().filter(|(asked, _)| *asked && ranks == 1).map(|(_, what)| what).collect()
}

fn passed(event: &Event) -> Result<bool, String> {
    event.has_passed().map_err(|error| error.to_string())
}

fn native(stream: &Stream, rank: usize) -> Result<CardStream, CollectiveError> {
    stream.native().map(CardStream).map_err(|error| failed(rank, &error))
}

fn failed(rank: usize, error: &TrainError) -> CollectiveError {
    CollectiveError::Nccl { rank, peer: None, call: "work on the card", message: error.to_string() }
}

/// Values on a card, and room beside them. Messages and additions are queued on one stream, which keeps them in order.
struct OnCard<'a> {
    link: &'a dyn CardLink,
    stream: CardStream,
    rank: usize,
    world_size: usize,
    values: &'a Tensor,
    room: &'a mut Tensor,
    wire: Wire,
}

impl OnCard<'_> {
    fn at(&self, place: &Place) -> Tensor {
        let (of, range) = match place {
            Place::Values(range) => (self.values, range),
            Place::Room(range) => (&*self.room, range),
        };
        of.narrow(0, range.start as i64, range.len() as i64)
    }

    /// What messages are sent from and received into: the places themselves, or tensors of their own of 16 bits.
    fn ends(&self, message: &Message) -> [Tensor; 2] {
        let (send, recv) = (self.at(&Place::Values(message.send.clone())), self.at(&message.recv));
        match self.wire {
            Wire::F32 => [send, recv],
            Wire::Bf16 => {
                let (sent, received) = (pairs_of_short(&send), pairs_of_short(&recv));
                no_grad(|| sent.narrow(0, 0, send.size()[0]).copy_(&send));
                [sent, received]
            }
        }
    }

    /// The sums over ranks in whatever order the library likes.
    fn all_reduce_any_order(&mut self) -> Result<(), CollectiveError> {
        // SAFETY: the values are contiguous. They stay until the stream is through: who has them waits for it first, and memory of this stream that is
        // given back before goes to work behind this.
        unsafe { self.link.all_reduce(self.values.data_ptr().cast(), self.values.numel(), self.stream) }
    }
}

impl Regions for OnCard<'_> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world_size(&self) -> usize {
        self.world_size
    }

    fn len(&self) -> usize {
        self.values.numel()
    }

    fn begin(&mut self, room: usize) -> Result<(), CollectiveError> {
        if self.room.numel() < room {
            *self.room = Tensor::empty([room as i64], (Kind::Float, self.values.device()));
        }
        Ok(())
    }

    fn exchange(&mut self, messages: &[Message]) -> Result<(), CollectiveError> {
        let ends: Vec<[Tensor; 2]> = messages.iter().map(|message| self.ends(message)).collect();
        let stretch = |(message, [send, recv]): (&Message, &[Tensor; 2])| Stretch {
            peer: message.peer,
            send: (send.data_ptr() as *const f32, words(send)),
            recv: (recv.data_ptr() as *mut f32, words(recv)),
        };
        let stretches: Vec<Stretch> = messages.iter().zip(&ends).map(stretch).collect();
        // SAFETY: views of `values` and of `room`, or tensors of this stream, which are contiguous; all stay as in `all_reduce_any_order`. That they
        // do not overlap is the contract of messages.
        unsafe { self.link.exchange(&stretches, self.stream)? };
        if self.wire == Wire::Bf16 {
            for (message, [_, received]) in messages.iter().zip(&ends) {
                let mut recv = self.at(&message.recv);
                no_grad(|| recv.copy_(&received.narrow(0, 0, recv.size()[0])));
            }
        }
        Ok(())
    }

    fn add(&mut self, sums: &Place, terms: &Place) -> Result<(), CollectiveError> {
        no_grad(|| _ = self.at(sums).g_add_(&self.at(terms)));
        Ok(())
    }

    fn copy(&mut self, to: &Place, from: &Place) -> Result<(), CollectiveError> {
        no_grad(|| self.at(to).copy_(&self.at(from)));
        Ok(())
    }

    fn round(&mut self, values: &Range<usize>) -> Result<(), CollectiveError> {
        if self.wire == Wire::Bf16 {
            let mut values = self.at(&Place::Values(values.clone()));
            no_grad(|| values.copy_(&values.to_kind(Kind::BFloat16)));
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), CollectiveError> {
        // The stream keeps the order, and whoever wants the end waits for a mark.
        Ok(())
    }
}

/// Room for as many numbers of 16 bits as there are `values`, in whole words of f32, which is what links pass on.
fn pairs_of_short(values: &Tensor) -> Tensor {
    let even = values.numel().next_multiple_of(2) as i64;
    Tensor::empty([even], (Kind::BFloat16, values.device()))
}

/// How many f32 have as many bytes as `values`.
fn words(values: &Tensor) -> usize {
    values.numel() * values.kind().elt_size_in_bytes() / size_of::<f32>()
}

#[cfg(test)]
mod tests;
