//! Runs that are described by a seed, in virtual time.
//!
//! `TASKHARBOR_SEED` runs one again, and `TASKHARBOR_SIMULATIONS` says how many there are.

/// Plays the known seeds and as many others, each printed before it begins.
pub(crate) fn play(known: &[u64], others: u64, play: impl AsyncFn(u64)) {
    let number = |name| std::env::var(name).ok().map(|it: String| it.parse::<u64>().unwrap());
    let seeds: Vec<u64> = match number("TASKHARBOR_SEED") {
        Some(seed) => vec![seed],
        None => {
            let count = number("TASKHARBOR_SIMULATIONS").unwrap_or(others);
            known.iter().copied().chain((0..count).map(|_| fastrand::u64(..))).collect()
        }
    };
    for seed in seeds {
        println!("TASKHARBOR_SEED={seed}");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(play(seed));
    }
}
