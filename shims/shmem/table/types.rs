//! The lists of types that the specification has.

/// A type that typed functions are made for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Type {
    /// As it is in names.
    pub name: &'static str,
    /// In C.
    pub c: &'static str,
    /// Whether it is a type of its own in C on this machine, and no other name for one above it.
    pub is_own: bool,
}

const fn own(name: &'static str, c: &'static str) -> Type {
    Type { name, c, is_own: true }
}

const fn other(name: &'static str, c: &'static str) -> Type {
    Type { name, c, is_own: false }
}

const SHORT: Type = own("short", "short");
const INT: Type = own("int", "int");
const LONG: Type = own("long", "long");
const LONGLONG: Type = own("longlong", "long long");
const UCHAR: Type = own("uchar", "unsigned char");
const USHORT: Type = own("ushort", "unsigned short");
const UINT: Type = own("uint", "unsigned int");
const ULONG: Type = own("ulong", "unsigned long");
const ULONGLONG: Type = own("ulonglong", "unsigned long long");
const FLOAT: Type = own("float", "float");
const DOUBLE: Type = own("double", "double");
const LONGDOUBLE: Type = own("longdouble", "long double");
const CHAR: Type = own("char", "char");
const SCHAR: Type = own("schar", "signed char");
const INT8: Type = other("int8", "int8_t");
const INT16: Type = other("int16", "int16_t");
const INT32: Type = other("int32", "int32_t");
const INT64: Type = other("int64", "int64_t");
const UINT8: Type = other("uint8", "uint8_t");
const UINT16: Type = other("uint16", "uint16_t");
const UINT32: Type = other("uint32", "uint32_t");
const UINT64: Type = other("uint64", "uint64_t");
const SIZE: Type = other("size", "size_t");
const PTRDIFF: Type = other("ptrdiff", "ptrdiff_t");
const COMPLEXF: Type = own("complexf", "shmem_complexf_");
const COMPLEXD: Type = own("complexd", "shmem_complexd_");

/// Standard RMA types; those of max and min too.
pub const RMA: &[Type] = &[
    FLOAT, DOUBLE, LONGDOUBLE, CHAR, SCHAR, SHORT, INT, LONG, LONGLONG, UCHAR, USHORT, UINT, ULONG, ULONGLONG, INT8,
    INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, SIZE, PTRDIFF,
];
/// Standard AMO types; those of waiting too.
pub const AMO: &[Type] = &[INT, LONG, LONGLONG, UINT, ULONG, ULONGLONG, INT32, INT64, UINT32, UINT64, SIZE, PTRDIFF];
/// Extended AMO types.
pub const EXTENDED: &[Type] =
    &[FLOAT, DOUBLE, INT, LONG, LONGLONG, UINT, ULONG, ULONGLONG, INT32, INT64, UINT32, UINT64, SIZE, PTRDIFF];
/// Bitwise AMO types. The signed ones are the only ones of their kind here.
pub const BITWISE: &[Type] =
    &[UINT, ULONG, ULONGLONG, own("int32", "int32_t"), own("int64", "int64_t"), UINT32, UINT64];
/// Types of bitwise reductions.
pub const REDUCE_BITS: &[Type] = &[
    UCHAR,
    USHORT,
    UINT,
    ULONG,
    ULONGLONG,
    own("int8", "int8_t"),
    own("int16", "int16_t"),
    own("int32", "int32_t"),
    own("int64", "int64_t"),
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    SIZE,
];
/// Types of sums and products.
pub const REDUCE_SUM: &[Type] = &[
    FLOAT, DOUBLE, LONGDOUBLE, CHAR, SCHAR, SHORT, INT, LONG, LONGLONG, UCHAR, USHORT, UINT, ULONG, ULONGLONG, INT8,
    INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, SIZE, PTRDIFF, COMPLEXF, COMPLEXD,
];
/// Deprecated reductions over active sets.
pub const TO_ALL_BITS: &[Type] = &[SHORT, INT, LONG, LONGLONG];
/// The same, of order.
pub const TO_ALL_ORDER: &[Type] = &[SHORT, INT, LONG, LONGLONG, FLOAT, DOUBLE, LONGDOUBLE];
/// The same, sums and products.
pub const TO_ALL_SUM: &[Type] = &[SHORT, INT, LONG, LONGLONG, FLOAT, DOUBLE, LONGDOUBLE, COMPLEXF, COMPLEXD];
/// Deprecated AMOs with short names.
pub const OLD_AMO: &[Type] = &[INT, LONG, LONGLONG];
/// The same, those that floating-point numbers have too.
pub const OLD_EXTENDED: &[Type] = &[FLOAT, DOUBLE, INT, LONG, LONGLONG];
/// Deprecated waiting.
pub const OLD_WAIT: &[Type] = &[SHORT, INT, LONG, LONGLONG];
/// Types that shmem_wait never had in a version, and programs use.
pub const WAIT_BEYOND: &[Type] = &[USHORT, UINT, ULONG, ULONGLONG, INT32, INT64, UINT32, UINT64, SIZE, PTRDIFF];
/// Deprecated waiting and testing of what the standard AMO types leave out.
pub const OLD_WAIT_UNTIL: &[Type] = &[SHORT, USHORT];
/// Not typed.
pub const NONE: &[Type] = &[own("", "void")];
/// What sized functions move: bits, and a type of as many.
pub const SIZED: &[Type] = &[
    own("8", "uint8_t"),
    own("16", "uint16_t"),
    own("32", "uint32_t"),
    own("64", "uint64_t"),
    own("128", "shmem_bits128_"),
];
/// Sizes of the deprecated collectives.
pub const SIZED_OLD: &[Type] = &[own("32", "uint32_t"), own("64", "uint64_t")];
