//! Runs every target over its committed inputs, and over each seed with single bytes changed and with its end cut off.
#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;

use longarm_fuzz::{TARGETS, Target};
use longarm_proto::{RequestId, Responder};

/// Bytes of one target's corpus at most, so that it stays small enough to be read on every test run.
const CORPUS_BYTES_MAX: usize = 26 << 10;
/// Seeds up to this length are changed at every byte, longer ones at so many places.
const CHANGED_PLACES_MAX: usize = 200;

fn folder(kind: &str, target: &Target) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(kind).join(target.name)
}

/// What is in a folder, by file name; nothing if there is no folder.
fn inputs(kind: &str, target: &Target) -> Vec<(String, Vec<u8>)> {
    let Ok(entries) = fs::read_dir(folder(kind, target)) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut inputs: Vec<_> =
        paths.map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(path).unwrap())).collect();
    inputs.sort();
    inputs
}

/// A change of the protocol shows here. `LONGARM_WRITE_SEEDS=1` writes the seeds anew, after which the change is to be
/// looked at once more.
#[test]
fn the_seeds_in_the_folders_are_those_of_this_version() {
    let write = std::env::var_os("LONGARM_WRITE_SEEDS").is_some();
    for target in TARGETS {
        for (name, bytes) in (target.seeds)() {
            let path = folder("corpus", target).join(name);
            if write {
                fs::create_dir_all(folder("corpus", target)).unwrap();
                fs::write(&path, &bytes).unwrap();
            }
            let found = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert_eq!(found, bytes, "{}", path.display());
        }
    }
}

#[test]
fn the_targets_accept_everything_that_was_found_worth_keeping() {
    for target in TARGETS {
        let corpus = inputs("corpus", target);
        assert!(!corpus.is_empty(), "{} has no corpus", target.name);
        let bytes: usize = corpus.iter().map(|(_, input)| input.len()).sum();
        assert!(bytes <= CORPUS_BYTES_MAX, "{} keeps {bytes} bytes", target.name);
        for (name, input) in corpus {
            println!("{}/{name}", target.name);
            (target.run)(&input);
        }
    }
}

#[test]
fn what_was_once_a_finding_is_none_any_more() {
    for target in TARGETS {
        for (name, input) in inputs("regressions", target) {
            println!("{}/{name}", target.name);
            (target.run)(&input);
        }
    }
}

#[test]
fn the_targets_accept_what_is_near_to_their_seeds() {
    for target in TARGETS {
        for (name, seed) in (target.seeds)() {
            println!("{}/{name}", target.name);
            let stride = seed.len().div_ceil(CHANGED_PLACES_MAX).max(1);
            for at in (0..seed.len()).step_by(stride) {
                (target.run)(&seed[..at]);
                for value in [0, 1, 0x7f, 0x80, 0xff, seed[at] ^ 1, seed[at].wrapping_add(1)] {
                    let mut changed = seed.clone();
                    changed[at] = value;
                    (target.run)(&changed);
                }
            }
        }
    }
}

#[test]
fn the_seed_of_a_whole_conversation_is_read_to_its_end() {
    let target = TARGETS.iter().find(|target| target.name == "request_decode").unwrap();
    let seeds = (target.seeds)();
    let (_, seed) = seeds.iter().find(|(name, _)| *name == "conversation").unwrap();
    let mut responder = Responder::new();
    let mut rest = &seed[..];
    while let Some((header, behind)) = rest.split_first_chunk() {
        let header = responder.handle_header(header).unwrap();
        let (descriptor, behind) = behind.split_at(header.descriptor_bytes());
        let request = responder.finish(&header, descriptor).unwrap();
        rest = &behind[request.payload_bytes() as usize..];
    }
    assert_eq!(responder.last(), RequestId(12));
    assert!(rest.is_empty());
}
