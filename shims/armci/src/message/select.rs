//! Selection: the process with the smallest or largest number gives its bytes to all.

use std::ffi::{c_char, c_int, c_void};

use super::collective::{Bytes, broadcast_over};
use super::numbers::{CNumber, DOUBLE, FLOAT, INT, LONG, LONG_LONG, count_at, no_type, text_of};
use super::scope::Scope;
use crate::boundary::call_joined;
use crate::refusal::{Done, Refusal};

/// Which number is looked for.
#[derive(Clone, Copy)]
enum Wanted {
    Smallest,
    Largest,
}

/// Those who contribute compare the numbers that their bytes begin with. The bytes of the one with the smallest or
/// the largest get to all; of several with the same, the first one's. If nobody contributes, those of the first
/// process do.
///
/// # Safety
/// `x` is writable for `n` bytes, and readable where `contribute` is not 0; `op` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_sel_scope(
    scope: c_int,
    x: *mut c_void,
    n: c_int,
    op: *mut c_char,
    r#type: c_int,
    contribute: c_int,
) {
    call_joined("armci_msg_sel_scope", |job| {
        // SAFETY: this function's own contract.
        let wanted = wanted(unsafe { text_of(op) }?)?;
        let number_bytes = number_bytes(r#type)?;
        if count_at(x, n)? < number_bytes {
            return Err(Refusal::fatal(format!("{n} bytes do not hold a number of type {}", r#type)));
        }
        let Some(part) = Scope::from_c(scope)?.of(job, job.groups.default())? else { return Ok(()) };
        let mut word = [0; 8];
        if contribute != 0 {
            // SAFETY: `n` bytes are readable by this function's contract, no fewer than a number has, and a word holds
            // the longest number.
            unsafe { std::ptr::copy_nonoverlapping(x.cast::<u8>(), word.as_mut_ptr(), number_bytes) };
        }
        let all = part.allgather_collective(&[u64::from(contribute != 0), u64::from_le_bytes(word)])?;
        let offers: Vec<Option<u64>> = all.chunks_exact(2).map(|offer| (offer[0] != 0).then_some(offer[1])).collect();
        let chosen = chosen(&offers, wanted, r#type)?;
        // SAFETY: the bytes are writable by this function's contract. Where they are read, they were contributed; if
        // nobody has, the first process's are passed on as they are.
        unsafe { broadcast_over(&part, chosen, Bytes { start: x, length: n }) }
    });
}

fn wanted(name: &[u8]) -> Done<Wanted> {
    if name.starts_with(b"min") {
        Ok(Wanted::Smallest)
    } else if name.starts_with(b"max") {
        Ok(Wanted::Largest)
    } else {
        Err(Refusal::fatal(format!("there is no selection {:?}", String::from_utf8_lossy(name))))
    }
}

fn number_bytes(code: c_int) -> Done<usize> {
    match code {
        INT | FLOAT => Ok(4),
        LONG | LONG_LONG | DOUBLE => Ok(8),
        code => Err(no_type(code)),
    }
}

fn chosen(offers: &[Option<u64>], wanted: Wanted, code: c_int) -> Done<u32> {
    match code {
        INT => Ok(best::<i32>(offers, wanted)),
        LONG | LONG_LONG => Ok(best::<i64>(offers, wanted)),
        FLOAT => Ok(best::<f32>(offers, wanted)),
        DOUBLE => Ok(best::<f64>(offers, wanted)),
        code => Err(no_type(code)),
    }
}

/// The first place with the best number. One that is no number is beaten by every other.
fn best<T: CNumber>(offers: &[Option<u64>], wanted: Wanted) -> u32 {
    let mut best: Option<(u32, T)> = None;
    let is_number = |value: T| value.partial_cmp(&value).is_some();
    for (place, offer) in (0..).zip(offers) {
        let Some(value) = offer.map(T::from_word) else { continue };
        let is_better = match best {
            None => true,
            Some((_, found)) if !is_number(found) => is_number(value),
            Some((_, found)) => match wanted {
                Wanted::Smallest => value < found,
                Wanted::Largest => value > found,
            },
        };
        if is_better {
            best = Some((place, value));
        }
    }
    best.map_or(0, |(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(values: &[Option<f64>]) -> Vec<Option<u64>> {
        values.iter().map(|value| value.map(f64::to_bits)).collect()
    }

    #[test]
    fn the_first_of_equal_numbers_is_chosen() {
        let offers = [None, Some(7_u64), Some(-3_i64 as u64), Some(-3_i64 as u64), Some(7)];
        assert_eq!(best::<i64>(&offers, Wanted::Smallest), 2);
        assert_eq!(best::<i64>(&offers, Wanted::Largest), 1);
        let offers = offers.map(|offer| offer.map(|word| word & 0xffff_ffff));
        assert_eq!(best::<i32>(&offers, Wanted::Smallest), 2);
    }

    #[test]
    fn what_is_no_number_is_chosen_only_if_there_is_nothing_else() {
        let offers = words(&[Some(f64::NAN), Some(2.0), Some(f64::NAN), Some(1.0)]);
        assert_eq!(best::<f64>(&offers, Wanted::Smallest), 3);
        assert_eq!(best::<f64>(&offers, Wanted::Largest), 1);
        assert_eq!(best::<f64>(&words(&[None, Some(f64::NAN)]), Wanted::Largest), 1);
    }

    #[test]
    fn if_nobody_contributes_the_first_is_chosen() {
        assert_eq!(best::<f64>(&[None, None], Wanted::Largest), 0);
    }
}
