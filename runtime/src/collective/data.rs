//! How the data of collectives moves: trees and rounds of messages.

use zerocopy::IntoBytes;

use super::call::Call;
use super::elements::from_bytes;
use crate::element::{Number, Reduction};
use crate::error::CollectiveError;

impl Call<'_> {
    /// Binomial tree from the root.
    pub(crate) fn broadcast(&mut self, root: u32, bytes: &mut [u8]) -> Result<(), CollectiveError> {
        let size = self.size();
        let relative = (self.me() + size - root) % size;
        let mut distance = 1;
        while distance < size {
            if relative & distance != 0 {
                let parent = (relative - distance + root) % size;
                bytes.copy_from_slice(&self.receive_exactly(parent, bytes.len())?);
                break;
            }
            distance *= 2;
        }
        while distance > 1 {
            distance /= 2;
            if relative + distance < size {
                self.send((relative + distance + root) % size, bytes)?;
            }
        }
        Ok(())
    }

    /// Binomial tree towards the root; a member combines what comes from its children in a fixed order.
    pub(crate) fn reduce<T: Number>(
        &mut self,
        root: u32,
        reduction: Reduction,
        elements: &mut [T],
    ) -> Result<(), CollectiveError> {
        let size = self.size();
        let relative = (self.me() + size - root) % size;
        let mut distance = 1;
        while distance < size {
            if relative & distance != 0 {
                return self.send((relative - distance + root) % size, elements.as_bytes());
            }
            if relative + distance < size {
                let body = self.receive_exactly((relative + distance + root) % size, size_of_val(elements))?;
                for (mine, theirs) in elements.iter_mut().zip(from_bytes::<T>(&body)) {
                    *mine = mine.combine(theirs, reduction).expect("checked before the call");
                }
            }
            distance *= 2;
        }
        Ok(())
    }

    /// A reduction to the first member, and from there to all.
    pub(crate) fn allreduce<T: Number>(
        &mut self,
        reduction: Reduction,
        elements: &mut [T],
    ) -> Result<(), CollectiveError> {
        self.reduce(0, reduction, elements)?;
        self.next_step();
        self.broadcast(0, elements.as_mut_bytes())
    }

    /// Rounds of doubling distance (Bruck): after round k every member has the bodies of 2^(k+1) members.
    pub(crate) fn allgather(&mut self, body: &[u8]) -> Result<Vec<Vec<u8>>, CollectiveError> {
        let size = self.size();
        // Bodies of this member, the next one, and so on around.
        let mut bodies = vec![body.to_vec()];
        let mut distance = 1;
        while distance < size {
            let count = distance.min(size - distance) as usize;
            let mut packed = Vec::new();
            for body in &bodies[..count] {
                packed.extend_from_slice(&(body.len() as u64).to_le_bytes());
                packed.extend_from_slice(body);
            }
            let from = (self.me() + distance) % size;
            let heard = self.exchange((self.me() + size - distance) % size, &packed, from)?;
            let unpacked = unpack(&heard, count);
            let due = || self.bad_message(from, heard.len() as u64, format!("the bodies of {count} members"));
            bodies.extend(unpacked.ok_or_else(due)?);
            distance *= 2;
            self.next_step();
        }
        bodies.rotate_right(self.me() as usize);
        Ok(bodies)
    }

    /// The same of bodies that are as long as this member's.
    pub(crate) fn allgather_exactly(&mut self, body: &[u8]) -> Result<Vec<Vec<u8>>, CollectiveError> {
        let bodies = self.allgather(body)?;
        (0..).zip(&bodies).try_for_each(|(from, found)| self.check_bytes(from, found.len() as u64, body.len()))?;
        Ok(bodies)
    }

    /// As [`Call::alltoall`] of shares that are all of one length.
    pub(crate) fn alltoall_exactly(&mut self, shares: &[&[u8]]) -> Result<Vec<Vec<u8>>, CollectiveError> {
        let bodies = self.alltoall(shares)?;
        let due = shares[self.me() as usize].len();
        (0..).zip(&bodies).try_for_each(|(from, found)| self.check_bytes(from, found.len() as u64, due))?;
        Ok(bodies)
    }

    /// One round a distance: in round d every member sends to the one d places ahead.
    pub(crate) fn alltoall(&mut self, shares: &[&[u8]]) -> Result<Vec<Vec<u8>>, CollectiveError> {
        let size = self.size();
        let mut all = vec![Vec::new(); size as usize];
        all[self.me() as usize] = shares[self.me() as usize].to_vec();
        for distance in 1..size {
            let to = (self.me() + distance) % size;
            let from = (self.me() + size - distance) % size;
            all[from as usize] = self.exchange(to, shares[to as usize], from)?;
            self.next_step();
        }
        Ok(all)
    }
}

/// So many bodies, each behind its length, as members of a collective send them together. `None`: they are not that.
pub fn unpack(packed: &[u8], count: usize) -> Option<Vec<Vec<u8>>> {
    let (mut bodies, mut rest) = (Vec::new(), packed);
    for _ in 0..count {
        let (length, behind) = rest.split_first_chunk()?;
        let (body, behind) = behind.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        bodies.push(body.to_vec());
        rest = behind;
    }
    rest.is_empty().then_some(bodies)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(bodies: &[&[u8]]) -> Vec<u8> {
        bodies.iter().flat_map(|body| [&(body.len() as u64).to_le_bytes()[..], *body].concat()).collect()
    }

    #[test]
    fn packed_bodies_come_out_as_they_went_in() {
        let bodies: [&[u8]; 3] = [b"one", b"", b"three"];
        assert_eq!(unpack(&packed(&bodies), 3).unwrap(), bodies);
    }

    #[test]
    fn whatever_else_a_member_sends_is_no_bodies() {
        let whole = packed(&[b"one", b"", b"three"]);
        assert!((0..whole.len()).all(|bytes| unpack(&whole[..bytes], 3).is_none()), "cut off");
        assert!(unpack(&whole, 2).is_none() && unpack(&whole, 4).is_none(), "of another number of members");
        for length in [u64::MAX, 1 << 63, 2] {
            assert!(unpack(&[&length.to_le_bytes()[..], b"x"].concat(), 1).is_none(), "{length} bytes are announced");
        }
    }
}
