//! What the libraries export, against the specification: every name of it, and its twin, and nothing else.
#![forbid(unsafe_code)]

#[allow(dead_code, missing_docs, reason = "what the build script uses of the table is no matter here")]
#[path = "../table/mod.rs"]
mod table;

#[path = "../../test_support/built.rs"]
mod built;
#[path = "support/installed.rs"]
mod installed;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use built::succeed;
use installed::{here, prefix};
use table::Standing;

fn count(standing: Standing) -> usize {
    table::functions().iter().filter(|function| function.standing == standing).count()
}

#[test]
fn the_table_has_as_many_functions_as_the_specification() {
    // Version 1.6: its functions, the deprecated ones among them, the cache calls that 1.5 has removed, and a name of 1.2.
    assert_eq!((count(Standing::Current), count(Standing::Deprecated), count(Standing::Removed)), (1685, 103, 7));
    // Types that two families have beyond it.
    assert_eq!(count(Standing::Beyond), 12 * 2 + 10);
    let names: BTreeSet<String> = table::functions().into_iter().map(|function| function.name).collect();
    assert_eq!(names.len(), table::functions().len(), "a name stands twice");
}

#[test]
fn both_libraries_export_every_function_and_its_twin_and_nothing_else() {
    let prefix = prefix("symbols").unwrap();
    let functions = table::functions();
    let wanted: BTreeSet<String> =
        functions.iter().flat_map(|function| [function.name.clone(), format!("p{}", function.name)]).collect();
    for (library, arguments) in
        [("liblongarm_shmem.so", &["-D", "--defined-only"][..]), ("liblongarm_shmem.a", &["-g", "--defined-only"])]
    {
        let output = succeed(Command::new("nm").args(arguments).arg(prefix.join("lib").join(library))).unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut found = BTreeSet::new();
        for line in text.lines() {
            let [_, kind, name] = line.split_ascii_whitespace().collect::<Vec<_>>()[..] else { continue };
            // A profiler can put its own in front of weak names only.
            let is_twin = name.starts_with('p');
            assert_eq!(kind, if is_twin { "T" } else { "W" }, "{name} in {library}");
            found.insert(name.to_owned());
        }
        assert_eq!(found, wanted, "{library}");
    }
}

#[test]
fn the_headers_are_those_that_the_table_gives() {
    let functions = table::functions();
    let headers = [
        ("shmem.h", table::header::shmem(&functions)),
        ("pshmem.h", table::header::pshmem(&functions)),
        ("shmemx.h", table::header::shmemx(&functions)),
    ];
    for (name, text) in headers {
        let path = here().join("include").join(name);
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            there == text,
            "{} is not up to date; cargo run -p longarm-shmem --example headers writes it",
            path.display()
        );
    }
}

#[test]
fn the_headers_are_clean_in_every_standard_of_c_and_cxx() {
    let languages =
        [("cc", "c", &["c89", "c99", "c11", "gnu17"][..]), ("c++", "c++", &["c++98", "c++11", "c++17", "gnu++20"])];
    for (compiler, language, standards) in languages {
        for standard in standards {
            let mut command = Command::new(compiler);
            command.args(["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror", "-fsyntax-only"]);
            command.arg(format!("-std={standard}")).arg("-I").arg(here().join("include"));
            for header in ["shmem.h", "shmemx.h", "pshmem.h", "mpp/shmem.h", "mpp/shmemx.h", "mpp/pshmem.h"] {
                command.args(["-include", header]);
            }
            succeed(command.args(["-x", language, "/dev/null"])).unwrap();
        }
    }
}

/// The macros of the headers are only compiled where they are used.
#[test]
fn programs_of_cxx_are_clean_of_casts_in_the_manner_of_c() {
    let program = r#"
        static const shmem_ctx_t contexts[] = { SHMEM_CTX_INVALID, SHMEM_CTX_DEFAULT };
        static shmem_team_t teams[] = { SHMEM_TEAM_INVALID, SHMEM_TEAM_WORLD, SHMEM_TEAM_SHARED, SHMEMX_TEAM_NODE, SHMEMX_TEAM_HOST };
        static const long numbers[] = {
            SHMEM_SYNC_VALUE, SHMEM_CTX_PRIVATE, SHMEM_CTX_SERIALIZED, SHMEM_CTX_NOSTORE, SHMEM_CTX_SESSION_BATCH,
            SHMEM_CTX_SESSION_TOTAL_OPS, SHMEM_MALLOC_ATOMICS_REMOTE, SHMEM_MALLOC_SIGNAL_REMOTE, SHMEM_TEAM_NUM_CONTEXTS,
            SHMEMX_MALLOC_NO_BARRIER, SHMEMX_CTX_BOUNCE_BUFFER, _SHMEM_SYNC_VALUE
        };
        int program(long *word);
        int program(long *word)
        {
            shmem_ctx_quiet(contexts[1]);
            shmem_put(SHMEM_CTX_DEFAULT, word, word, 1, 0);
            shmem_atomic_add(word, 1L, 0);
            return shmem_sync(teams[1]) + static_cast<int>(numbers[0]);
        }
    "#;
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("casts.cc");
    std::fs::write(&source, program).unwrap();
    for standard in ["c++98", "c++11", "c++17", "gnu++20"] {
        let mut command = Command::new("c++");
        command.args(["-Wall", "-Wextra", "-Wpedantic", "-Wold-style-cast", "-Wcast-qual", "-Werror", "-fsyntax-only"]);
        command.arg(format!("-std={standard}")).arg("-I").arg(here().join("include"));
        succeed(command.args(["-include", "shmem.h", "-include", "shmemx.h"]).arg(&source)).unwrap();
    }
}

#[test]
fn there_are_seventy_four_generic_names() {
    let text = table::header::shmem(&table::functions());
    let generics = text.split("__STDC_VERSION__ >= 201112L").nth(1).unwrap();
    let names = generics.lines().filter(|line| line.starts_with("#define shmem_")).count();
    // The specification counts shmem_global_exit among them, which is a function alone.
    assert_eq!(names + 1, 74);
}
