//! The functions that Rust defines for C: those written out, and those that macros make from lists.

use std::collections::BTreeMap;
use std::path::Path;

use crate::{Class, Signature};

const DEFINITION: &str = "extern \"C\" fn ";
/// What macros put the name and the type of a number for.
const NAME: &str = "$name";
const NUMBER: &str = "$number";

/// Functions by name, of all files below a folder.
pub(crate) fn functions(folder: &Path) -> BTreeMap<String, Signature> {
    let mut found = BTreeMap::new();
    for entry in folder.read_dir().unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            found.extend(functions(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            found.extend(functions_of(&text));
        }
    }
    found
}

fn functions_of(text: &str) -> BTreeMap<String, Signature> {
    let mut found = BTreeMap::new();
    for (start, _) in text.match_indices(DEFINITION) {
        // Only what programs can name.
        if !text[..start].trim_end().ends_with("pub") && !text[..start].trim_end().ends_with("pub unsafe") {
            continue;
        }
        let definition = &text[start + DEFINITION.len()..];
        let (head, _) = definition.split_once('{').expect("a function has a body");
        let (name, rest) = head.split_once('(').expect("a function has parameters");
        if name != NAME {
            found.insert(name.to_owned(), signature(rest, name));
            continue;
        }
        for (name, number) in list_of_macro(text, start) {
            let signature = signature(&rest.replace(NUMBER, number), name);
            found.insert(name.to_owned(), signature);
        }
    }
    found
}

/// The names and types in the list of the macro around a place.
fn list_of_macro(text: &str, place: usize) -> Vec<(&str, &str)> {
    const MACRO: &str = "macro_rules! ";
    let start = text[..place].rfind(MACRO).expect("a name to be replaced stands in a macro") + MACRO.len();
    let name = text[start..].split_whitespace().next().expect("a macro has a name");
    let use_of_it = format!("\n{name}! {{");
    let (_, list) = text[place..].split_once(use_of_it.as_str()).expect("a macro is used behind itself");
    let (list, _) = list.split_once('}').expect("a list ends");
    let entries = list.split(';').filter_map(|entry| entry.trim().split_once(' '));
    let parts = entries.map(|(name, rest)| (name, rest.split_once(',').map_or(rest, |(number, _)| number).trim()));
    parts.collect()
}

fn signature(rest: &str, function: &str) -> Signature {
    let (parameters, result) = rest.rsplit_once(')').expect("parameters end");
    // A comma in angle brackets would split a type, which no function here has.
    let parameters = parameters.split(',').map(str::trim).filter(|parameter| !parameter.is_empty());
    let parameters = parameters.map(|parameter| {
        let (_, kind) = parameter.split_once(':').unwrap_or_else(|| panic!("{function}: {parameter:?} has no type"));
        class(kind.trim(), function)
    });
    let result = match result.trim().strip_prefix("->") {
        Some(kind) => class(kind.trim(), function),
        None => Class::Void,
    };
    Signature { parameters: parameters.collect(), result }
}

fn class(kind: &str, function: &str) -> Class {
    let kind = kind.strip_prefix("std::ffi::").unwrap_or(kind);
    if kind.starts_with('*') || kind.starts_with("Option<") {
        return Class::Pointer;
    }
    match kind {
        "!" => Class::Void,
        "c_int" | "c_uint" | "u32" | "i32" => Class::Int,
        "c_long" | "c_ulong" => Class::Long,
        "c_float" => Class::Float,
        "c_double" => Class::Double,
        // What holds a communicator is called one; every other word is a size.
        "usize" if function.ends_with("_comm") => Class::Word,
        "usize" => Class::Size,
        _ => panic!("{function}: what is {kind:?}?"),
    }
}
