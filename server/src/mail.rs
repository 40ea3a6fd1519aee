//! Mail of one peer on its way to the inboxes of this node.
//!
//! Inboxes are made of cells, and a rank that takes no mail in gives none back. What finds no free cell is held here, and its
//! connection goes on: a request that touches memory never waits for a rank to look at its mail. What may be held is bounded by
//! the peer's credit: it sends no more than that beyond what it was told has gone to the inboxes.
//!
//! ```text
//!   piece arrives ──► cell ──► inbox          credit: taken when its header arrives,
//!          └──► held ──► cell ──► inbox               given back when its last byte is in a cell
//! ```
//!
//! The mail of one peer goes to the inboxes in the order in which it came. While anybody's is held, everybody's takes its turn, so
//! that nobody's is passed over for ever.

use std::collections::{HashMap, VecDeque};

use longarm_memory::Region;
use longarm_proto::{Credit, MAIL_CREDIT_BYTES, MAIL_TOLD_BYTES, Rank, Violation, mail_charge};
use longarm_shm::{CELL_PAYLOAD_BYTES, CellHead, MESSAGE_BEGINS, NodeSegment, Producer};

/// Cells that one peer's held mail takes before others have their turn.
const CELLS_PER_TURN: usize = 16;

/// See the module.
pub(crate) struct Mail {
    source: Rank,
    held: VecDeque<Parcel>,
    held_bytes: u64,
    credit: Credit,
    /// Of messages of which a piece has arrived: to which local rank, how much is missing, and bytes of all of it.
    unfinished: HashMap<u32, (u64, u64)>,
    /// What has gone to the inboxes since the session began, as the credit counts it, and what the peer was told of that.
    taken: u64,
    told: u64,
}

/// What goes into one cell.
struct Parcel {
    local: u32,
    head: CellHead,
    bytes: Vec<u8>,
    /// What it gives back of the credit.
    charge: u64,
}

/// A piece of a message that is arriving.
pub(crate) struct Piece {
    local: u32,
    message_bytes: u64,
    remaining: u64,
    begins: bool,
}

impl Piece {
    /// Bytes that have not arrived.
    pub(crate) fn remaining(&self) -> u64 {
        self.remaining
    }

    /// How many have to be there for the next cell.
    pub(crate) fn next_bytes(&self) -> usize {
        self.remaining.min(CELL_PAYLOAD_BYTES as u64) as usize
    }
}

impl Mail {
    /// At the start of the session of a rank.
    pub(crate) fn new(source: Rank) -> Mail {
        Mail {
            source,
            held: VecDeque::new(),
            held_bytes: 0,
            credit: Credit::new(MAIL_CREDIT_BYTES),
            unfinished: HashMap::new(),
            taken: 0,
            told: 0,
        }
    }

    /// Whose mail it is.
    pub(crate) fn source(&self) -> Rank {
        self.source
    }

    /// Whether anything waits for a free cell.
    pub(crate) fn holds_some(&self) -> bool {
        !self.held.is_empty()
    }

    /// Bytes that wait for free cells.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// A request with so much of a message arrives, for whomever it is.
    ///
    /// # Errors
    /// When there is no credit for it.
    pub(crate) fn charge(&mut self, bytes: u64) -> Result<(), Violation> {
        self.credit
            .take(mail_charge(bytes))
            .map_err(|overdraft| Violation::MailOverdrawn { found: overdraft.wanted, available: overdraft.available })
    }

    /// It was refused.
    pub(crate) fn refused(&mut self, bytes: u64) {
        self.give(mail_charge(bytes));
    }

    /// It is for this local rank. What follows are its bytes.
    ///
    /// # Errors
    /// When it does not go on with the message whose rest is missing there.
    pub(crate) fn begin(&mut self, local: u32, bytes: u64, rest: u64) -> Result<Piece, Violation> {
        let (missing, message_bytes) = self.unfinished.remove(&local).unwrap_or((bytes + rest, bytes + rest));
        if missing != bytes + rest {
            return Err(Violation::MailPiece { found: bytes, rest, missing });
        }
        if rest > 0 {
            self.unfinished.insert(local, (rest, message_bytes));
        }
        if bytes == 0 {
            self.give(mail_charge(0));
        }
        Ok(Piece { local, message_bytes, remaining: bytes, begins: missing == message_bytes })
    }

    /// Takes the bytes of the next cell, which go to the inbox now, or later. `behind_others`: somebody else's mail waits.
    pub(crate) fn take(&mut self, piece: &mut Piece, bytes: &[u8], node: &NodeSegment, behind_others: bool) {
        let (source, message_bytes) = (self.source.0, piece.message_bytes);
        let kind = if std::mem::take(&mut piece.begins) { MESSAGE_BEGINS } else { 0 };
        let head = CellHead { source, bytes: bytes.len() as u32, message_bytes, kind, ..CellHead::default() };
        piece.remaining -= bytes.len() as u64;
        let charge = bytes.len() as u64 + if piece.remaining == 0 { mail_charge(0) } else { 0 };
        let waits = behind_others || self.holds_some();
        if !waits && node.try_push(Producer::Server, piece.local, head, &[Region::from_slice(bytes)]).is_ok() {
            self.give(charge);
            return;
        }
        self.held_bytes += bytes.len() as u64;
        self.held.push_back(Parcel { local: piece.local, head, bytes: bytes.to_vec(), charge });
    }

    /// Moves some of what is held to the inboxes. `None`: no cell is free. Else whether anything moved.
    pub(crate) fn deliver(&mut self, node: &NodeSegment) -> Option<bool> {
        let mut progress = false;
        for _ in 0..CELLS_PER_TURN {
            let Some(Parcel { local, head, bytes, charge }) = self.held.front() else { break };
            if node.try_push(Producer::Server, *local, *head, &[Region::from_slice(bytes)]).is_err() {
                return progress.then_some(true);
            }
            let charge = *charge;
            self.held_bytes -= bytes.len() as u64;
            self.held.pop_front();
            self.give(charge);
            progress = true;
        }
        Some(progress)
    }

    /// What the peer is to be told of what has gone to the inboxes, once it is much.
    pub(crate) fn untold(&mut self) -> Option<u64> {
        if self.taken - self.told < MAIL_TOLD_BYTES {
            return None;
        }
        self.told = self.taken;
        Some(self.taken)
    }

    /// The session that went before, of the same rank, had still this: it goes first, and takes no credit.
    pub(crate) fn inherit(&mut self, before: Mail) {
        self.held_bytes += before.held_bytes;
        self.held.extend(before.held.into_iter().map(|parcel| Parcel { charge: 0, ..parcel }));
    }

    fn give(&mut self, charge: u64) {
        self.credit.give(charge);
        self.taken += charge;
    }
}

#[cfg(test)]
mod tests {
    use longarm_proto::{HEADER_BYTES, JobId, MAIL_PIECE_BYTES_MAX};
    use longarm_shm::{CELLS_OF_SERVER, Popped};

    use super::*;

    fn node(job: u64) -> NodeSegment {
        NodeSegment::create(JobId(job << 32 | u64::from(std::process::id())), 4, 2).unwrap()
    }

    /// A whole request.
    fn send(mail: &mut Mail, node: &NodeSegment, (local, rest): (u32, u64), bytes: &[u8]) -> Result<(), Violation> {
        mail.charge(bytes.len() as u64)?;
        let mut piece = mail.begin(local, bytes.len() as u64, rest)?;
        let mut left = bytes;
        while piece.remaining() > 0 {
            let (first, behind) = left.split_at(piece.next_bytes());
            mail.take(&mut piece, first, node, false);
            left = behind;
        }
        Ok(())
    }

    /// Everything in an inbox: the first byte of each cell, and whether a message begins with it.
    fn read(node: &NodeSegment, local: u32) -> Vec<(u8, bool, u64)> {
        let mut heard = Vec::new();
        let mut take = |head: CellHead, payload: Region<'_>| {
            let mut first = [0];
            payload.slice(0, 1).copy_to_slice(&mut first);
            heard.push((first[0], head.kind == MESSAGE_BEGINS, head.message_bytes));
        };
        while node.try_pop(local, &mut take) == Popped::Taken {}
        heard
    }

    #[test]
    fn what_finds_no_cell_is_held_and_goes_on_in_its_order_as_cells_come_back() {
        let (node, mut mail) = (node(1), Mail::new(Rank(3)));
        let count = CELLS_OF_SERVER + 40;
        (0..count).for_each(|number| send(&mut mail, &node, (0, 0), &[number as u8; 9]).unwrap());
        assert_eq!((mail.holds_some(), mail.held_bytes()), (true, 40 * 9));
        assert_eq!(mail.deliver(&node), None, "no cell has come back");
        // For another rank, whose inbox is empty: behind what waits.
        send(&mut mail, &node, (1, 0), &[7]).unwrap();
        assert_eq!(read(&node, 1), []);
        let mut heard = read(&node, 0);
        while mail.holds_some() {
            assert_eq!(mail.deliver(&node), Some(true));
            heard.extend(read(&node, 0));
        }
        let numbers: Vec<u8> = heard.iter().map(|cell| cell.0).collect();
        assert_eq!(numbers, Vec::from_iter((0..count).map(|number| number as u8)));
        assert_eq!(read(&node, 1), [(7, true, 1)]);
        assert_eq!(mail.held_bytes(), 0);
    }

    #[test]
    fn a_peer_that_sends_more_than_its_credit_is_told_apart_from_one_that_waits() {
        let (node, mut mail) = (node(2), Mail::new(Rank(3)));
        let piece = vec![1; 4096 - HEADER_BYTES];
        // Nobody takes anything in. Cells are full first, then what may be held.
        let sent = (0..).take_while(|_| send(&mut mail, &node, (0, 0), &piece).is_ok()).count() as u64;
        let in_cells = u64::from(CELLS_OF_SERVER) * 4096;
        assert_eq!(sent * 4096, in_cells + MAIL_CREDIT_BYTES);
        assert_eq!(mail.charge(1), Err(Violation::MailOverdrawn { found: 65, available: 0 }));
        assert_eq!(mail.untold(), Some(in_cells));
        assert_eq!(mail.untold(), None, "it was told");
        while mail.holds_some() {
            read(&node, 0);
            mail.deliver(&node);
        }
        assert_eq!(mail.untold(), Some(sent * 4096));
        // There is room again, and all that it may have in one piece.
        send(&mut mail, &node, (0, 0), &vec![2; MAIL_PIECE_BYTES_MAX as usize]).unwrap();
    }

    #[test]
    fn pieces_of_messages_for_several_ranks_are_told_apart_and_have_to_fit() {
        let (node, mut mail) = (node(3), Mail::new(Rank(3)));
        send(&mut mail, &node, (0, 7), &[1; 5]).unwrap();
        send(&mut mail, &node, (1, 2), &[2; 4]).unwrap();
        let wrong = send(&mut mail, &node, (1, 0), &[3; 3]);
        assert_eq!(wrong, Err(Violation::MailPiece { found: 3, rest: 0, missing: 2 }));
        send(&mut mail, &node, (0, 3), &[4; 4]).unwrap();
        send(&mut mail, &node, (0, 0), &[5; 3]).unwrap();
        send(&mut mail, &node, (0, 0), &[6]).unwrap();
        assert_eq!(read(&node, 0), [(1, true, 12), (4, false, 12), (5, false, 12), (6, true, 1)]);
        assert_eq!(read(&node, 1), [(2, true, 6)]);
    }

    #[test]
    fn what_a_session_leaves_behind_goes_before_what_the_next_one_of_its_rank_brings() {
        let (node, mut before) = (node(4), Mail::new(Rank(3)));
        (0..CELLS_OF_SERVER + 2).for_each(|_| send(&mut before, &node, (0, 0), &[1]).unwrap());
        let mut mail = Mail::new(Rank(3));
        mail.inherit(before);
        send(&mut mail, &node, (0, 0), &[2]).unwrap();
        read(&node, 0);
        assert_eq!(mail.deliver(&node), Some(true));
        assert_eq!(read(&node, 0), [(1, true, 1), (1, true, 1), (2, true, 1)]);
        assert_eq!(mail.taken, mail_charge(1), "the credit is that of this session");
    }
}
