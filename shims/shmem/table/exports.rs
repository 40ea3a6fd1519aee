//! The functions in Rust: each under its strong name `pshmem_*`, and a weak name `shmem_*` that jumps to it.

use super::Function;
use std::fmt::Write;

/// A type of C as Rust has it.
pub fn rust_type(c: &str) -> &'static str {
    match c {
        "void" => "c_void",
        "float" => "f32",
        "double" => "f64",
        "long double" => "LongDouble",
        "char" if cfg!(target_arch = "aarch64") => "u8",
        "char" | "signed char" | "int8_t" => "i8",
        "short" | "int16_t" => "i16",
        "int" | "int32_t" => "i32",
        "long" | "long long" | "int64_t" | "ptrdiff_t" => "i64",
        "unsigned char" | "uint8_t" => "u8",
        "unsigned short" | "uint16_t" => "u16",
        "unsigned int" | "uint32_t" => "u32",
        "unsigned long" | "unsigned long long" | "uint64_t" | "size_t" => "u64",
        "shmem_complexf_" => "Complex32",
        "shmem_complexd_" => "Complex64",
        "shmem_bits128_" => "Bits128",
        "shmem_ctx_t" | "shmem_team_t" => "usize",
        "shmem_team_config_t" => "TeamConfig",
        "shmem_ctx_session_config_t" => "c_void",
        "shmemx_pcntr_t" => "Counters",
        "shmemx_gettid_t" => "GetThread",
        other => panic!("no type of Rust is known for {other}"),
    }
}

/// The same for a parameter or a result.
fn whole_type(c: &str) -> String {
    let Some(pointee) = c.strip_suffix('*') else { return rust_type(c).to_owned() };
    let pointee = pointee.trim();
    match pointee.strip_prefix("const ") {
        Some(pointee) => format!("*const {}", rust_type(pointee)),
        None => format!("*mut {}", rust_type(pointee.strip_prefix("volatile ").unwrap_or(pointee))),
    }
}

/// All of them, as a source file.
pub fn write(functions: &[Function]) -> String {
    let mut text = String::new();
    for function in functions {
        let Some(body) = &function.body else { continue };
        let parameters: Vec<String> =
            function.parameters.iter().map(|(c, name)| format!("{name}: {}", whole_type(c))).collect();
        let result = match function.result.as_str() {
            "void" => String::new(),
            c => format!(" -> {}", whole_type(c)),
        };
        let (name, parameters) = (&function.name, parameters.join(", "));
        writeln!(
            text,
            "#[unsafe(no_mangle)]\nunsafe extern \"C\" fn p{name}({parameters}){result} {{\n    \
             // SAFETY: what the header asks of the caller is what is asked here.\n    unsafe {{ {body} }}\n}}"
        )
        .expect("a string takes everything");
    }
    // A weak name has to be made where the linker can see that it is weak, which Rust has no words for.
    text.push_str("#[cfg(target_arch = \"x86_64\")]\n");
    weak_names(&mut text, functions, |strong| format!("jmp {strong}@PLT"));
    text.push_str("#[cfg(target_arch = \"aarch64\")]\n");
    weak_names(&mut text, functions, |strong| format!("b {strong}"));
    text
}

fn weak_names(text: &mut String, functions: &[Function], jump: impl Fn(&str) -> String) {
    text.push_str("std::arch::global_asm!(\n");
    for function in functions {
        let (weak, strong) = (&function.name, format!("p{}", function.name));
        writeln!(
            text,
            "    \".pushsection .text.{weak},\\\"ax\\\",@progbits\", \".p2align 4\", \".weak {weak}\", \
             \".type {weak},@function\", \"{weak}:\", \"{}\", \".size {weak}, . - {weak}\", \".popsection\",",
            jump(&strong)
        )
        .expect("a string takes everything");
    }
    text.push_str(");\n");
}
