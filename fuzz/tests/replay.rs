//! The corpora again, and changes of them, without libFuzzer: less than a minute in all. `TWEED_SEED` is
//! the seed of the changes; without it they are other ones in each run.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test ends at what it did not expect, and names it"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use tweed_fuzz::TARGETS;

/// How long each target gets changed inputs.
const CHANGES: Duration = Duration::from_secs(3);
/// Most bytes of all corpora, so that a clone stays small.
const MOST_BYTES: u64 = 1 << 20;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The inputs of a target, by the names of their files.
fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = root().join("corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    let read = |path: PathBuf| (path.clone(), fs::read(path).unwrap());
    paths.into_iter().map(read).collect()
}

/// xorshift64*, of which it only matters that a failure can be repeated.
struct Random(u64);

impl Random {
    fn seeded() -> Self {
        let of_clock = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let given = std::env::var("TWEED_SEED").ok();
        let seed = given.map_or_else(of_clock, |seed| seed.parse().unwrap());
        // Its state is never 0, and differs in more than the lowest bits.
        Self((seed | 1 << 63).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        number as usize % end.max(1)
    }

    /// A change as libFuzzer makes them: bits, bytes, a piece that is removed, repeated,
    /// or taken from another input.
    fn change(&mut self, input: &mut Vec<u8>, other: &[u8]) {
        let at = self.below(input.len());
        let end = (at + 1 + self.below(32)).min(input.len());
        match self.below(6) {
            0 if !input.is_empty() => input[at] ^= 1 << self.below(8),
            1 if !input.is_empty() => input[at] = [0, 1, 16, 127, 128, 255][self.below(6)],
            2 => drop(input.drain(at..end)),
            3 => {
                let piece = input[at..end].to_vec();
                input.splice(at..at, piece);
            }
            4 => {
                let from = self.below(other.len());
                let to = (from + 1 + self.below(64)).min(other.len());
                input.splice(at..at, other[from..to].iter().copied());
            }
            _ => input.insert(at, self.below(256) as u8),
        }
    }
}

/// Prints the input of a law that does not hold: as a file in the corpus it stays a test.
struct Printed<'a>(&'a str, &'a [u8]);

impl Drop for Printed<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("input of the target {}: {}", self.0, self.1.escape_ascii());
        }
    }
}

fn replay(target: &str) {
    let (_, check) = TARGETS.iter().find(|(name, _)| *name == target).unwrap();
    let corpus = corpus(target);
    for (path, input) in &corpus {
        let _printed = Printed(target, path.as_os_str().as_encoded_bytes());
        check(input);
    }
    let mut random = Random::seeded();
    let start = Instant::now();
    while start.elapsed() < CHANGES {
        let mut input = corpus[random.below(corpus.len())].1.clone();
        for _ in 0..=random.below(4) {
            let other = &corpus[random.below(corpus.len())].1;
            random.change(&mut input, other);
        }
        let _printed = Printed(target, &input);
        check(&input);
    }
}

/// A test for each target; none of [`TARGETS`] is left out.
macro_rules! replay {
    ($($target:ident),* $(,)?) => {
        $(#[test]
        fn $target() {
            replay(stringify!($target));
        })*

        #[test]
        fn every_target_has_a_program_and_is_replayed() {
            let names = TARGETS.map(|(name, _)| name);
            assert_eq!(names, [$(stringify!($target)),*]);
            for name in names {
                let program = root().join(format!("fuzz_targets/{name}.rs"));
                let program = fs::read_to_string(program).unwrap();
                assert!(program.contains(&format!("tweed_fuzz::{name}::check(data)")));
            }
        }
    };
}

replay!(
    agent_socket,
    flags,
    iptables_legacy,
    kept_nodes,
    nf_tables,
    node_file,
    node_list,
    node_watch,
    plugin,
    rtnetlink,
    ruleset,
    services,
    store,
);

#[test]
fn the_corpora_stay_small() {
    let sizes = TARGETS.iter().flat_map(|(name, _)| corpus(name));
    let bytes: u64 = sizes.map(|(_, input)| input.len() as u64).sum();
    assert!(bytes < MOST_BYTES, "{bytes} bytes: make fuzz-minimise");
}
