//! Writes the headers that the table of functions gives: `cargo run -p longarm-shmem --example headers`.
#![forbid(unsafe_code)]

fn main() -> std::io::Result<()> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let headers = [
        ("shmem.h", include_str!(concat!(env!("OUT_DIR"), "/shmem.h"))),
        ("pshmem.h", include_str!(concat!(env!("OUT_DIR"), "/pshmem.h"))),
        ("shmemx.h", include_str!(concat!(env!("OUT_DIR"), "/shmemx.h"))),
    ];
    for (name, text) in headers {
        std::fs::write(folder.join(name), text)?;
    }
    Ok(())
}
