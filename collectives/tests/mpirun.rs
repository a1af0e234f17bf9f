//! The MPI communicator between real processes: each test starts [`rank_program`] of this same binary
//! on several ranks through `mpirun`.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Output};
use std::sync::Arc;

use segue_collectives::mpi::Mpi;
use segue_collectives::{Communicator, bench, consensus, panic_hook, tree};

/// Tells the ranks which of the programs below to run.
const PROGRAM: &str = "SEGUE_TEST_PROGRAM";
/// Tells the ranks how many they are: a process that missed the others would be a world of one.
const RANKS: &str = "SEGUE_TEST_RANKS";
/// What rank 0 prints at its end.
const ENDED: &str = "all ranks have run the program";

/// Runs `program` on `ranks` ranks; `None` where there is no `mpirun`, and says so.
fn mpirun(ranks: usize, program: &str) -> Option<Output> {
    let mut command = Command::new("mpirun");
    command.args(["--oversubscribe", "--bind-to", "none"]);
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if is_root {
        command.arg("--allow-run-as-root");
    }
    command.args(["-n", &ranks.to_string()]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "rank_program", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(PROGRAM, program).env(RANKS, ranks.to_string()).env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    match command.output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            segue_skip::skip(segue_skip::Need::Mpi, "no mpirun on this machine");
            None
        }
        Err(error) => panic!("mpirun cannot be started: {error}"),
    }
}

fn assert_success(output: &Output) {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stdout.contains(ENDED), "{}\n{stdout}\n{stderr}", output.status);
}

#[test]
fn collectives_work_between_processes() {
    for ranks in [1, 2, 3, 4, 6] {
        let Some(output) = mpirun(ranks, "collectives") else { return };
        assert_success(&output);
    }
}

#[test]
fn two_threads_of_a_rank_talk_at_the_same_time() {
    for ranks in [2, 3] {
        let Some(output) = mpirun(ranks, "threads") else { return };
        assert_success(&output);
    }
}

#[test]
fn a_panic_on_one_rank_ends_the_job_with_code_70() {
    let Some(output) = mpirun(3, "panic") else { return };
    assert_eq!(output.status.code(), Some(70), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stderr).contains("rank 1 meets a bug"));
}

#[test]
fn a_message_too_short_is_an_error() {
    let Some(output) = mpirun(2, "short message") else { return };
    assert_success(&output);
}

#[test]
fn a_message_too_long_ends_the_job_with_code_69() {
    let Some(output) = mpirun(2, "long message") else { return };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{stderr}");
    assert!(stderr.contains("error: rank 1: MPI_Sendrecv with rank 0 failed"), "{stderr}");
}

#[test]
#[ignore = "started by the other tests, on each rank"]
fn rank_program() {
    let comm: Arc<dyn Communicator> = Arc::new(Mpi::initialize().unwrap());
    assert!(Mpi::initialize().is_err(), "a second owner of MPI");
    assert_eq!(std::env::var(RANKS).ok(), Some(comm.world_size().to_string()));
    match std::env::var(PROGRAM).as_deref() {
        Ok("collectives") => collectives(&*comm),
        Ok("threads") => threads(&*comm),
        Ok("panic") => panic_on_rank_1(&comm),
        Ok("short message") => short_message(&*comm),
        Ok("long message") => long_message(&*comm),
        other => panic!("no program named {other:?}"),
    }
    comm.barrier().unwrap();
    if comm.rank() == 0 {
        println!("{ENDED}");
    }
}

/// Every byte tells its place and its sender.
fn pattern(rank: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251 + rank * 97) as u8).collect()
}

fn collectives(comm: &dyn Communicator) {
    let (rank, ranks) = (comm.rank(), comm.world_size());

    // On both sides of the cuts: nothing, the first message, one piece, several.
    let lengths = [0, 1, 1023, 1024, 1025, (1 << 20) + 1023, (1 << 20) + 1024, (3 << 20) + 5];
    for (i, len) in lengths.into_iter().enumerate() {
        let back = lengths[lengths.len() - 1 - i];
        let (rank_len, peer_len) = if rank % 2 == 0 { (len, back) } else { (back, len) };
        let peer = rank ^ 1;
        if peer < ranks {
            let mut received = vec![0; peer_len];
            comm.exchange(peer, &pattern(rank, rank_len), &mut received).unwrap();
            assert!(received == pattern(peer, peer_len), "exchange of {rank_len} for {peer_len} bytes");
        }
        if rank == 0 {
            (1..ranks).for_each(|peer| comm.send(peer, &pattern(peer, len)).unwrap());
        } else {
            let mut received = vec![0; len];
            comm.recv(0, &mut received).unwrap();
            assert!(received == pattern(rank, len), "{len} bytes sent");
        }
        let root = ranks - 1;
        let mut bytes = pattern(rank, len);
        comm.broadcast(root, &mut bytes).unwrap();
        assert!(bytes == pattern(root, len), "broadcast of {len} bytes");

        let own = pattern(rank, len * rank);
        let every: Vec<_> = (0..ranks).map(|rank| pattern(rank, len * rank)).collect();
        assert!(comm.all_gather(&own).unwrap() == every, "all_gather of {len} bytes");
        assert!(comm.gather(root, &own).unwrap() == (rank == root).then_some(every), "gather of {len} bytes");
        comm.barrier().unwrap();
    }

    for raised in 0..ranks {
        assert!(consensus::any_rank(comm, rank == raised).unwrap());
    }
    assert!(!consensus::any_rank(comm, false).unwrap());

    // Whole numbers: their sum has the same bits in any order.
    let mut values: Vec<f32> = (0..600_000).map(|i| (i % 1000 + rank) as f32).collect();
    let sum = |i: usize| (i % 1000 * ranks + ranks * (ranks - 1) / 2) as f32;
    comm.all_reduce_any_order(&mut values).unwrap();
    assert!(values.iter().enumerate().all(|(i, value)| *value == sum(i)));

    tree_has_the_naive_bits(comm);
    let timings = bench::bench_all_reduce(comm, 1 << 16, 2).unwrap();
    assert_eq!((timings.tree.len(), timings.short.len(), timings.any_order.len()), (2, 2, 2));
}

fn tree_has_the_naive_bits(comm: &dyn Communicator) {
    let term = |rank: usize, i: usize| ((i + 1) as f32).sqrt() * [1.0, -1e-3, 1e4, -1e7][(rank + i) % 4];
    for len in [0, 1, 5, 1000, 1_300_007] {
        let mut values: Vec<f32> = (0..len).map(|i| term(comm.rank(), i)).collect();
        tree::tree_all_reduce(comm, &mut values, &mut Vec::new(), tree::Wire::F32).unwrap();
        for (i, value) in values.iter().enumerate() {
            let of = |rank| term(rank, i);
            let naive = match comm.world_size() {
                1 => of(0),
                2 => of(0) + of(1),
                3 => (of(0) + of(1)) + of(2),
                4 => (of(0) + of(1)) + (of(2) + of(3)),
                6 => ((of(0) + of(1)) + (of(2) + of(3))) + (of(4) + of(5)),
                other => panic!("no expected sum for {other} ranks"),
            };
            assert_eq!(value.to_bits(), naive.to_bits(), "value {i} of {len}");
        }
    }
}

fn threads(comm: &dyn Communicator) {
    let duplicate = comm.duplicate().unwrap();
    let ranks = comm.world_size() as f32;
    let sums = |comm: &dyn Communicator, first: f32| {
        for round in 0..50 {
            let mut values = vec![first + round as f32; 20_000];
            tree::tree_all_reduce(comm, &mut values, &mut Vec::new(), tree::Wire::F32).unwrap();
            assert!(values.iter().all(|value| *value == ranks * (first + round as f32)));
            comm.barrier().unwrap();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| sums(&*duplicate, 1000.0));
        sums(comm, 0.0);
    });
}

fn panic_on_rank_1(comm: &Arc<dyn Communicator>) {
    panic_hook::install_panic_hook(comm);
    if comm.rank() == 1 {
        // On a thread other than the one that started MPI.
        std::thread::spawn(|| panic!("rank 1 meets a bug")).join().unwrap_err();
    }
    comm.recv((comm.rank() + 1) % 3, &mut [0]).unwrap();
}

fn short_message(comm: &dyn Communicator) {
    let result = comm.exchange(1 - comm.rank(), &vec![0; 8 - comm.rank()], &mut [0; 8]);
    if comm.rank() == 1 {
        return result.unwrap();
    }
    let error = result.unwrap_err();
    assert!(error.to_string().contains("rank 0 expected 8 bytes from rank 1"), "{error}");
    assert_eq!(error.exit_code(), 70);
}

fn long_message(comm: &dyn Communicator) {
    comm.exchange(1 - comm.rank(), &[0; 8], &mut vec![0; 8 - comm.rank()]).unwrap();
    comm.barrier().unwrap();
}
