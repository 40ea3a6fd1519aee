//! What can be done to the bytes of a window: element types, accumulate kernels, read-modify-writes, signals.
//!
//! Only the words and their numbers on the wire are here. What does them stands in `shm`.

/// Defines an enum without fields whose variants have a fixed number on the wire.
macro_rules! wire_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $number:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$variant_doc])* $variant = $number,)+
        }

        impl $name {
            /// Every variant, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The variant that has this number on the wire, if any has.
            #[inline]
            pub const fn from_wire(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// The number on the wire.
            #[inline]
            pub const fn to_wire(self) -> u8 {
                self as u8
            }
        }
    };
}
pub(crate) use wire_enum;

wire_enum! {
    /// What an accumulate takes its bytes for. Everything is little-endian.
    ElementType {
        /// Signed, 4 bytes.
        I32 = 0,
        /// Signed, 8 bytes.
        I64 = 1,
        /// Unsigned, 4 bytes.
        U32 = 2,
        /// Unsigned, 8 bytes.
        U64 = 3,
        /// Floating point, 4 bytes.
        F32 = 4,
        /// Floating point, 8 bytes.
        F64 = 5,
        /// Complex of two `F32`, 8 bytes, real part first.
        C32 = 6,
        /// Complex of two `F64`, 16 bytes, real part first.
        C64 = 7,
    }
}

impl ElementType {
    /// Bytes of one element.
    #[inline]
    pub const fn bytes(self) -> usize {
        match self {
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 | Self::C32 => 8,
            Self::C64 => 16,
        }
    }

    /// Bytes of one real number in an element: half of a complex one, all of any other.
    #[inline]
    pub const fn component_bytes(self) -> usize {
        if self.is_complex() { self.bytes() / 2 } else { self.bytes() }
    }

    /// Whether an element is a pair of a real and an imaginary part.
    #[inline]
    pub const fn is_complex(self) -> bool {
        matches!(self, Self::C32 | Self::C64)
    }

    /// Whether elements are integers, which CPU atomics can update.
    #[inline]
    pub const fn is_integer(self) -> bool {
        matches!(self, Self::I32 | Self::I64 | Self::U32 | Self::U64)
    }
}

wire_enum! {
    /// What an accumulate does with each pair of a target's and a source's element.
    AccumulateOp {
        /// `target += scale * source`. Integers wrap around.
        Sum = 0,
        /// The smaller of the two.
        Min = 1,
        /// The larger of the two.
        Max = 2,
        /// Bitwise and. Integers only.
        And = 3,
        /// Bitwise or. Integers only.
        Or = 4,
        /// Bitwise exclusive or. Integers only.
        Xor = 5,
        /// The source's element.
        Replace = 6,
    }
}

/// An element type and an operation that make sense together.
///
/// The fields are read by [`Kernel::element`] and [`Kernel::op`], so that no senseless pair can be built.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Kernel {
    element: ElementType,
    op: AccumulateOp,
}

impl Kernel {
    /// `None` for min and max of complex numbers, which have no order, and for bitwise operations on anything but
    /// integers.
    #[inline]
    pub const fn new(element: ElementType, op: AccumulateOp) -> Option<Kernel> {
        let sensible = match op {
            AccumulateOp::Sum | AccumulateOp::Replace => true,
            AccumulateOp::Min | AccumulateOp::Max => !element.is_complex(),
            AccumulateOp::And | AccumulateOp::Or | AccumulateOp::Xor => element.is_integer(),
        };
        if sensible { Some(Kernel { element, op }) } else { None }
    }

    /// What the bytes are taken for.
    #[inline]
    pub const fn element(self) -> ElementType {
        self.element
    }

    /// What is done with them.
    #[inline]
    pub const fn op(self) -> AccumulateOp {
        self.op
    }
}

/// The factor of a sum: one value of the element type, little-endian from byte 0 on, the rest 0.
///
/// Only [`AccumulateOp::Sum`] reads it. The other operations carry [`Scale::one`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Scale(pub [u8; 16]);

impl Scale {
    /// The value that changes nothing.
    #[inline]
    pub fn one(element: ElementType) -> Scale {
        match element {
            ElementType::I32 => 1_i32.into(),
            ElementType::I64 => 1_i64.into(),
            ElementType::U32 => 1_u32.into(),
            ElementType::U64 => 1_u64.into(),
            ElementType::F32 => 1_f32.into(),
            ElementType::F64 => 1_f64.into(),
            ElementType::C32 => (1_f32, 0_f32).into(),
            ElementType::C64 => (1_f64, 0_f64).into(),
        }
    }

    /// Whether the bytes behind a value of this type are 0, as they have to be on the wire.
    #[inline]
    pub fn fits(&self, element: ElementType) -> bool {
        self.0[element.bytes()..].iter().all(|&byte| byte == 0)
    }

    fn from_parts(parts: &[&[u8]]) -> Scale {
        let mut bytes = [0; 16];
        let mut at = 0;
        for part in parts {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        Scale(bytes)
    }
}

/// Makes a scale from a plain number.
macro_rules! scale_from {
    ($($number:ty)+) => {$(
        impl From<$number> for Scale {
            #[inline]
            fn from(value: $number) -> Scale {
                Scale::from_parts(&[&value.to_le_bytes()])
            }
        }
    )+};
}
scale_from! { i32 i64 u32 u64 f32 f64 }

impl From<(f32, f32)> for Scale {
    /// The real part first.
    #[inline]
    fn from((real, imaginary): (f32, f32)) -> Scale {
        Scale::from_parts(&[&real.to_le_bytes(), &imaginary.to_le_bytes()])
    }
}

impl From<(f64, f64)> for Scale {
    /// The real part first.
    #[inline]
    fn from((real, imaginary): (f64, f64)) -> Scale {
        Scale::from_parts(&[&real.to_le_bytes(), &imaginary.to_le_bytes()])
    }
}

wire_enum! {
    /// What a read-modify-write does to its word. Each one gives back the old value.
    RmwOp {
        /// Adds the operand, wrapping around.
        FetchAdd = 0,
        /// Stores the operand.
        Swap = 1,
        /// Stores the operand if the word equals the compare value.
        CompareSwap = 2,
        /// Bitwise and with the operand.
        FetchAnd = 3,
        /// Bitwise or with the operand.
        FetchOr = 4,
        /// Bitwise exclusive or with the operand.
        FetchXor = 5,
        /// Reads only. The operand is not looked at.
        Fetch = 6,
        /// Stores the operand. The old value given back means nothing.
        Set = 7,
        /// Stores the operand if it is smaller, both as signed numbers.
        FetchMinSigned = 8,
        /// Stores the operand if it is larger, both as signed numbers.
        FetchMaxSigned = 9,
        /// Stores the operand if it is smaller, both as unsigned numbers.
        FetchMinUnsigned = 10,
        /// Stores the operand if it is larger, both as unsigned numbers.
        FetchMaxUnsigned = 11,
    }
}

wire_enum! {
    /// How wide the word of a read-modify-write is.
    RmwWidth {
        /// 4 bytes. Operand and compare value count by their low half.
        W32 = 0,
        /// 8 bytes.
        W64 = 1,
    }
}

impl RmwWidth {
    /// Bytes of the word, and its alignment.
    #[inline]
    pub const fn bytes(self) -> usize {
        match self {
            Self::W32 => 4,
            Self::W64 => 8,
        }
    }
}

/// A read-modify-write of one aligned integer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rmw {
    /// What is done.
    pub op: RmwOp,
    /// To how many bytes.
    pub width: RmwWidth,
    /// With which value.
    pub operand: u64,
    /// What [`RmwOp::CompareSwap`] compares with. It does not travel with any other operation, and arrives as 0.
    pub compare: u64,
}

/// One word of several that are updated by one request, all in the same way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RmwWord {
    /// Where it is, in bytes from the window's start.
    pub offset: u64,
    /// With which value. Of 4 bytes its low half counts.
    pub operand: u64,
}

wire_enum! {
    /// What a put with signal does to its signal word once the bytes are there.
    SignalOp {
        /// Stores the value.
        Set = 0,
        /// Adds the value, wrapping around.
        Add = 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_on_the_wire_come_back_as_the_same_variant() {
        for &element in ElementType::ALL {
            assert_eq!(ElementType::from_wire(element.to_wire()), Some(element));
        }
        for &op in RmwOp::ALL {
            assert_eq!(RmwOp::from_wire(op.to_wire()), Some(op));
        }
        assert_eq!(ElementType::from_wire(8), None);
        assert_eq!(AccumulateOp::from_wire(7), None);
        assert_eq!(RmwOp::from_wire(12), None);
        assert_eq!(RmwWidth::from_wire(2), None);
        assert_eq!(SignalOp::from_wire(2), None);
    }

    #[test]
    fn complex_numbers_have_no_order_and_floats_have_no_bits() {
        for &element in ElementType::ALL {
            for &op in AccumulateOp::ALL {
                let allowed = match op {
                    AccumulateOp::Sum | AccumulateOp::Replace => true,
                    AccumulateOp::Min | AccumulateOp::Max => !matches!(element, ElementType::C32 | ElementType::C64),
                    _ => matches!(element, ElementType::I32 | ElementType::I64 | ElementType::U32 | ElementType::U64),
                };
                let kernel = Kernel::new(element, op);
                assert_eq!(kernel.is_some(), allowed, "{element:?} {op:?}");
                if let Some(kernel) = kernel {
                    assert_eq!((kernel.element(), kernel.op()), (element, op));
                }
            }
        }
    }

    #[test]
    fn one_is_the_number_one_of_its_type() {
        assert_eq!(&Scale::one(ElementType::F64).0[..8], 1_f64.to_le_bytes());
        assert_eq!(&Scale::one(ElementType::I32).0[..4], 1_i32.to_le_bytes());
        let complex = Scale::one(ElementType::C32).0;
        assert_eq!((&complex[..4], &complex[4..8]), (&1_f32.to_le_bytes()[..], &0_f32.to_le_bytes()[..]));
        for &element in ElementType::ALL {
            assert!(Scale::one(element).fits(element), "{element:?}");
        }
        assert!(!Scale::from(1_f64).fits(ElementType::F32));
        assert!(!Scale::from((1_f64, 1_f64)).fits(ElementType::F64));
    }

    #[test]
    fn a_complex_element_is_two_components() {
        assert_eq!((ElementType::C32.bytes(), ElementType::C32.component_bytes()), (8, 4));
        assert_eq!((ElementType::C64.bytes(), ElementType::C64.component_bytes()), (16, 8));
        assert_eq!((ElementType::F64.bytes(), ElementType::F64.component_bytes()), (8, 8));
    }
}
