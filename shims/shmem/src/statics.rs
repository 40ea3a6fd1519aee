//! The program's own global and static variables, which are symmetric too.
//!
//! At init the writable segment of the main program (its `.data` and `.bss`, without what the linker has made read-only) is
//! copied into a window, and the window's memory is mapped in its place. From then on a variable is memory that all PEs of
//! the node have mapped and the node's server reaches, as the heap is.
//!
//! ```text
//!   main program   │ text │ relro │ .data │ .bss          │
//!                                 └───────┴───────────────┘ mapped again: this PE's part of the window
//! ```
//!
//! Pages of `.bss` that were never touched are not copied, so a large one costs nothing. After `fork` the child gets a copy
//! of its own, see [`crate::fork`]. Where the system refuses it the variables stay where they are, and [`crate::away`] reaches them. PEs that run
//! another program have no symmetric variables in common. All of that is said once.
//!
//! It refuses variables of shared libraries, as the specification does.

use longarm::{Window, World};

use crate::away::Away;
use crate::boundary::or_end;
use crate::segment::{self, ProgramData};

/// See the module.
pub(crate) struct Statics {
    pub(crate) window: Window<u8>,
    /// Where the segment of this PE begins.
    pub(crate) start: usize,
    pub(crate) bytes: usize,
    /// By rank.
    reach: Box<[Reach]>,
    /// All are a part of the window.
    is_whole: bool,
    /// How those are reached that stayed where they were, if there are any.
    away: Option<Away>,
}

/// How the variables of a PE are reached.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// They are a part of the window.
    Window,
    /// They are in the memory of one process alone.
    Away,
    /// Not at all: it runs another program, or they are switched off there.
    Nohow,
}

/// What [`SWITCH`] asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    Off,
    Stay,
    Map,
}

/// Turns it off, or leaves the variables where they are.
const SWITCH: &str = "SHMEM_STATICS";

impl Wish {
    fn from_environment() -> Wish {
        match std::env::var(SWITCH).as_deref() {
            Ok("0" | "off" | "no") => Wish::Off,
            Ok("stay") => Wish::Stay,
            _ => Wish::Map,
        }
    }
}

impl Statics {
    /// Collective. `None`, and a line on standard error, if no PE has any. `is_threaded`: the program had threads of its own
    /// before init.
    pub(crate) fn new(name: &'static str, world: &World, is_threaded: bool) -> Option<Statics> {
        let wish = Wish::from_environment();
        let segment = if wish == Wish::Off { ProgramData::default() } else { segment::find() };
        let bytes = segment.bytes();
        let program = if bytes == 0 { 0 } else { segment.program };
        let programs = or_end(name, world.allgather_collective(&[program]));
        say_whose(world, &programs);
        if programs.iter().all(|program| *program == 0) {
            return None;
        }
        let window = or_end(name, world.allocate_collective::<u8>(bytes));
        let stays = match or_end(name, window.pointer_at(world.rank())) {
            Some(part) if bytes > 0 && wish == Wish::Map => {
                segment::replace(&segment, part, is_threaded).err().map(|error| error.to_string())
            }
            _ => (bytes > 0).then(|| format!("{SWITCH} says so")),
        };
        let staying = or_end(name, world.allgather_collective(&[u64::from(stays.is_some())]));
        let reach = programs.iter().zip(&staying).map(|(theirs, stays)| match (*theirs == program, stays) {
            (false, _) => Reach::Nohow,
            (true, 0) => Reach::Window,
            (true, _) => Reach::Away,
        });
        if let Some(why) = &stays
            && staying.iter().position(|stays| *stays != 0) == Some(world.rank() as usize)
        {
            eprintln!(
                "longarm: rank {}: global and static variables stay where they are ({why}): others reach them by copies \
                 between processes and by messages, which is slower",
                world.rank()
            );
        }
        let is_any_away = staying.iter().any(|stays| *stays != 0);
        let away = is_any_away.then(|| Away::new(name, world, &segment, stays.is_some()));
        let reach: Box<[Reach]> = reach.collect();
        let is_whole = reach.iter().all(|reach| *reach == Reach::Window);
        Some(Statics { window, start: segment.start, bytes, reach, is_whole, away })
    }

    /// How the variables of a PE are reached.
    pub(crate) fn reach(&self, rank: u32) -> Reach {
        self.reach[rank as usize]
    }

    /// Where the variables of a PE are mapped here; null if they are not.
    pub(crate) fn mapped(&self, name: &'static str, me: u32, rank: u32) -> *mut u8 {
        match self.reach(rank) {
            Reach::Away if rank == me => std::ptr::with_exposed_provenance_mut(self.start),
            Reach::Window => or_end(name, self.window.pointer_at(rank)).unwrap_or(std::ptr::null_mut()),
            Reach::Away | Reach::Nohow => std::ptr::null_mut(),
        }
    }

    /// What reaches the variables of a PE, if it is not the window.
    #[inline]
    pub(crate) fn away(&self, rank: u32) -> Option<&Away> {
        self.away.as_ref().filter(|_| self.reach(rank) == Reach::Away)
    }

    /// Whether there are PEs whose variables stayed where they were.
    pub(crate) fn has_away(&self) -> bool {
        self.away.is_some()
    }

    /// Whether an address is that of a variable that not every PE's neighbours have mapped. The same at all PEs for the
    /// address that each has of one variable.
    pub(crate) fn is_apart(&self, address: usize) -> bool {
        !self.is_whole && address.wrapping_sub(self.start) < self.bytes
    }
}

/// Says what all are to know of programs that are not the same. A program that is off is 0.
fn say_whose(world: &World, programs: &[u64]) {
    let first_off = programs.iter().position(|program| *program == 0);
    if first_off == Some(world.rank() as usize) {
        eprintln!("longarm: global and static variables are not symmetric: {SWITCH} says so");
    }
    let mut others = programs.iter().filter(|program| **program != 0);
    let first = others.next();
    if world.rank() == 0 && others.any(|program| Some(program) != first) {
        eprintln!(
            "longarm: the PEs run different programs: global and static variables are symmetric among those of one program only"
        );
    }
}
