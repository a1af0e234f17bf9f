//! Jobs of which one rank fails, differs or hangs: they end, with a word of why.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use segue_tests::{Workplace, alone, at_once, children, mpirun, mpirun_each, stderr, succeed};

/// Runs a command that must end with this code and say all of these words.
#[track_caller]
fn ends(mut command: Command, code: i32, words: &[&str]) -> String {
    says(at_once(&mut command), code, words)
}

/// [`ends`] of a job whose other ranks are asked to stop first, as Open MPI does it where nobody says otherwise.
fn says(command: &mut Command, code: i32, words: &[&str]) -> String {
    let output = command.stdin(Stdio::null()).output().expect("the command starts");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for word in words {
        assert!(said.contains(word), "`{word}` is not in what it said:\n{said}");
    }
    said
}

#[test]
fn one_rank_that_cannot_begin_ends_the_job_and_says_why() {
    let place = Workplace::new();
    let good = place.pretrain("run", &["train.steps=4"]);
    let bad = place.pretrain("run", &["train.step=4"]);
    says(
        &mut mpirun_each(&[(&[], &good), (&[], &bad)]),
        78,
        &["error on rank 1: unknown key `train.step`", "train.steps"],
    );
    let missing = place.pretrain("run", &["data.corpus=nowhere"]);
    ends(mpirun_each(&[(&[], &good), (&[], &missing)]), 66, &["error on rank 1", "nowhere"]);
    // The first rank too.
    ends(mpirun_each(&[(&[], &missing), (&[], &good)]), 66, &["nowhere"]);
    // Fine-tuning, with a model that is missing on one host.
    let tune = place.finetune("tuned", &[]);
    let mut no_model = tune.clone();
    no_model[5] = place.text("no-such-model");
    ends(mpirun_each(&[(&[], &tune), (&[], &no_model)]), 66, &["error on rank 1", "no-such-model"]);
}

#[test]
fn what_all_ranks_fail_for_is_said_once() {
    let place = Workplace::new();
    let said = ends(mpirun(3, &place.pretrain("run", &["train.step=4"])), 78, &["unknown key `train.step`"]);
    assert_eq!(said.matches("unknown key").count(), 1, "{said}");
}

#[test]
fn ranks_that_would_do_different_things_are_told_apart_before_the_first_step() {
    let place = Workplace::new();
    let run = |more: &str| place.pretrain("run", &["train.steps=4", "eval.every=2", more]);
    // Each of them decides which calls a rank makes, or how long they are.
    for (then, now, says) in [
        ("eval.every=2", "eval.every=3", "eval.every: 2 on rank 0, 3 on rank 1"),
        ("checkpoint.every=2", "checkpoint.every=4", "checkpoint.every: 2 on rank 0, 4 on rank 1"),
        ("train.bucket_bytes=4096", "train.bucket_bytes=8192", "train.bucket_bytes"),
        ("train.steps=4", "train.steps=8", "train.steps: 4 on rank 0, 8 on rank 1"),
        ("train.collectives=host", "train.collectives=auto", "train.collectives"),
        ("log.trace_steps=2", "log.trace_steps=0", "log.trace_steps: 2 on rank 0, 0 on rank 1"),
        ("log.noise_scale_every=2", "log.noise_scale_every=0", "log.noise_scale_every"),
    ] {
        ends(
            mpirun_each(&[(&[], &run(then)), (&[], &run(now))]),
            78,
            &["rank 1 does not do what rank 0 does", says],
        );
    }
    let differs = mpirun_each(&[(&[], &run("log.every=1")), (&[], &run("log.every=2"))]);
    ends(differs, 0, &[]);
    // Hosts may keep texts in folders of their own: not the folders are compared, but the texts.
    let text = |name: &str, folder: &str| {
        std::fs::write(place.path("valid.txt"), name.repeat(1000)).unwrap();
        place.build(folder, &["--preset", "documents", "--tokenizer-kind", "byte"]);
        run(&format!("data.valid={}", place.text(folder)))
    };
    let (here, there, other) =
        (text("a text. ", "here"), text("a text. ", "there"), text("another. ", "other"));
    ends(mpirun_each(&[(&[], &here), (&[], &other)]), 78, &["rank.evaluated_on", "on rank 1"]);
    ends(mpirun_each(&[(&[], &here), (&[], &there)]), 0, &[]);
}

#[test]
fn kernels_for_other_processors_are_refused_where_every_bit_counts() {
    let place = Workplace::new();
    let slow = ["env", "ATEN_CPU_CAPABILITY=default"];
    let exact = place.pretrain("exact", &["train.steps=4"]);
    ends(
        mpirun_each(&[(&[], &exact), (&slow, &exact)]),
        78,
        &["rank.libtorch", "on rank 1", "ATEN_CPU_CAPABILITY"],
    );
    // Kernels of AVX2 and AVX-512 sum in another order and update alike, so that replicas stay equal: the sums they take
    // from each other.
    let slow = ["env", "ATEN_CPU_CAPABILITY=avx2"];
    let loose =
        place.pretrain("loose", &["train.steps=12", "train.exact=false", "train.check_replicas_every=1"]);
    ends(mpirun_each(&[(&[], &loose), (&slow, &loose)]), 0, &[]);
}

/// 4096 lanes that carry 128 MiB: over checkpoints, rank 0 needs no more than another rank, but for a small model.
#[test]
fn a_checkpoint_takes_no_more_memory_on_rank_0_than_its_own_lanes() {
    const SHARE: u64 = 4096 * 4 * 64 * 32 * 4 / RANKS as u64;
    const RANKS: usize = 4;
    let place = Workplace::new();
    let wide = [
        "train.lanes=4096",
        "train.micro_batch=256",
        "train.segment=8",
        "model.d_model=32",
        "model.n_layer=4",
        "model.mem_len=64",
        "train.steps=6",
        "checkpoint.every=2",
        "eval.every=0",
        "log.every=1",
    ];
    let mut job = mpirun(RANKS, &place.pretrain("run", &wide))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("mpirun starts");
    // The most that each rank has had resident, as of the last look before it ended.
    let mut peaks = [0; RANKS];
    while job.try_wait().unwrap().is_none() {
        for (peak, rank) in peaks.iter_mut().zip(children(job.id())) {
            *peak = most_resident(rank).unwrap_or(0).max(*peak);
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(job.wait().unwrap().success());
    println!("a share is {SHARE} bytes; peaks {peaks:?}");
    // The lanes of the other ranks would be three shares more. A rank that writes while a step goes on has its own once more,
    // or not: that is a matter of time.
    let others = *peaks[1..].iter().max().unwrap();
    assert!(others > SHARE && peaks[0] < others + 2 * SHARE, "a share is {SHARE} bytes; peaks {peaks:?}");
    assert!(place.path("run/checkpoints/step-00000006/carry-03840.safetensors").is_file());
}

/// Bytes that a process had resident at most.
fn most_resident(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// A rank that is stopped is one whose host is gone, as the others see it.
#[test]
fn a_rank_that_does_not_answer_ends_the_job_at_the_deadline() {
    let place = Workplace::new();
    let endless =
        ["train.steps=1000000", "train.deadline=2", "log.every=1", "checkpoint.every=0", "eval.every=0"];
    let mut job = mpirun(2, &place.pretrain("run", &endless))
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("mpirun starts");
    let mut lines = BufReader::new(job.stderr.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.find(|line| line.contains("step")).expect("a step is made");
    let victim = children(job.id())[1];
    // SAFETY: the call has no conditions.
    assert_eq!(unsafe { libc::kill(victim as i32, libc::SIGSTOP) }, 0, "after {first}");
    let said: Vec<String> = lines.collect();
    let status = job.wait().unwrap();
    let said = said.join("\n");
    assert_eq!(status.code(), Some(82), "{said}");
    for word in ["error on rank 0: MPI_", "has waited 2 s for", "in step", "train.deadline"] {
        assert!(said.contains(word), "`{word}` is not in what it said:\n{said}");
    }
}

/// Each of the files takes less than the deadline, and all of them more: those of the best model, then those of the checkpoint, on either rank.
#[test]
fn a_write_that_gets_on_may_take_longer_than_the_deadline() {
    let place = Workplace::new();
    let keys =
        ["train.steps=2", "train.deadline=2", "checkpoint.every=0", "eval.every=2", "checkpoint.best=true"];
    let mut job = mpirun(2, &place.pretrain("run", &keys));
    let faults = [
        "slow=600@folder.sync-file:rank=0:hit=1..4",
        "slow=1300@tensors.write:rank=1:hit=1..2",
        "slow=600@folder.sync-file:rank=0:hit=9..12",
    ];
    job.env("SEGUE_FAULTS", faults.join(";"));
    ends(job, 0, &[]);
    assert!(place.path("run/checkpoints/step-00000002/MANIFEST.json").is_file());
}

/// A flush is one call, which says nothing of how far it is.
#[test]
fn a_flush_may_take_longer_than_the_deadline() {
    let place = Workplace::new();
    let keys = ["train.steps=2", "train.deadline=2", "checkpoint.every=0", "eval.every=0"];
    let mut job = mpirun(2, &place.pretrain("run", &keys));
    job.env("SEGUE_FAULTS", "slow=4500@folder.sync-file:rank=0:hit=1");
    ends(job, 0, &[]);
    assert!(place.path("run/checkpoints/step-00000002/MANIFEST.json").is_file());
}

#[test]
fn a_write_that_hangs_ends_the_job_at_the_deadline() {
    let place = Workplace::new();
    let keys = ["train.steps=2", "train.deadline=1", "checkpoint.every=0", "eval.every=0"];
    let mut job = mpirun(2, &place.pretrain("run", &keys));
    job.env("SEGUE_FAULTS", "slow=600000@folder.sync-file:rank=0");
    ends(job, 82, &["error on rank 1: MPI_", "has waited 1 s for", "train.deadline"]);
}

#[test]
fn doctor_compares_the_hosts_of_its_ranks() {
    let place = Workplace::new();
    let corpus = place.path("corpus").display().to_string();
    let folder = place.path("").display().to_string();
    let words = |corpus: &str| {
        ["doctor", "--json", "--folder", &folder, "--corpus", corpus].map(String::from).to_vec()
    };
    let answer = succeed(mpirun(2, &words(&corpus)));
    let of = |rank: u64| {
        let all = answer["findings"].as_array().expect("findings").iter();
        all.filter(|finding| finding["rank"] == rank)
            .map(|f| f["what"].as_str().unwrap().to_string())
            .collect()
    };
    let (first, second): (Vec<String>, Vec<String>) = (of(0), of(1));
    for what in ["arithmetic", "products", "memory", "disk", "corpus"] {
        assert!(first.iter().any(|w| w == what) && second.iter().any(|w| w == what), "{what}: {answer:#}");
    }
    assert!(second.iter().any(|what| what == "link"), "{answer:#}");
    ends(mpirun(2, &words("nowhere")), 1, &["missing", "corpus", "nowhere"]);
}

/// As `prun` starts ranks, and Flux with PMIx.
#[test]
fn ranks_that_are_told_no_number_of_ranks_take_that_of_mpi() {
    let place = Workplace::new();
    let words = place.pretrain("run", &["train.steps=2"]);
    let unset = ["RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"].map(|name| format!("-uOMPI_COMM_WORLD_{name}"));
    let bare: Vec<&str> = ["env"].into_iter().chain(unset.iter().map(String::as_str)).collect();
    let flux = |rank| [&bare[..], &["FLUX_JOB_SIZE=2", rank]].concat();
    let said = ends(mpirun_each(&[(&bare, &words), (&bare, &words)]), 0, &[]);
    let place_of_another = Workplace::new();
    let words = place_of_another.pretrain("run", &["train.steps=2"]);
    let (first, second) = (flux("FLUX_TASK_RANK=0"), flux("FLUX_TASK_RANK=1"));
    ends(mpirun_each(&[(&first, &words), (&second, &words)]), 0, &[]);
    ends(mpirun_each(&[(&second, &words), (&first, &words)]), 78, &["FLUX_JOB_SIZE=2 but PMIX_RANK="]);
    assert!(!said.contains("alone"), "{said}");
}

/// A job of ranks that each take themselves for the only one would write over itself.
#[test]
fn a_launcher_is_believed_only_as_far_as_mpi_agrees() {
    let place = Workplace::new();
    let (corpus, run) =
        (format!("data.corpus={}", place.text("corpus")), format!("run.dir={}", place.text("run")));
    let under = |variables: &[(&str, &str)], args: &[&str]| {
        let mut command = alone(args);
        command.envs(variables.iter().copied());
        command
    };
    let pretrain: &[&str] = &["pretrain", &run, &corpus];
    let mpich = [("PMI_RANK", "1"), ("PMI_SIZE", "2")];
    let why = ["PMI_RANK=1 PMI_SIZE=2 announce several ranks", "MPI has rank 0 of 1", "mpirun of"];
    for args in
        [pretrain, &["finetune", "--task", "sst2"], &["eval", "--model", "m"], &["generate", "--model", "m"]]
    {
        ends(under(&mpich, args), 78, &why);
    }
    ends(under(&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2")], pretrain), 78, &why[1..]);
    let said =
        ends(under(&[("PMIX_RANK", "1")], pretrain), 78, &["PMIX_RANK=1 announces several", "mpirun of"]);
    assert!(!said.contains("unset"), "{said}");
    ends(under(&[("FLUX_TASK_RANK", "0"), ("FLUX_JOB_SIZE", "2")], pretrain), 78, &["FLUX_JOB_SIZE=2"]);
    assert!(!place.path("run").exists());
    // What a launcher says of one process, and Slurm of a batch script, is no reason.
    let batch = [("SLURM_JOB_ID", "1"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")];
    for variables in [&batch[..], &[("PMI_RANK", "0"), ("PMI_SIZE", "1")]] {
        succeed(under(variables, &["runs", &place.text(""), "--json"]));
    }
}
