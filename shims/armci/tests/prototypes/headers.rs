//! The prototypes of a C header. The headers are ours, so this reads what they have and not all of C.

use std::collections::BTreeMap;

use crate::{Class, Signature};

/// Functions by name.
pub(crate) fn prototypes(header: &str) -> BTreeMap<String, Signature> {
    let text = without_blocks(&without_directives(&without_comments(header)).replace("extern \"C\" {", ""));
    text.split(';').filter_map(|statement| prototype(statement.trim())).collect()
}

/// Whether a name is a second one, for profilers.
pub(crate) fn is_twin(name: &str) -> bool {
    name.starts_with("PARMCI_") || name.starts_with("parmci_")
}

/// The name behind a second one.
pub(crate) fn namesake(twin: &str) -> String {
    twin[1..].to_owned()
}

/// The second name of a call, whether it has one or not.
pub(crate) fn twin(name: &str) -> String {
    let letter = if name.starts_with('A') { 'P' } else { 'p' };
    format!("{letter}{name}")
}

fn without_comments(text: &str) -> String {
    let mut rest = text;
    let mut out = String::new();
    while let Some((before, comment)) = rest.split_once("/*") {
        out.push_str(before);
        out.push(' ');
        rest = comment.split_once("*/").expect("comments end").1;
    }
    out + rest
}

/// All branches of conditions stay.
fn without_directives(text: &str) -> String {
    let joined = text.replace("\\\n", " ");
    let lines: Vec<&str> = joined.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
    lines.join("\n")
}

/// Without what stands in braces, which is the insides of structures.
fn without_blocks(text: &str) -> String {
    let mut depth = 0_u32;
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '{' => depth += 1,
            // The end of `extern "C"` has no beginning any more.
            '}' => depth = depth.saturating_sub(1),
            letter if depth == 0 => out.push(letter),
            _ => {}
        }
    }
    out
}

fn prototype(statement: &str) -> Option<(String, Signature)> {
    let statement = statement.strip_prefix("extern ").unwrap_or(statement);
    if statement.starts_with("typedef") {
        return None;
    }
    let (head, parameters) = statement.strip_suffix(')')?.split_once('(')?;
    let name_start = head.rfind(|letter: char| !letter.is_alphanumeric() && letter != '_')? + 1;
    let (result, name) = head.split_at(name_start);
    let parameters = match parameters.trim() {
        "void" => Vec::new(),
        some => some.split(',').map(|parameter| class(parameter, name)).collect(),
    };
    Some((name.to_owned(), Signature { parameters, result: class(result, name) }))
}

fn class(text: &str, function: &str) -> Class {
    if text.contains('*') || text.contains('[') {
        return Class::Pointer;
    }
    let words: Vec<&str> =
        text.split_whitespace().filter(|word| !["const", "unsigned", "extern"].contains(word)).collect();
    match words.first().copied() {
        Some("void") => Class::Void,
        Some("int" | "ARMCI_Group" | "armci_domain_t") => Class::Int,
        Some("long" | "armci_size_t") if words.get(1) != Some(&"long") => Class::Long,
        Some("size_t") => Class::Size,
        Some("float") => Class::Float,
        Some("double") => Class::Double,
        Some("armcix_mutex_hdl_t" | "armci_gpc_function_t") => Class::Pointer,
        Some("MPI_Comm") => Class::Word,
        _ => panic!("{function}: what is {text:?}?"),
    }
}

#[test]
fn prototypes_are_read_whatever_stands_around_them() {
    let found = prototypes(
        "#define X(a) f(a)\nextern \"C\" {\ntypedef struct { int a; } t; /* int no(void); */\n\
         extern int f(void *a, int b[], const char *c,\n long d);\nvoid *g(void);\n}\n",
    );
    let pointer = Class::Pointer;
    let f = Signature { parameters: vec![pointer, pointer, pointer, Class::Long], result: Class::Int };
    let g = Signature { parameters: Vec::new(), result: pointer };
    assert_eq!(found, BTreeMap::from([("f".to_owned(), f), ("g".to_owned(), g)]));
}
