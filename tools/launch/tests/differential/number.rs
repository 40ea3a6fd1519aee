//! The element types, and what an update does to one of them, computed the plain way.

use longarm::{Complex32, Complex64, Element, Number, Update};

use super::dice::Dice;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    U8,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
    C32,
    C64,
}

/// What an accumulate does. The order of two of one kind does not matter, except for `Replace`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    Sum,
    Scaled,
    Min,
    Max,
    And,
    Or,
    Xor,
    Replace,
}

/// Runs the body with `$type` as the type of the kind. Bytes cannot be accumulated.
macro_rules! with_number {
    ($kind:expr, $type:ident => $body:expr) => {
        match $kind {
            Kind::U8 => unreachable!("bytes are not accumulated"),
            Kind::I32 => {
                type $type = i32;
                $body
            }
            Kind::U32 => {
                type $type = u32;
                $body
            }
            Kind::I64 => {
                type $type = i64;
                $body
            }
            Kind::U64 => {
                type $type = u64;
                $body
            }
            Kind::F32 => {
                type $type = f32;
                $body
            }
            Kind::F64 => {
                type $type = f64;
                $body
            }
            Kind::C32 => {
                type $type = longarm::Complex32;
                $body
            }
            Kind::C64 => {
                type $type = longarm::Complex64;
                $body
            }
        }
    };
}

/// Runs the body with `$type` as the type of the kind.
macro_rules! with_element {
    ($kind:expr, $type:ident => $body:expr) => {
        match $kind {
            Kind::U8 => { type $type = u8; $body }
            other => with_number!(other, $type => $body),
        }
    };
}

pub(crate) use {with_element, with_number};

pub const NUMBERS: [Kind; 8] = [Kind::I32, Kind::U32, Kind::I64, Kind::U64, Kind::F32, Kind::F64, Kind::C32, Kind::C64];

impl Kind {
    pub fn bytes(self) -> usize {
        with_element!(self, T => size_of::<T>())
    }

    pub fn is_integer(self) -> bool {
        matches!(self, Kind::I32 | Kind::U32 | Kind::I64 | Kind::U64)
    }

    pub fn has_order(self) -> bool {
        !matches!(self, Kind::U8 | Kind::C32 | Kind::C64)
    }

    /// What can be done with elements of this kind, whatever the order.
    pub fn deeds(self) -> &'static [Deed] {
        match self {
            kind if kind.is_integer() => {
                &[Deed::Sum, Deed::Scaled, Deed::Min, Deed::Max, Deed::And, Deed::Or, Deed::Xor]
            }
            kind if kind.has_order() => &[Deed::Sum, Deed::Scaled, Deed::Min, Deed::Max],
            _ => &[Deed::Sum, Deed::Scaled],
        }
    }
}

/// A number that can be made from a small integer, and updated.
pub trait Small: Number {
    fn small(value: i64) -> Self;
    fn updated(self, deed: Deed, source: Self, factor: Self) -> Self;
}

macro_rules! small_integer {
    ($($type:ty),*) => { $(
        impl Small for $type {
            fn small(value: i64) -> Self {
                value as $type
            }

            fn updated(self, deed: Deed, source: Self, factor: Self) -> Self {
                match deed {
                    Deed::Sum => self.wrapping_add(source),
                    Deed::Scaled => self.wrapping_add(source.wrapping_mul(factor)),
                    Deed::Min => if source < self { source } else { self },
                    Deed::Max => if source > self { source } else { self },
                    Deed::And => self & source,
                    Deed::Or => self | source,
                    Deed::Xor => self ^ source,
                    Deed::Replace => source,
                }
            }
        }
    )* };
}

macro_rules! small_float {
    ($($type:ty),*) => { $(
        impl Small for $type {
            fn small(value: i64) -> Self {
                value as $type
            }

            fn updated(self, deed: Deed, source: Self, factor: Self) -> Self {
                match deed {
                    Deed::Sum => self + source,
                    Deed::Scaled => self + source * factor,
                    Deed::Min => if source < self { source } else { self },
                    Deed::Max => if source > self { source } else { self },
                    Deed::Replace => source,
                    Deed::And | Deed::Or | Deed::Xor => unreachable!("floats have no bits"),
                }
            }
        }
    )* };
}

macro_rules! small_complex {
    ($($type:ident),*) => { $(
        impl Small for $type {
            fn small(value: i64) -> Self {
                $type { re: value as _, im: (value % 3) as _ }
            }

            fn updated(self, deed: Deed, source: Self, factor: Self) -> Self {
                match deed {
                    Deed::Sum => $type { re: self.re + source.re, im: self.im + source.im },
                    Deed::Scaled => $type {
                        re: self.re + (source.re * factor.re - source.im * factor.im),
                        im: self.im + (source.re * factor.im + source.im * factor.re),
                    },
                    Deed::Replace => source,
                    _ => unreachable!("complex numbers have no order and no bits"),
                }
            }
        }
    )* };
}

small_integer!(i32, u32, i64, u64);
small_float!(f32, f64);
small_complex!(Complex32, Complex64);

/// What a buffer holds.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    /// Any bytes.
    Noise,
    /// Integers of 0 to 8, as this kind of number.
    Small(Kind),
    /// This integer in every element.
    Word(u64),
}

impl Content {
    /// What suits a deed: sums stay small enough to be exact in every type, bits are all used.
    pub fn of(kind: Kind, deed: Deed) -> Content {
        match deed {
            Deed::And | Deed::Or | Deed::Xor => Content::Noise,
            Deed::Min | Deed::Max if kind.is_integer() => Content::Noise,
            _ => Content::Small(kind),
        }
    }

    /// Fills a buffer of whole elements.
    pub fn fill(self, bytes: &mut [u8], key: u64, element_bytes: usize) {
        match self {
            Content::Noise => super::dice::fill(bytes, key),
            Content::Small(kind) => with_number!(kind, T => fill_small::<T>(bytes, key)),
            Content::Word(word) => {
                for element in bytes.chunks_exact_mut(element_bytes) {
                    element.copy_from_slice(&word.to_le_bytes()[..element_bytes]);
                }
            }
        }
    }
}

fn fill_small<T: Small>(bytes: &mut [u8], key: u64) {
    let mut dice = Dice::new(&[key]);
    for element in bytes.chunks_exact_mut(size_of::<T>()) {
        element.copy_from_slice(T::small(dice.below(9) as i64).as_bytes());
    }
}

/// The update as the public interface names it.
pub fn update_of<T: Small>(deed: Deed, factor: i64) -> Update<T> {
    match deed {
        Deed::Sum => Update::Sum,
        Deed::Scaled => Update::Scaled(T::small(factor)),
        Deed::Min => Update::Min,
        Deed::Max => Update::Max,
        Deed::And => Update::And,
        Deed::Or => Update::Or,
        Deed::Xor => Update::Xor,
        Deed::Replace => Update::Replace,
    }
}

/// Updates equally many elements of two byte strings.
pub fn update<T: Small>(target: &mut [u8], source: &[u8], deed: Deed, factor: i64) {
    let size = size_of::<T>();
    for (target, source) in target.chunks_exact_mut(size).zip(source.chunks_exact(size)) {
        let updated = read::<T>(target).updated(deed, read(source), T::small(factor));
        target.copy_from_slice(updated.as_bytes());
    }
}

/// An element from bytes of any alignment.
pub fn read<T: Element>(bytes: &[u8]) -> T {
    T::read_from_bytes(bytes).expect("as many bytes as the element has")
}

/// Whether a value read in the middle of a phase can be: `least` is what the reader itself has done before, `last`
/// what all have done in the end.
pub fn is_between(kind: Kind, deed: Deed, least: &[u8], seen: &[u8], last: &[u8]) -> bool {
    fn ordered<T: Small + PartialOrd>(deed: Deed, least: &[u8], seen: &[u8], last: &[u8]) -> bool {
        let (least, seen, last) = (read::<T>(least), read::<T>(seen), read::<T>(last));
        if deed == Deed::Min { last <= seen && seen <= least } else { least <= seen && seen <= last }
    }
    let subset = |small: &[u8], large: &[u8]| small.iter().zip(large).all(|(small, large)| small & !large == 0);
    match (deed, kind) {
        (Deed::Or, _) => subset(least, seen) && subset(seen, last),
        (Deed::And, _) => subset(seen, least) && subset(last, seen),
        (Deed::Xor | Deed::Replace, _) => true,
        (_, Kind::I32) => ordered::<i32>(deed, least, seen, last),
        (_, Kind::U32) => ordered::<u32>(deed, least, seen, last),
        (_, Kind::I64) => ordered::<i64>(deed, least, seen, last),
        (_, Kind::U64) => ordered::<u64>(deed, least, seen, last),
        (_, Kind::F32) => ordered::<f32>(deed, least, seen, last),
        (_, Kind::F64) => ordered::<f64>(deed, least, seen, last),
        (_, Kind::U8 | Kind::C32 | Kind::C64) => true,
    }
}
