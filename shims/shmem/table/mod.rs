//! The one table of all functions: their prototypes in C, and what each does in Rust.
//!
//! `families` has the families with their types, this expands them to functions, `exports` and `header` write them in Rust
//! and C. The table is used by the build script, so it knows nothing of the crate.

pub mod collectives;
pub mod exports;
pub mod families;
pub mod header;
pub mod old;
pub mod types;

use types::Type;

/// What a function is to the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Part of version 1.6.
    Current,
    /// Deprecated there, and still to be offered.
    Deprecated,
    /// Removed before, and still called.
    Removed,
    /// No part of any version, but in shmem.h beside those that are: types that programs expect a family to have.
    Beyond,
    /// No part of any version.
    Extension,
}

/// How the generic name of a family finds the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generic {
    /// There is none.
    None,
    /// By the type of this argument, counted behind the context if there is one.
    ByPointer(usize),
}

/// A family of functions: one prototype for all types.
pub struct Family {
    pub standing: Standing,
    /// `{T}` is the name of the type, `{C}` the type in C.
    pub prototype: &'static str,
    /// What it does, in Rust: `{N}` is the function's name, `{X}` the context, `{C}` the type.
    pub body: &'static str,
    pub types: &'static [Type],
    /// Each function is there with a context too.
    pub has_context: bool,
    /// The generic name in C11 and C++.
    pub generic: (&'static str, Generic),
}

/// One function.
#[derive(Clone)]
pub struct Function {
    pub standing: Standing,
    pub name: String,
    pub result: String,
    /// Type and name of each.
    pub parameters: Vec<(String, String)>,
    /// `None`: it is written in C.
    pub body: Option<String>,
    pub type_c: &'static str,
    pub is_own_type: bool,
    pub with_context: bool,
    pub generic: (&'static str, Generic),
}

impl Function {
    /// The parameters as C has them.
    pub fn c_parameters(&self) -> String {
        if self.parameters.is_empty() {
            return "void".to_owned();
        }
        let one = |(c_type, name): &(String, String)| match c_type.as_str() {
            "..." => "...".to_owned(),
            pointer if pointer.ends_with('*') => format!("{pointer}{name}"),
            value => format!("{value} {name}"),
        };
        self.parameters.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// The whole prototype under a name that begins with `prefix`.
    pub fn prototype(&self, prefix: &str) -> String {
        let space = if self.result.ends_with('*') { "" } else { " " };
        format!("{}{space}{prefix}{}({})", self.result, self.name, self.c_parameters())
    }
}

/// All functions.
pub fn functions() -> Vec<Function> {
    let mut all = Vec::new();
    for family in families::all() {
        for kind in family.types {
            all.push(expand(&family, kind, false));
            if family.has_context {
                all.push(expand(&family, kind, true));
            }
        }
    }
    all
}

fn expand(family: &Family, kind: &Type, with_context: bool) -> Function {
    let text = family.prototype.replace("{T}", kind.name).replace("{C}", kind.c);
    let (head, parameters) = text.split_once('(').expect("a prototype has parameters");
    let parameters = parameters.strip_suffix(')').expect("the last word of a prototype is a parenthesis");
    let (result, name) = split_name(head);
    let mut parameters: Vec<(String, String)> = match parameters {
        "void" => Vec::new(),
        list => {
            list.split(", ").map(|one| if one == "..." { ("...".into(), "".into()) } else { split_name(one) }).collect()
        }
    };
    let mut name = name;
    if with_context {
        name = name.replacen("shmem_", "shmem_ctx_", 1);
        parameters.insert(0, ("shmem_ctx_t".into(), "ctx".into()));
    }
    let context = if with_context { "ctx" } else { "DEFAULT" };
    let in_rust = exports::rust_type(kind.c);
    let body = family.body.replace("{N}", &format!("\"{name}\"")).replace("{X}", context).replace("{C}", in_rust);
    let long_double = kind.c == "long double"
        && parameters.iter().chain([&(result.clone(), String::new())]).any(|(one, _)| one == "long double");
    let in_c = long_double || parameters.iter().any(|(one, _)| one == "...");
    Function {
        standing: family.standing,
        name,
        result,
        parameters,
        body: (!in_c).then_some(body),
        type_c: kind.c,
        is_own_type: kind.is_own,
        with_context,
        generic: family.generic,
    }
}

/// A type and the name behind it.
fn split_name(text: &str) -> (String, String) {
    let at = text.rfind([' ', '*']).expect("a name stands behind its type") + 1;
    (text[..at].trim_end().to_owned(), text[at..].to_owned())
}
