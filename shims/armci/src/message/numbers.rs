//! Reductions as C asks for them: the operation by its name, the type by its code, the numbers by a pointer.

use std::ffi::{CStr, c_char, c_int, c_long, c_longlong, c_void};

use longarm::{Group, Number, Reduction};

use crate::arguments::not_null;
use crate::refusal::{Done, Refusal};

pub(crate) const INT: c_int = -99;
pub(crate) const LONG: c_int = -101;
pub(crate) const LONG_LONG: c_int = -102;
pub(crate) const FLOAT: c_int = -306;
pub(crate) const DOUBLE: c_int = -307;

const _: () = assert!(size_of::<c_long>() == 8 && size_of::<c_longlong>() == 8);

/// More bytes than these go one part after the other, so that a copy of them all is never needed.
pub(crate) const PART_BYTES_MAX: usize = 32 << 20;

/// Numbers of C that are reduced in place.
#[derive(Clone, Copy)]
pub(crate) struct Numbers {
    pub(crate) start: *mut c_void,
    pub(crate) count: c_int,
    /// What they are: [`INT`] and its like.
    pub(crate) code: c_int,
}

/// Who gets the result.
#[derive(Clone, Copy)]
pub(crate) enum To {
    All,
    /// The first member. The numbers of the others stay as they are.
    First,
}

/// What is done to each number before all are combined.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    Magnitude,
    /// 1 if it is not 0.
    Truth,
}

/// What a reduction does.
#[derive(Clone, Copy)]
pub(crate) struct Operator {
    before: Before,
    reduction: Reduction,
}

/// Names and what they mean. The first that a given name begins with counts, so `&&` stands before `&`.
const OPERATORS: [(&[u8], Before, Reduction); 15] = [
    (b"+", Before::Nothing, Reduction::Sum),
    (b"*", Before::Nothing, Reduction::Product),
    (b"max", Before::Nothing, Reduction::Max),
    (b"min", Before::Nothing, Reduction::Min),
    (b"absmax", Before::Magnitude, Reduction::Max),
    (b"absmin", Before::Magnitude, Reduction::Min),
    (b"or", Before::Nothing, Reduction::Or),
    (b"&&", Before::Truth, Reduction::And),
    (b"land", Before::Truth, Reduction::And),
    (b"||", Before::Truth, Reduction::Or),
    (b"lor", Before::Truth, Reduction::Or),
    (b"&", Before::Nothing, Reduction::And),
    (b"band", Before::Nothing, Reduction::And),
    (b"|", Before::Nothing, Reduction::Or),
    (b"bor", Before::Nothing, Reduction::Or),
];

/// A text that C gives, as bytes without the zero.
///
/// # Safety
/// `text` is null or a C string that stays as it is while the result is used.
pub(crate) unsafe fn text_of<'a>(text: *const c_char) -> Done<&'a [u8]> {
    not_null(text)?;
    // SAFETY: not null, and this function's own contract.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

impl Operator {
    fn named(name: &[u8]) -> Done<Operator> {
        let found = OPERATORS.iter().find(|(known, ..)| name.starts_with(known));
        let (_, before, reduction) = found
            .ok_or_else(|| Refusal::fatal(format!("there is no operation {:?}", String::from_utf8_lossy(name))))?;
        Ok(Operator { before: *before, reduction: *reduction })
    }
}

/// A number type of C.
pub(crate) trait CNumber: Number + PartialOrd {
    /// Whether it has the bitwise and logical operations.
    const IS_INTEGER: bool;

    /// Without its sign.
    fn magnitude(self) -> Self;

    /// 1 if it is not 0.
    fn truth(self) -> Self;

    /// From the low bytes of a word.
    fn from_word(word: u64) -> Self;
}

macro_rules! integer {
    ($type:ty) => {
        impl CNumber for $type {
            const IS_INTEGER: bool = true;

            fn magnitude(self) -> Self {
                self.wrapping_abs()
            }

            fn truth(self) -> Self {
                Self::from(self != 0)
            }

            fn from_word(word: u64) -> Self {
                word as Self
            }
        }
    };
}
integer!(i32);
integer!(i64);

macro_rules! float {
    ($type:ty, $bits:ty) => {
        impl CNumber for $type {
            const IS_INTEGER: bool = false;

            fn magnitude(self) -> Self {
                self.abs()
            }

            fn truth(self) -> Self {
                Self::from(u8::from(self != 0.0))
            }

            fn from_word(word: u64) -> Self {
                Self::from_bits(word as $bits)
            }
        }
    };
}
float!(f32, u32);
float!(f64, u64);

/// Reduces numbers over a group, in place. Collective over it.
///
/// # Safety
/// The numbers can be read and written, and `name` is null or a C string.
pub(crate) unsafe fn reduce(group: &Group, to: To, numbers: Numbers, name: *const c_char) -> Done {
    // SAFETY: this function's own contract.
    let operator = Operator::named(unsafe { text_of(name) }?)?;
    match numbers.code {
        // SAFETY: this function's own contract.
        INT => unsafe { reduce_typed::<i32>(group, to, numbers, operator) },
        // SAFETY: this function's own contract; a long has 64 bits.
        LONG | LONG_LONG => unsafe { reduce_typed::<i64>(group, to, numbers, operator) },
        // SAFETY: this function's own contract.
        FLOAT => unsafe { reduce_typed::<f32>(group, to, numbers, operator) },
        // SAFETY: this function's own contract.
        DOUBLE => unsafe { reduce_typed::<f64>(group, to, numbers, operator) },
        code => Err(no_type(code)),
    }
}

pub(crate) fn no_type(code: c_int) -> Refusal {
    Refusal::fatal(format!("there is no type {code}"))
}

/// A count that C gives, of things at `start`.
pub(crate) fn count_at(start: *const c_void, count: c_int) -> Done<usize> {
    let found = usize::try_from(count).map_err(|_| Refusal::fatal(format!("the count is {count}")))?;
    if found > 0 {
        not_null(start)?;
    }
    Ok(found)
}

/// # Safety
/// The numbers can be read and written.
unsafe fn reduce_typed<T: CNumber>(group: &Group, to: To, numbers: Numbers, operator: Operator) -> Done {
    let mut left = count_at(numbers.start, numbers.count)?;
    let Operator { before, reduction } = operator;
    let is_bitwise = matches!(reduction, Reduction::And | Reduction::Or | Reduction::Xor);
    if is_bitwise && !T::IS_INTEGER {
        return Err(Refusal::fatal("bitwise and logical operations are for integers only"));
    }
    let part_max = PART_BYTES_MAX / size_of::<T>();
    let mut start = numbers.start.cast::<T>();
    // Without numbers the members meet all the same.
    loop {
        let count = left.min(part_max);
        // SAFETY: `count` numbers of those that this function's contract speaks of.
        let mut elements: Vec<T> = unsafe { read(start, count) };
        match before {
            Before::Nothing => {}
            Before::Magnitude => elements.iter_mut().for_each(|element| *element = element.magnitude()),
            Before::Truth => elements.iter_mut().for_each(|element| *element = element.truth()),
        }
        let gets_result = match to {
            To::All => {
                group.allreduce_collective(reduction, &mut elements)?;
                true
            }
            To::First => {
                group.reduce_collective(0, reduction, &mut elements)?;
                group.rank() == 0
            }
        };
        if gets_result {
            // SAFETY: as above.
            unsafe { write(start, &elements) };
        }
        left -= count;
        if left == 0 {
            return Ok(());
        }
        start = start.wrapping_add(count);
    }
}

/// Elements from C memory of any alignment.
///
/// # Safety
/// `count` elements are readable at `start`, unless there are none.
pub(crate) unsafe fn read<T: Number>(start: *const T, count: usize) -> Vec<T> {
    let mut elements = vec![T::default(); count];
    let bytes = count * size_of::<T>();
    // SAFETY: `bytes` bytes are readable by this function's contract, and the vector was made for as many just now.
    unsafe { std::ptr::copy_nonoverlapping(start.cast::<u8>(), elements.as_mut_ptr().cast::<u8>(), bytes) };
    elements
}

/// Elements to C memory of any alignment.
///
/// # Safety
/// All of them are writable at `start`.
pub(crate) unsafe fn write<T: Number>(start: *mut T, elements: &[T]) {
    let bytes = size_of_val(elements);
    // SAFETY: `bytes` bytes are writable by this function's contract, and the slice is ours, so they do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(elements.as_ptr().cast::<u8>(), start.cast::<u8>(), bytes) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Option<(bool, Reduction)> {
        let operator = Operator::named(name.as_bytes()).ok()?;
        Some((operator.before == Before::Nothing, operator.reduction))
    }

    #[test]
    fn operations_are_known_by_how_their_names_begin() {
        assert_eq!(named("+"), Some((true, Reduction::Sum)));
        assert_eq!(named("maximum"), Some((true, Reduction::Max)));
        assert_eq!(named("absmin "), Some((false, Reduction::Min)));
        assert_eq!(named("or"), Some((true, Reduction::Or)));
        assert_eq!(named("&&"), Some((false, Reduction::And)));
        assert_eq!(named("&"), Some((true, Reduction::And)));
        assert_eq!(named("||"), Some((false, Reduction::Or)));
        assert_eq!(named("|"), Some((true, Reduction::Or)));
        assert_eq!(named("lor"), Some((false, Reduction::Or)));
        assert_eq!(named("band"), Some((true, Reduction::And)));
        assert_eq!(named("mean"), None);
        assert_eq!(named(""), None);
    }

    #[test]
    fn the_magnitude_of_the_smallest_integer_does_not_end_the_program() {
        assert_eq!(i32::MIN.magnitude(), i32::MIN);
        assert_eq!((-5_i64).magnitude(), 5);
        assert_eq!((-0.5_f32).magnitude(), 0.5);
    }
}
