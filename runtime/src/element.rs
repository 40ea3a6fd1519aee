//! What a window may be made of.

use longarm_proto::{ElementType, RmwOp, RmwWidth, Scale};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Plain old data: every bit pattern is a value, and there is no padding. A torn or stale one is garbage, never
/// undefined behaviour.
///
/// Implemented for everything that has zerocopy's traits, so a struct becomes one by
/// `#[derive(FromBytes, IntoBytes, Immutable)]`.
///
/// ```
/// let world = longarm::init()?;
/// use zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// #[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
/// #[repr(C)]
/// struct Point {
///     x: f64,
///     id: u64,
/// }
///
/// let points = world.allocate_collective::<Point>(10)?;
/// points.put_one(0, 3, Point { x: 0.5, id: 8 })?;
/// assert_eq!(points.get_one(0, 3)?.id, 8);
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
pub trait Element: FromBytes + IntoBytes + Immutable + Copy + Send + Sync + 'static {}

impl<T: FromBytes + IntoBytes + Immutable + Copy + Send + Sync + 'static> Element for T {}

/// An element that can be accumulated and reduced.
///
/// ```
/// let world = longarm::init()?;
/// fn add<T: longarm::Number>(window: &longarm::Window<T>, source: &[T]) -> longarm::Result<()> {
///     Ok(window.accumulate(0, 0, longarm::Update::Sum, source)?)
/// }
/// let sums = world.allocate_collective::<f32>(2)?;
/// add(&sums, &[1.0, 2.0])?;
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
pub trait Number: Element + PartialEq + std::fmt::Debug + Default {
    /// How the wire names it.
    const TYPE: ElementType;

    /// As a factor of an accumulate.
    fn to_scale(self) -> Scale;

    /// One step of a reduction of a collective.
    fn combine(self, other: Self, reduction: Reduction) -> Option<Self>;
}

/// An integer that can be read, modified and written atomically.
///
/// ```
/// let world = longarm::init()?;
/// fn draw<T: longarm::Word>(counter: &longarm::Window<T>) -> longarm::Result<u64> {
///     Ok(counter.fetch_add(0, 0, T::from_bits(1))?.to_bits())
/// }
/// assert!(draw(&world.allocate_collective::<i32>(1)?)? < u64::from(world.size()));
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
pub trait Word: Number + PartialOrd + Eq {
    /// Its size, as the wire names it.
    const WIDTH: RmwWidth;

    /// What keeps the smaller and the larger one of two, as the wire names them: signed numbers have an order of their own.
    #[doc(hidden)]
    const MIN_MAX: (RmwOp, RmwOp);

    /// Its bits, zero-extended.
    fn to_bits(self) -> u64;

    /// The value of the low bits.
    fn from_bits(bits: u64) -> Self;
}

/// What a reduction does with two elements. Sums wrap around for integers.
///
/// ```
/// let world = longarm::init()?;
/// let mut lowest = [world.rank()];
/// world.allreduce_collective(longarm::Reduction::Min, &mut lowest)?;
/// assert_eq!(lowest, [0]);
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reduction {
    /// left + right
    Sum,
    /// left × right
    Product,
    /// The smaller one; not for complex numbers.
    Min,
    /// The larger one; not for complex numbers.
    Max,
    /// Bitwise and; integers only.
    And,
    /// Bitwise or; integers only.
    Or,
    /// Bitwise exclusive or; integers only.
    Xor,
}

/// A complex number of two `f32`, laid out as in C and Fortran.
///
/// ```
/// use longarm::Complex32;
/// let world = longarm::init()?;
/// let window = world.allocate_collective::<Complex32>(1)?;
/// window.put_one(0, 0, Complex32 { re: 1.0, im: -2.0 })?;
/// assert_eq!(window.get_one(0, 0)?.im, -2.0);
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Complex32 {
    /// Real part.
    pub re: f32,
    /// Imaginary part.
    pub im: f32,
}

/// A complex number of two `f64`, laid out as in C and Fortran.
///
/// ```
/// use longarm::{Complex64, Update};
/// let world = longarm::init()?;
/// let window = world.allocate_collective::<Complex64>(1)?;
/// let i = Complex64 { re: 0.0, im: 1.0 };
/// window.accumulate(0, 0, Update::Sum, &[i])?;
/// window.accumulate(0, 0, Update::Scaled(i), &[i])?; // i * i
/// assert_eq!(window.get_one(0, 0)?, Complex64 { re: -1.0, im: 1.0 });
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Complex64 {
    /// Real part.
    pub re: f64,
    /// Imaginary part.
    pub im: f64,
}

macro_rules! integer {
    ($type:ty, $element:ident, $width:ident, $unsigned:ty, $min:ident, $max:ident) => {
        impl Number for $type {
            const TYPE: ElementType = ElementType::$element;

            fn to_scale(self) -> Scale {
                Scale::from(self)
            }

            fn combine(self, other: Self, reduction: Reduction) -> Option<Self> {
                Some(match reduction {
                    Reduction::Sum => self.wrapping_add(other),
                    Reduction::Product => self.wrapping_mul(other),
                    Reduction::Min => self.min(other),
                    Reduction::Max => self.max(other),
                    Reduction::And => self & other,
                    Reduction::Or => self | other,
                    Reduction::Xor => self ^ other,
                })
            }
        }

        impl Word for $type {
            const WIDTH: RmwWidth = RmwWidth::$width;
            const MIN_MAX: (RmwOp, RmwOp) = (RmwOp::$min, RmwOp::$max);

            fn to_bits(self) -> u64 {
                u64::from(self as $unsigned)
            }

            fn from_bits(bits: u64) -> Self {
                bits as $unsigned as $type
            }
        }
    };
}

integer!(i32, I32, W32, u32, FetchMinSigned, FetchMaxSigned);
integer!(u32, U32, W32, u32, FetchMinUnsigned, FetchMaxUnsigned);
integer!(i64, I64, W64, u64, FetchMinSigned, FetchMaxSigned);
integer!(u64, U64, W64, u64, FetchMinUnsigned, FetchMaxUnsigned);

macro_rules! float {
    ($type:ty, $element:ident) => {
        impl Number for $type {
            const TYPE: ElementType = ElementType::$element;

            fn to_scale(self) -> Scale {
                Scale::from(self)
            }

            fn combine(self, other: Self, reduction: Reduction) -> Option<Self> {
                match reduction {
                    Reduction::Sum => Some(self + other),
                    Reduction::Product => Some(self * other),
                    Reduction::Min => Some(self.min(other)),
                    Reduction::Max => Some(self.max(other)),
                    Reduction::And | Reduction::Or | Reduction::Xor => None,
                }
            }
        }
    };
}

float!(f32, F32);
float!(f64, F64);

macro_rules! complex {
    ($type:ident, $part:ty, $element:ident) => {
        impl Number for $type {
            const TYPE: ElementType = ElementType::$element;

            fn to_scale(self) -> Scale {
                Scale::from((self.re, self.im))
            }

            fn combine(self, other: Self, reduction: Reduction) -> Option<Self> {
                let (left, right): (num_complex::Complex<$part>, num_complex::Complex<$part>) =
                    (self.into(), other.into());
                match reduction {
                    Reduction::Sum => Some((left + right).into()),
                    Reduction::Product => Some((left * right).into()),
                    _ => None,
                }
            }
        }

        impl From<num_complex::Complex<$part>> for $type {
            fn from(value: num_complex::Complex<$part>) -> $type {
                $type { re: value.re, im: value.im }
            }
        }

        impl From<$type> for num_complex::Complex<$part> {
            fn from(value: $type) -> num_complex::Complex<$part> {
                num_complex::Complex { re: value.re, im: value.im }
            }
        }
    };
}

complex!(Complex32, f32, C32);
complex!(Complex64, f64, C64);

/// How many elements of a type a part of so many bytes has, if there is such a part. Of those without a size there is one a byte.
pub(crate) fn length_of<T>(part_bytes: Option<u64>) -> Option<usize> {
    Some(part_bytes? as usize / size_of::<T>().max(1))
}
