//! The list of programs: one line a program, `#` begins a comment.
//!
//! ```text
//! NAME  FOLDER  [quick] [KEY=VALUE]...
//! ```
//!
//! `FOLDER/NAME` or `FOLDER/NAME.x` is the program, below the folder of the build. A value with blanks stands in double quotes. The keys:
//!
//! | key | meaning |
//! |---|---|
//! | `label` | the name shown, where two folders hold programs of one name |
//! | `ranks` | which numbers of ranks it accepts: `4`, `2,4`, `2-`, `even`, `square` |
//! | `reason` | why it accepts no others; a run on others is skipped and shows this |
//! | `args` | its arguments, cut at blanks |
//! | `input` | a file to copy into the folder it runs in, relative to the folder of the list's sources |
//! | `prints` | what its output must hold |
//! | `allow` | a line with this in it is no error, whatever else it holds; may be given several times |
//! | `fails-if` | a line with this in it is an error; may be given several times |
//! | `own-fault` | a line with this in it comes from a fault of the program, shown in the table as such; several times |
//! | `fault` | what that fault is, with file and line |
//! | `fault-ranks` | on which numbers of ranks the fault shows, written as `ranks` is; any without it |
//! | `mpi` | `yes` for a program that calls MPI before it has initialised it: only MPI's own launcher starts it |
//! | `alone` | `yes` for a program without ranks, which is started as it is, once |
//! | `limit` | seconds, where it needs more than the others |

use std::fmt;

/// Which numbers of ranks a program accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ranks {
    /// Any.
    Any,
    /// One of these.
    OneOf(Vec<u32>),
    /// This many or more.
    AtLeast(u32),
    /// Any even number.
    Even,
    /// Any square.
    Square,
}

impl Ranks {
    /// Whether a program may be started as this many.
    pub fn accepts(&self, ranks: u32) -> bool {
        match self {
            Ranks::Any => true,
            Ranks::OneOf(list) => list.contains(&ranks),
            Ranks::AtLeast(least) => ranks >= *least,
            Ranks::Even => ranks.is_multiple_of(2),
            Ranks::Square => ranks.isqrt().pow(2) == ranks,
        }
    }
}

/// One program of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// What reports call it.
    pub name: String,
    /// Where it lies, from the folder of the build.
    pub path: String,
    /// Whether it belongs to the subset that ends soon.
    pub is_quick: bool,
    /// Whether it knows no ranks.
    pub is_alone: bool,
    /// Whether it relies on the library to initialise MPI.
    pub needs_mpi: bool,
    /// How many ranks it takes.
    pub ranks: Ranks,
    /// Why only those.
    pub reason: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Files it reads, from the folder of the sources.
    pub inputs: Vec<String>,
    /// What its output must hold.
    pub prints: Vec<String>,
    /// Marks of lines that are no errors.
    pub allowed: Vec<String>,
    /// Marks of lines that are errors.
    pub errors: Vec<String>,
    /// Marks of errors that are the program's own.
    pub own_errors: Vec<String>,
    /// What is wrong with the program.
    pub fault: String,
    /// On how many ranks that shows.
    pub fault_ranks: Ranks,
    /// After how many seconds it counts as hung, where that differs from the others.
    pub limit_seconds: Option<u64>,
}

/// What is wrong with a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListError {
    line: usize,
    what: String,
}

impl fmt::Display for ListError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}: {}", self.line, self.what)
    }
}

/// Reads a list.
pub fn parse(text: &str) -> Result<Vec<Program>, ListError> {
    let mut programs: Vec<Program> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let at = |what: String| ListError { line: index + 1, what };
        let words = words(line).map_err(at)?;
        let Some((name, rest)) = words.split_first() else { continue };
        let Some((folder, options)) = rest.split_first() else {
            return Err(at(format!("{name} has no folder")));
        };
        let program = options.iter().try_fold(Program::new(name, folder), with_option).map_err(at)?;
        if programs.iter().any(|other| other.name == program.name) {
            return Err(at(format!("{} stands here twice; give one of them a label", program.name)));
        }
        if program.ranks != Ranks::Any && program.reason.is_empty() {
            return Err(at(format!("{} does not take any number of ranks, and no reason is given", program.name)));
        }
        if program.own_errors.is_empty() != program.fault.is_empty() {
            return Err(at(format!("{} needs both own-fault and fault, or neither", program.name)));
        }
        programs.push(program);
    }
    Ok(programs)
}

impl Program {
    fn new(name: &str, folder: &str) -> Program {
        Program {
            name: name.to_owned(),
            path: format!("{folder}/{name}"),
            is_quick: false,
            is_alone: false,
            needs_mpi: false,
            ranks: Ranks::Any,
            reason: String::new(),
            arguments: Vec::new(),
            inputs: Vec::new(),
            prints: Vec::new(),
            allowed: Vec::new(),
            errors: Vec::new(),
            own_errors: Vec::new(),
            fault: String::new(),
            fault_ranks: Ranks::Any,
            limit_seconds: None,
        }
    }
}

fn with_option(mut program: Program, option: &String) -> Result<Program, String> {
    let Some((key, value)) = option.split_once('=') else {
        if option != "quick" {
            return Err(format!("\"{option}\" is neither \"quick\" nor KEY=VALUE"));
        }
        program.is_quick = true;
        return Ok(program);
    };
    let value = value.to_owned();
    match key {
        "label" => program.name = value,
        "ranks" => program.ranks = ranks(&value)?,
        "reason" => program.reason = value,
        "args" => program.arguments = value.split_whitespace().map(str::to_owned).collect(),
        "input" => program.inputs.push(value),
        "prints" => program.prints.push(value),
        "allow" => program.allowed.push(value),
        "fails-if" => program.errors.push(value),
        "own-fault" => program.own_errors.push(value),
        "fault" => program.fault = value,
        "fault-ranks" => program.fault_ranks = ranks(&value)?,
        "alone" => program.is_alone = value == "yes",
        "mpi" => program.needs_mpi = value == "yes",
        "limit" => program.limit_seconds = Some(value.parse().map_err(|_| format!("\"{value}\" is no number"))?),
        _ => return Err(format!("there is no key \"{key}\"")),
    }
    Ok(program)
}

fn ranks(value: &str) -> Result<Ranks, String> {
    let number = |text: &str| text.parse().map_err(|_| format!("\"{text}\" is no number of ranks"));
    Ok(match value {
        "even" => Ranks::Even,
        "square" => Ranks::Square,
        _ => match value.strip_suffix('-') {
            Some(least) => Ranks::AtLeast(number(least)?),
            None => Ranks::OneOf(value.split(',').map(number).collect::<Result<_, _>>()?),
        },
    })
}

/// The words of a line. Quotes hold blanks together, and the comment is left out.
fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut is_quoted = false;
    for character in line.chars() {
        match character {
            '"' => is_quoted = !is_quoted,
            '#' if !is_quoted => break,
            _ if character.is_whitespace() && !is_quoted => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            _ => word.push(character),
        }
    }
    if is_quoted {
        return Err("a quote is not closed".to_owned());
    }
    if !word.is_empty() {
        words.push(word);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_everything_about_a_program() {
        let text = "# a comment\n\ntest global/testing quick ranks=2- reason=\"it sends\" args=\"-v 3\" allow=\"error=\" # end\n";
        let programs = parse(text).unwrap();
        assert_eq!(programs.len(), 1);
        let program = &programs[0];
        assert_eq!(program.path, "global/testing/test");
        assert!(program.is_quick);
        assert_eq!(program.ranks, Ranks::AtLeast(2));
        assert_eq!(program.reason, "it sends");
        assert_eq!(program.arguments, ["-v", "3"]);
        assert_eq!(program.allowed, ["error="]);
    }

    #[test]
    fn a_label_tells_programs_of_one_name_apart() {
        let programs = parse("simple a label=one\nsimple b label=two\n").unwrap();
        assert_eq!((programs[0].name.as_str(), programs[0].path.as_str()), ("one", "a/simple"));
        let error = parse("simple a\nsimple b\n").unwrap_err();
        assert!(error.to_string().starts_with("line 2: simple stands here twice"), "{error}");
    }

    #[test]
    fn numbers_of_ranks_are_given_in_five_ways() {
        let accepted = |text: &str| -> Vec<u32> {
            let ranks = ranks(text).unwrap();
            (1..10).filter(|count| ranks.accepts(*count)).collect()
        };
        assert_eq!(accepted("4"), [4]);
        assert_eq!(accepted("2,4"), [2, 4]);
        assert_eq!(accepted("7-"), [7, 8, 9]);
        assert_eq!(accepted("even"), [2, 4, 6, 8]);
        assert_eq!(accepted("square"), [1, 4, 9]);
        assert!(Ranks::Any.accepts(3));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, what) in [
            ("\nalone", "line 2: alone has no folder"),
            ("a b c", "line 1: \"c\" is neither"),
            ("a b c=d", "line 1: there is no key \"c\""),
            ("a b ranks=x", "line 1: \"x\" is no number of ranks"),
            ("a b ranks=4", "line 1: a does not take any number of ranks, and no reason is given"),
            ("a b own-fault=x", "line 1: a needs both own-fault and fault, or neither"),
            ("a b reason=\"x", "line 1: a quote is not closed"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with(what), "{error}");
        }
    }
}
