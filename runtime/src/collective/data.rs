//! How the data of collectives moves: trees and rounds of messages.

use zerocopy::IntoBytes;

use super::{Call, from_bytes};
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
                bytes.copy_from_slice(&self.receive(parent)?);
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
                let body = self.receive((relative + distance + root) % size)?;
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
            let heard = self.exchange((self.me() + size - distance) % size, &packed, (self.me() + distance) % size)?;
            let mut rest = heard.as_slice();
            while let Some((length, behind)) = rest.split_first_chunk() {
                let (body, behind) = behind.split_at(u64::from_le_bytes(*length) as usize);
                bodies.push(body.to_vec());
                rest = behind;
            }
            distance *= 2;
            self.next_step();
        }
        bodies.rotate_right(self.me() as usize);
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
