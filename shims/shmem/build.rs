//! Writes the exported functions from the table, and compiles what Rust has no words for.

#[allow(dead_code, missing_docs, reason = "the tests use the rest of the table")]
#[path = "table/mod.rs"]
mod table;

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=table");
    println!("cargo::rerun-if-changed=src/long_double.c");
    let output = std::env::var_os("OUT_DIR").expect("cargo says where to write");
    let output = Path::new(&output);
    let functions = table::functions();
    let files = [
        ("exports.rs", table::exports::write(&functions)),
        ("shmem.h", table::header::shmem(&functions)),
        ("pshmem.h", table::header::pshmem(&functions)),
        ("shmemx.h", table::header::shmemx(&functions)),
    ];
    for (name, text) in files {
        std::fs::write(output.join(name), text).expect("cargo's folder can be written to");
    }
    cc::Build::new()
        .file("src/long_double.c")
        .std("c11")
        .warnings_into_errors(true)
        .extra_warnings(true)
        .pic(true)
        .compile("shmem_long_double");
}
