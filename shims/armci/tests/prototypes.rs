//! The headers, the Rust functions behind them and what the libraries export say the same.
#![forbid(unsafe_code)]

#[path = "../../test_support/built.rs"]
mod built;
#[path = "prototypes/headers.rs"]
mod headers;
#[path = "support/library.rs"]
mod library;
#[path = "prototypes/rust.rs"]
mod rust;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// What a parameter or a result is, as far as the calling convention tells it apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    Void,
    Int,
    Long,
    Size,
    Float,
    Double,
    Pointer,
    /// A handle of MPI, an int in some and a pointer in others: a word that holds either.
    Word,
}

/// What is passed to a function and what it gives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Signature {
    pub(crate) parameters: Vec<Class>,
    pub(crate) result: Class,
}

/// Names of a library with the letter that nm gives them.
type Exports = BTreeMap<String, char>;

/// Names that the library keeps for programs besides those with a prefix of their own.
const WITHOUT_PREFIX: [&str; 2] = ["dassertp_fail", "mp_group_name"];

/// Headers that programs include; the others are included by these.
const HEADERS: [&str; 6] = ["armci.h", "message.h", "parmci.h", "armcix.h", "gpc.h", "iterator.h"];

fn declared() -> BTreeMap<String, Signature> {
    let mut all = BTreeMap::new();
    for header in HEADERS {
        let path = library::here().join("include").join(header);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for (name, signature) in headers::prototypes(&text) {
            let before = all.insert(name.clone(), signature.clone());
            assert!(before.is_none_or(|before| before == signature), "{name} is declared in two ways");
        }
    }
    all
}

fn exported(arguments: &[&str], file: &str) -> Exports {
    let folder = library::library("armci-prototypes").unwrap();
    let output = built::succeed(Command::new("nm").args(arguments).arg(folder.join(file))).unwrap();
    let text = String::from_utf8(output.stdout).expect("symbols are ASCII");
    let is_ours = |name: &str| {
        let name = name.to_ascii_lowercase();
        ["armci_", "armcix_", "parmci_"].iter().any(|prefix| name.starts_with(prefix))
            || WITHOUT_PREFIX.contains(&name.as_str())
    };
    let symbol = |line: &str| {
        let mut words = line.split_whitespace().rev();
        let name = words.next()?.to_owned();
        let letter = words.next()?.chars().next()?;
        is_ours(&name).then_some((name, letter))
    };
    text.lines().filter_map(symbol).collect()
}

fn both_libraries() -> [(&'static str, Exports); 2] {
    [
        ("libarmci.a", exported(&["--extern-only", "--defined-only"], "libarmci.a")),
        ("libarmci.so", exported(&["--dynamic", "--defined-only"], "libarmci.so")),
    ]
}

#[test]
fn what_the_headers_declare_is_exported_and_nothing_else() {
    let mut declared: BTreeSet<String> = declared().into_keys().collect();
    // A variable.
    declared.insert("mp_group_name".into());
    for (library, exports) in both_libraries() {
        let exported: BTreeSet<String> = exports.into_keys().collect();
        let missing: Vec<&String> = declared.difference(&exported).collect();
        let undeclared: Vec<&String> = exported.difference(&declared).collect();
        assert!(missing.is_empty(), "{library} does not export {missing:?}");
        assert!(undeclared.is_empty(), "{library} exports what no header declares: {undeclared:?}");
    }
}

#[test]
fn the_classic_interface_is_whole() {
    let declared = declared();
    let count = |prefixes: &[&str]| {
        declared.keys().filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix))).count()
    };
    // As many as the classic headers have, and more.
    assert!(count(&["PARMCI_", "parmci_"]) >= 61);
    assert!(count(&["armci_msg_", "armci_exchange_", "armci_grp_", "armci_timer"]) >= 40);
    assert!(count(&["ARMCI_", "armci_domain_", "armci_notify", "armci_same"]) >= 89);
}

#[test]
fn names_with_a_twin_are_weak_and_their_twins_are_strong() {
    for (library, exports) in both_libraries() {
        for (twin, letter) in exports.iter().filter(|(name, _)| headers::is_twin(name)) {
            let name = headers::namesake(twin);
            assert_eq!(*letter, 'T', "{twin} in {library}");
            assert_eq!(exports.get(&name), Some(&'W'), "{name} in {library}");
        }
        let twins = exports.keys().filter(|name| headers::is_twin(name)).count();
        let weak: Vec<&String> = exports.iter().filter(|(_, letter)| **letter == 'W').map(|(name, _)| name).collect();
        assert_eq!(weak.len(), twins, "weak in {library}: {weak:?}");
    }
}

#[test]
fn twins_are_declared_as_their_namesakes() {
    let declared = declared();
    for (twin, signature) in declared.iter().filter(|(name, _)| headers::is_twin(name)) {
        assert_eq!(declared.get(&headers::namesake(twin)), Some(signature), "{twin}");
    }
}

#[test]
fn rust_functions_have_the_signatures_of_their_prototypes() {
    let declared = declared();
    let functions = rust::functions(&library::here().join("src"));
    let mut wrong = Vec::new();
    for (name, signature) in &functions {
        match declared.get(name) {
            Some(prototype) if prototype == signature => {}
            other => wrong.push(format!("{name}: Rust has {signature:?}, the headers {other:?}")),
        }
    }
    for name in declared.keys() {
        let is_weak = declared.contains_key(&headers::twin(name));
        if !functions.contains_key(name) && !is_weak {
            wrong.push(format!("{name} is declared and not written in Rust"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// As a program of ARMCI-MPI has it: one header brings MPI's names, where there is an MPI, and those of messages.
#[test]
fn armci_h_brings_messages_and_the_mpi_that_the_compiler_has_and_needs_none() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("headers");
    std::fs::create_dir_all(&folder).unwrap();
    let common = "static inline int ended(void) { armci_msg_barrier(); return ARMCI_Finalize(); }\n";
    let in_mpi = "#ifndef MPI_VERSION\n#error no MPI came along\n#endif\n\
                  static inline MPI_Comm all(ARMCI_Group *group) { return armci_group_comm(group); }\n";
    let without = "#ifdef MPI_VERSION\n#error an MPI came along\n#endif\n";
    let orders = ["armci.h", "message.h armci.h", "parmci.h message.h", "armcix.h", "iterator.h gpc.h", "message.h"];
    let check = |compiler: &str, language: &str, arguments: &[&str], order: &str, rest: &str| {
        let includes: String = order.split(' ').map(|header| format!("#include \"{header}\"\n")).collect();
        let source = folder.join(if language == "c" { "order.c" } else { "order.cc" });
        std::fs::write(&source, format!("{includes}{common}{rest}")).unwrap();
        let mut command = Command::new(compiler);
        command.args(arguments).args(["-Wall", "-Wextra", "-Wno-unused-function", "-Werror", "-fsyntax-only"]);
        command.env_remove("CPATH").arg("-I").arg(library::here().join("include")).arg(&source);
        built::succeed(&mut command).unwrap_or_else(|error| panic!("{compiler} {order}: {error}"));
    };
    for order in orders {
        check("cc", "c", &["-std=c99", "-pedantic", "-DLONGARM_NO_MPI_H"], order, without);
        check("c++", "c++", &["-std=c++11", "-pedantic", "-Wold-style-cast", "-DLONGARM_NO_MPI_H"], order, without);
        check("cc", "c", &["-std=c99", "-pedantic", "-DARMCI_GIOV_BYTES_FIRST"], order, "");
        check("c++", "c++", &["-std=c++11", "-pedantic", "-DARMCI_GIOV_BYTES_FIRST"], order, "");
        for mpi in ["mpicc.mpich", "mpicc.openmpi"] {
            if Command::new(mpi).arg("--version").output().is_err() {
                eprintln!("left out: there is no {mpi}");
                continue;
            }
            check(mpi, "c", &["-std=gnu11"], order, in_mpi);
            check(mpi, "c", &["-std=gnu11", "-DLONGARM_NO_MPI_H"], order, without);
        }
    }
}
