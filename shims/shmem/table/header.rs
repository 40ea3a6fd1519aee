//! The headers.

use super::{Function, Generic, Standing};
use std::fmt::Write;

const NOTE: &str = "/* Written from the table of functions in shims/shmem/table; see there to change it. */\n";

/// C90 and C++98 do not have `long long`, and a compiler that is asked to be pedantic would say so at every prototype.
const QUIET: &str =
    "#ifdef __GNUC__\n#pragma GCC diagnostic push\n#pragma GCC diagnostic ignored \"-Wlong-long\"\n#endif\n\n";
const LOUD: &str = "\n#ifdef __GNUC__\n#pragma GCC diagnostic pop\n#endif\n";

/// What stands above the prototypes in shmem.h.
const HEAD: &str = include_str!("head.h");

/// `shmem.h`.
pub fn shmem(functions: &[Function]) -> String {
    let mut text = format!(
        "{NOTE}#ifndef SHMEM_H\n#define SHMEM_H\n\n{HEAD}\n{QUIET}#ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n"
    );
    text.push_str("void shmem_no_such_type_(void);\n");
    prototypes(&mut text, functions, "", |standing| standing != Standing::Extension);
    text.push_str("\n#ifdef __cplusplus\n} /* extern \"C\" */\n\n");
    text.push_str("/* Also where a program includes this inside of extern \"C\". */\nextern \"C++\" {\n");
    overloads(&mut text, functions);
    text.push_str("} /* extern \"C++\" */\n\n#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L\n\n");
    generics(&mut text, functions);
    text.push_str("\n#endif\n");
    text.push_str(LOUD);
    text.push_str("\n#endif /* SHMEM_H */\n");
    text
}

/// `pshmem.h`.
pub fn pshmem(functions: &[Function]) -> String {
    let mut text = format!("{NOTE}#ifndef PSHMEM_H\n#define PSHMEM_H\n\n#include <shmem.h>\n\n");
    text.push_str(QUIET);
    text.push_str("#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n");
    prototypes(&mut text, functions, "p", |standing| standing != Standing::Extension);
    text.push_str("\n#ifdef __cplusplus\n} /* extern \"C\" */\n#endif\n");
    text.push_str(LOUD);
    text.push_str("\n#endif /* PSHMEM_H */\n");
    text
}

/// `shmemx.h`.
pub fn shmemx(functions: &[Function]) -> String {
    let head = include_str!("headx.h");
    let mut text =
        format!("{NOTE}#ifndef SHMEMX_H\n#define SHMEMX_H\n\n{head}\n#ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n");
    prototypes(&mut text, functions, "", |standing| standing == Standing::Extension);
    text.push_str("\n#ifdef __cplusplus\n} /* extern \"C\" */\n#endif\n\n");
    text.push_str("/* What programs have called by these names before it was part of the specification. */\n");
    let moved = ["_ibput", "_ibget", "_signal_add", "_signal_set", "_sum_inscan", "_sum_exscan"];
    let mut generics: Vec<&str> = Vec::new();
    for function in functions {
        let is_moved = |name: &str| moved.iter().any(|part| name.contains(part));
        if function.standing != Standing::Extension && is_moved(&function.name) {
            let old = function.name.replacen("shmem_", "shmemx_", 1);
            writeln!(text, "#define {old} {}", function.name).expect("a string takes everything");
            let generic = function.generic.0;
            if !generic.is_empty() && !generics.contains(&generic) {
                generics.push(generic);
            }
        }
    }
    for generic in generics {
        writeln!(text, "#define {} {generic}", generic.replacen("shmem_", "shmemx_", 1))
            .expect("a string takes everything");
    }
    text.push_str("\n#endif /* SHMEMX_H */\n");
    text
}

fn prototypes(text: &mut String, functions: &[Function], prefix: &str, wanted: impl Fn(Standing) -> bool) {
    for function in functions.iter().filter(|function| wanted(function.standing)) {
        let ending = if function.name == "shmem_global_exit" { " __attribute__((noreturn))" } else { "" };
        writeln!(text, "{}{ending};", function.prototype(prefix)).expect("a string takes everything");
    }
}

/// Generic names that are deprecated, and what they are called now. Programs use the old names with all types of the new ones.
const RENAMED: [(&str, &str); 8] = [
    ("shmem_fetch", "shmem_atomic_fetch"),
    ("shmem_set", "shmem_atomic_set"),
    ("shmem_swap", "shmem_atomic_swap"),
    ("shmem_cswap", "shmem_atomic_compare_swap"),
    ("shmem_finc", "shmem_atomic_fetch_inc"),
    ("shmem_inc", "shmem_atomic_inc"),
    ("shmem_fadd", "shmem_atomic_fetch_add"),
    ("shmem_add", "shmem_atomic_add"),
];

/// The functions with a generic name and a type of their own, by that name.
fn by_generic(functions: &[Function]) -> Vec<(&'static str, Vec<&Function>)> {
    let mut found: Vec<(&'static str, Vec<&Function>)> = Vec::new();
    for function in functions.iter().filter(|function| function.is_own_type && function.generic.1 != Generic::None) {
        let name = function.generic.0;
        match found.iter_mut().find(|(known, _)| *known == name) {
            Some((_, list)) => list.push(function),
            None => found.push((name, vec![function])),
        }
    }
    for (old, atomic) in RENAMED {
        let Some(fresh) = found.iter().find(|(name, _)| *name == atomic).map(|(_, list)| list.clone()) else {
            continue;
        };
        let Some((_, list)) = found.iter_mut().find(|(name, _)| *name == old) else { continue };
        let known: Vec<&str> = list.iter().map(|function| function.type_c).collect();
        list.extend(fresh.into_iter().filter(|new| !new.with_context && !known.contains(&new.type_c)));
    }
    found
}

fn generics(text: &mut String, functions: &[Function]) {
    text.push_str("#define SHMEM_FIRST_(first, ...) first\n#define SHMEM_SECOND_(first, second, ...) second\n\n");
    for (name, list) in by_generic(functions) {
        let cases = |with_context: bool| -> String {
            let some = list.iter().filter(|function| function.with_context == with_context);
            let case = |function: &&Function| {
                let (c, name) = (function.type_c, &function.name);
                format!(
                    " \\\n    {c} *: {name}, const {c} *: {name}, volatile {c} *: {name}, \
                     const volatile {c} *: {name}"
                )
            };
            some.map(case).collect::<Vec<_>>().join(",")
        };
        let has_context = list.iter().any(|function| function.with_context);
        let argument = if list[0].generic.1 == Generic::ByPointer(1) { "SECOND_" } else { "FIRST_" };
        let inner = |cases: String| {
            format!("_Generic((SHMEM_SECOND_(__VA_ARGS__, 0, 0)), default: shmem_no_such_type_,{cases})")
        };
        let context = if has_context { format!(" shmem_ctx_t: {},", inner(cases(true))) } else { String::new() };
        writeln!(
            text,
            "#define {name}(...) _Generic((SHMEM_{argument}(__VA_ARGS__, 0, 0)),{context}{})(__VA_ARGS__)",
            cases(false)
        )
        .expect("a string takes everything");
    }
    for name in ["signal_add", "signal_set"] {
        writeln!(
            text,
            "#define shmem_{name}(...) _Generic((SHMEM_FIRST_(__VA_ARGS__, 0)), shmem_ctx_t: shmem_ctx_{name}, \
             default: shmem_{name})(__VA_ARGS__)"
        )
        .expect("a string takes everything");
    }
    text.push_str(
        "#define shmem_sync(...) _Generic((SHMEM_FIRST_(__VA_ARGS__, 0)), shmem_team_t: shmem_team_sync, default: shmem_sync)(__VA_ARGS__)\n",
    );
}

fn overloads(text: &mut String, functions: &[Function]) {
    for (name, list) in by_generic(functions) {
        for function in list {
            // Two functions have the name of their family and the type of one of its members.
            if ["shmem_wait_until", "shmem_swap"].contains(&name) && function.type_c == "long" {
                continue;
            }
            overload(text, name, function);
        }
    }
    for function in functions
        .iter()
        .filter(|function| ["shmem_ctx_signal_add", "shmem_ctx_signal_set"].contains(&function.name.as_str()))
    {
        overload(text, &function.name.replacen("_ctx", "", 1), function);
    }
    text.push_str("static inline int shmem_sync(shmem_team_t team) { return shmem_team_sync(team); }\n");
}

fn overload(text: &mut String, name: &str, function: &Function) {
    let space = if function.result.ends_with('*') { "" } else { " " };
    let keyword = if function.result == "void" { "" } else { "return " };
    let arguments: Vec<&str> = function.parameters.iter().map(|(_, name)| name.as_str()).collect();
    writeln!(
        text,
        "static inline {}{space}{name}({}) {{ {keyword}{}({}); }}",
        function.result,
        function.c_parameters(),
        function.name,
        arguments.join(", ")
    )
    .expect("a string takes everything");
}
