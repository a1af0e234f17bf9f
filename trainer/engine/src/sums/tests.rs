use segue_collectives::simulated::{self, Simulated};

use super::*;

impl Sums {
    /// Over ranks of a test, on the processor.
    pub fn simulated(comm: &Simulated, exact: bool) -> Self {
        let train = TrainConfig { collectives: CollectivesKind::Host, exact, ..TrainConfig::default() };
        Self::choose(&train, Device::Cpu, comm.duplicate().unwrap()).unwrap()
    }

    /// The same by the way of cards, over a link that copies memory of the host.
    pub fn of_cards(comm: &Simulated, exact: bool) -> Self {
        Self { order: Self::simulated(comm, exact).order, ..Self::over_link(comm, Self::copying_link(comm)) }
    }

    /// A link that copies memory of the host.
    pub fn copying_link(comm: &Simulated) -> Box<dyn CardLink> {
        Box::new(Copied(comm.duplicate().unwrap()))
    }

    /// The same by messages of 16 bits.
    fn short(self) -> Self {
        Self { order: Order::Tree(Wire::Bf16), ..self }
    }

    /// By the way of cards over a link that adds up in whatever order.
    pub fn over_link(comm: &Simulated, link: Box<dyn CardLink>) -> Self {
        let way = Way::Cards(link, Tensor::zeros([0], (Kind::Float, Device::Cpu)));
        Self { way, ..Self::simulated(comm, false) }
    }
}

struct Copied(Box<dyn Communicator>);

impl CardLink for Copied {
    unsafe fn exchange(&self, stretches: &[Stretch], _: CardStream) -> Result<(), CollectiveError> {
        let empty = |len: &usize| *len == 0;
        for stretch in stretches.iter().filter(|stretch| !empty(&stretch.send.1)) {
            // SAFETY: the caller's word.
            let sent = unsafe { std::slice::from_raw_parts(stretch.send.0, stretch.send.1) };
            self.0.send(stretch.peer, bytemuck::cast_slice(sent))?;
        }
        for stretch in stretches.iter().filter(|stretch| !empty(&stretch.recv.1)) {
            // SAFETY: as above.
            let received = unsafe { std::slice::from_raw_parts_mut(stretch.recv.0, stretch.recv.1) };
            self.0.recv(stretch.peer, bytemuck::cast_slice_mut(received))?;
        }
        Ok(())
    }

    unsafe fn all_reduce(&self, values: *mut f32, len: usize, _: CardStream) -> Result<(), CollectiveError> {
        // SAFETY: as above.
        self.0.all_reduce_any_order(unsafe { std::slice::from_raw_parts_mut(values, len) })
    }

    fn wait(&self, done: &mut dyn FnMut() -> Result<bool, String>) -> Result<(), CollectiveError> {
        assert_eq!(done(), Ok(true));
        Ok(())
    }
}

/// Values whose sum tells in which order they were added.
fn term(rank: usize, len: i64) -> Tensor {
    let i = Tensor::arange(len, (Kind::Float, Device::Cpu));
    ((&i * 0.37 + rank as f64).sin()
        * (i * 1.7 + 3.0 * rank as f64).cos().exp2()
        * 1e3f64.powi(rank as i32 % 3))
    .to_kind(Kind::Float)
}

fn bits(tensor: &Tensor) -> Vec<u32> {
    Vec::<f32>::try_from(tensor).unwrap().into_iter().map(f32::to_bits).collect()
}

/// Of odd lengths too: cards pass on pairs of 16 bits.
#[test]
fn sums_over_cards_have_the_bits_of_those_over_hosts() {
    for (world_size, is_short) in (2..=6).flat_map(|ranks| [(ranks, false), (ranks, true)]) {
        for len in [1, 5, 1000] {
            let wanted: Vec<_> = (0..world_size).map(|rank| rank.min(len as usize)..len as usize).collect();
            simulated::run(world_size, |comm| {
                let of = |sums: Sums| if is_short { sums.short() } else { sums };
                let mut hosts = of(Sums::simulated(comm, true));
                let mut cards = of(Sums::of_cards(comm, true));
                let rank = comm.rank();
                let [own, other] = [term(rank, len), term(rank, len)];
                hosts.all_reduce(&own).unwrap();
                cards.all_reduce(&other).unwrap();
                assert!(bits(&own) == bits(&other), "{rank} of {world_size}, {len}");
                let [own, other] = [term(rank, len), term(rank, len)];
                hosts.reduce_scatter(&own, &wanted).unwrap();
                cards.reduce_scatter(&other, &wanted).unwrap();
                let part = |t: &Tensor| bits(t)[wanted[rank].clone()].to_vec();
                assert!(part(&own) == part(&other), "{rank} of {world_size}, {len}");
            });
        }
    }
}

/// Weights that ranks have updated in parts are passed on as they are.
#[test]
fn gathered_values_are_not_rounded() {
    simulated::run(2, |comm| {
        for mut sums in [Sums::simulated(comm, true).short(), Sums::of_cards(comm, true).short()] {
            let values = Tensor::from_slice(&[1.0 + comm.rank() as f32 / 3.0; 2]);
            sums.all_gather(&values, &[0..1, 1..2]).unwrap();
            assert_eq!(Vec::<f32>::try_from(values).unwrap(), [1.0, 1.0 + 1.0 / 3.0]);
        }
    });
}

#[test]
fn what_a_run_asks_for_is_how_its_terms_meet() {
    let order = |exact, reduce_precision| {
        Order::of(&TrainConfig { exact, reduce_precision, ..TrainConfig::default() })
    };
    assert_eq!(order(true, ReducePrecision::F32), Order::Tree(Wire::F32));
    assert_eq!(order(false, ReducePrecision::F32), Order::Any);
    assert_eq!(order(false, ReducePrecision::Bf16), Order::Tree(Wire::Bf16));
}

#[test]
fn a_library_may_add_in_its_own_order_where_the_run_is_not_exact() {
    simulated::run(4, |comm| {
        let sum = |mut sums: Sums| {
            let values = term(comm.rank(), 1000);
            sums.all_reduce(&values).unwrap();
            bits(&values)
        };
        let tree = sum(Sums::of_cards(comm, true));
        assert!(sum(Sums::simulated(comm, true)) == tree);
        let library = sum(Sums::of_cards(comm, false));
        assert!(sum(Sums::simulated(comm, false)) == library && library != tree);
    });
}

#[test]
fn cards_are_joined_where_every_rank_has_one_of_its_own() {
    let card = |number: u8| [&[1][..], &[number; 16]].concat();
    let none = [&[0][..], b"computes on a processor"].concat();
    assert_eq!(why_apart(&[card(1), card(2), card(3)]), None);
    let because = |why: &str| Some(Apart::Because(why.into()));
    assert_eq!(why_apart(&[card(1), none]), because("rank 1: computes on a processor"));
    let shared = why_apart(&[card(1), card(2), card(1)]);
    assert_eq!(shared, because("ranks 0 and 2 share a card, which NCCL does not take"));
    assert_eq!(why_apart(&[card(1), vec![ASKED]]), Some(Apart::Asked));
}

#[test]
fn ranks_on_processors_add_up_on_hosts_unless_nccl_is_asked_for() {
    simulated::run(2, |comm| {
        let choose = |collectives| {
            let train = TrainConfig { collectives, ..TrainConfig::default() };
            Sums::choose(&train, Device::Cpu, comm.duplicate().unwrap())
        };
        assert!(matches!(choose(CollectivesKind::Auto).unwrap().way, Way::Host(_)));
        let error = choose(CollectivesKind::Nccl).err().unwrap();
        assert_eq!(
            (error.exit_code(), error.to_string().as_str()),
            (78, "NCCL cannot be used: rank 0: computes on a processor")
        );
        assert!(error.hint().unwrap().starts_with("set train.collectives=auto"));
    });
}

#[test]
fn a_rank_alone_is_told_what_it_asks_for_in_vain() {
    let train = TrainConfig {
        collectives: CollectivesKind::Nccl,
        reduce_precision: ReducePrecision::Bf16,
        exact: false,
        ..TrainConfig::default()
    };
    let told = without_effect(&train, 1);
    assert!(told.len() == 2 && told.iter().all(|what| what.contains("has no effect")), "{told:?}");
    assert!(without_effect(&train, 2).is_empty());
    assert!(without_effect(&TrainConfig::default(), 1).is_empty());
}
