//! Memory that lies in pieces: what one request names of it.

use longarm_netmod::Loan;

/// The first address of a piece, and how long it is.
pub(crate) type Piece = (usize, usize);

/// What lies between pieces is registered with them: at most so many times as much.
const SPREAD_MAX: usize = 4;

/// The pieces from `at` on: no more than `pieces_max`, of `bytes` at most together.
pub(crate) fn some_of(loan: &dyn Loan, at: usize, bytes: usize, pieces_max: usize) -> Vec<Piece> {
    let mut pieces = Vec::with_capacity(pieces_max.min(loan.pieces().len().max(1)));
    loan.each(at, bytes, |piece, _| {
        if pieces.len() < pieces_max {
            pieces.push((piece.as_mut_ptr().expose_provenance(), piece.len()));
        }
    });
    pieces
}

/// From the first byte of all pieces to the last, unless they lie too far apart to be registered together.
pub(crate) fn around(pieces: &[Piece]) -> Option<(usize, usize)> {
    let start = pieces.iter().map(|(start, _)| *start).min()?;
    let end = pieces.iter().map(|(start, bytes)| start + bytes).max()?;
    let bytes: usize = pieces.iter().map(|(_, bytes)| bytes).sum();
    (pieces.len() == 1 || end - start <= bytes.saturating_mul(SPREAD_MAX)).then_some((start, end - start))
}

#[cfg(test)]
mod tests {
    use longarm_memory::RegionMut;
    use longarm_netmod::InPieces;
    use longarm_proto::Run;

    use super::*;

    fn loan(pieces: &[(u64, u64)]) -> InPieces {
        let memory = RegionMut::from_slice(Box::leak(vec![0; 1000].into_boxed_slice()));
        InPieces(memory, pieces.iter().map(|(offset, bytes)| Run { offset: *offset, bytes: *bytes }).collect())
    }

    #[test]
    fn pieces_far_apart_are_not_registered_together() {
        let spread = loan(&[(100, 10), (50, 10), (300, 10)]);
        let start = spread.0.as_mut_ptr().expose_provenance();
        assert_eq!(some_of(&spread, 5, 25, 2), [(start + 105, 5), (start + 50, 10)]);
        assert_eq!(around(&some_of(&spread, 0, 20, 8)), Some((start + 50, 60)));
        assert_eq!(around(&some_of(&spread, 0, 30, 8)), None);
        assert_eq!(around(&some_of(&spread, 20, 10, 8)), Some((start + 300, 10)));
    }
}
