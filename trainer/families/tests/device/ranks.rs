//! Ranks that add up what lies on the device.

use std::ffi::c_void;

use segue_collectives::local::Local;
use segue_collectives::nccl::{CardLink, CardStream, Nccl};
use segue_collectives::{Communicator, simulated};
use segue_engine::Engine;
use segue_families::MODELS;
use segue_kernels::libtorch::stream::{Event, Stream};
use segue_language::{Frequencies, build, random_batch};
use tch::{Device, Kind, Tensor};

use crate::{compute, device};

/// Weights after a few steps over four micro-steps, as bytes of the host.
fn trained(comm: &dyn Communicator, settings: &[&str]) -> Vec<Tensor> {
    let sizes = [
        "model.model_type=transfo-xl",
        "model.vocab_size=41",
        "model.d_model=24",
        "model.n_head=3",
        "model.d_inner=32",
        "model.n_layer=2",
        "model.mem_len=10",
        "train.segment=12",
        "train.lanes=8",
        "train.micro_batch=2",
        "optim.lr=1e-3",
    ];
    let overrides: Vec<String> = sizes.iter().chain(settings).map(|word| word.to_string()).collect();
    let config = MODELS.load(None, &overrides).unwrap().config;
    let compute = compute();
    let mut engine = Engine::new(&config, build(&config, compute).unwrap(), comm).unwrap();
    for step in 1..=4 {
        let own = engine.layout.micro_steps.clone();
        let batches = own
            .map(|number| {
                random_batch(&config.train, &config.model, &config.own, Frequencies::Uniform, number, step)
                    .to(compute.device())
            })
            .collect();
        engine.step(step, &batches).unwrap();
    }
    engine.learner.parameters().tensors().iter().map(|t| t.detach().to_device(Device::Cpu).copy()).collect()
}

/// Ranks of one process share the card, which NCCL does not take: sums go through the memory of the host, beside backward.
#[test]
fn ranks_that_share_a_card_end_with_the_bytes_of_one() {
    let rows = ["model.cutoffs=[8,20]", "model.div_val=2"];
    for settings in [
        &rows[..],
        &["train.bucket_bytes=2048"],
        &["optim.kind=lamb"],
        &["train.shard=optimizer"],
        &["train.shard=gradients", "train.bucket_bytes=2048"],
    ] {
        let alone = trained(&Local, settings);
        for ranks in [2, 4] {
            for found in simulated::run(ranks, |comm| trained(comm, settings)) {
                assert!(found == alone, "{ranks} ranks, {settings:?}");
            }
        }
    }
}

/// What is queued beside comes behind what it waits for, and is there once its mark has passed.
#[test]
fn a_stream_beside_waits_for_what_makes_its_values() {
    const SIDE: i64 = 2048;
    let (device, side) = (device(), Stream::beside(device()).unwrap());
    let factor = Tensor::ones([SIDE, SIDE], (Kind::Float, device)) / SIDE as f64;
    for round in 1..=5 {
        let mut made = Tensor::full([SIDE, SIDE], round as f64, (Kind::Float, device));
        // Long enough for a copy that does not wait to come too early.
        (0..8).for_each(|_| made = made.matmul(&factor));
        let mark = Event::now(device).unwrap();
        let copy = {
            let _beside = side.enter().unwrap();
            side.wait_for(&mark).unwrap();
            let copy = &made + 1.0;
            let over = Event::now(device).unwrap();
            while !over.has_passed().unwrap() {
                std::thread::yield_now();
            }
            copy
        };
        let (least, most) = (copy.min().double_value(&[]), copy.max().double_value(&[]));
        assert!(
            (least, most) == (round as f64 + 1.0, round as f64 + 1.0),
            "{least} to {most} in round {round}"
        );
    }
}

/// NCCL itself, as far as one card tells: that it loads, joins, and gives back what one rank has.
#[test]
fn nccl_joins_a_rank_that_is_alone() {
    let device = device();
    if device == Device::Cpu {
        segue_skip::skip(segue_skip::Need::Machine, "a card alone tells this");
        return;
    }
    let library = segue_engine::nccl().as_ref().unwrap_or_else(|why| panic!("{why}"));
    let stream = Stream::beside(device).unwrap();
    let _beside = stream.enter().unwrap();
    let nccl = Nccl::open(library, &Local).unwrap().unwrap_or_else(|why| panic!("{why}"));
    let values = Tensor::arange(100_003, (Kind::Float, device)).sin();
    let expected = values.to_device(Device::Cpu).copy();
    let native: *mut c_void = stream.native().unwrap();
    assert!(!native.is_null());
    // SAFETY: the values are contiguous, made on this stream, and stay until it is through.
    unsafe { nccl.all_reduce(values.data_ptr().cast(), values.numel(), CardStream(native)) }.unwrap();
    let over = Event::now(device).unwrap();
    nccl.wait(&mut || over.has_passed().map_err(|error| error.to_string())).unwrap();
    assert_eq!(values.to_device(Device::Cpu), expected);
}
